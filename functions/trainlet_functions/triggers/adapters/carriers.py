"""What carries notifications of AWS: SQS messages, SNS envelopes and lists of them, opened until the message is reached."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from trainlet.core import events
from trainlet.core.errors import UserError
from trainlet.core.events import Event
from trainlet_functions.triggers.adapters import shapes

CONFIRMATION = "com.amazonaws.sns.subscriptionconfirmation"
_MOST_DEPTH = 5


def unwrap(form: Any, depth: int = 0) -> Iterator[Any]:
    """Yield the messages inside of a message, in order; one that is in nothing is itself."""
    if depth > _MOST_DEPTH:
        raise UserError(f"This message has more than {_MOST_DEPTH} envelopes around it.")
    inner = _inner(form)
    if inner is None:
        yield form
        return
    for one in inner:
        yield from unwrap(shapes.loads(one, "message of SQS or SNS") if isinstance(one, str) else one, depth + 1)


def confirmation(form: Any) -> Event | None:
    """Return the event of a topic that asks whether its subscription is wanted: a person opens the URL in it."""
    if not isinstance(form, dict) or form.get("Type") != "SubscriptionConfirmation":
        return None
    topic, url = form.get("TopicArn"), form.get("SubscribeURL")
    if not isinstance(topic, str) or not isinstance(url, str):
        raise UserError("This is no SubscriptionConfirmation of SNS: it has no TopicArn or no SubscribeURL.")
    data = {"topic": topic, "subscribe_url": url}
    source, event_id = shapes.text(topic) or "sns", shapes.identity(topic, form.get("Token"))
    return events.make(CONFIRMATION, source, event_id, data, subject=shapes.text(topic))


def _inner(form: Any) -> list[Any] | None:
    """Return what a carrier holds; None when this is no carrier."""
    if isinstance(form, list):
        return form
    if not isinstance(form, dict):
        return None
    if "specversion" in form and "data" in form:
        return [form["data"]]
    if form.get("Type") == "Notification" and "Message" in form:
        return [form["Message"]]
    if "MessageId" in form and "Body" in form:
        return [form["Body"]]
    if isinstance(form.get("Messages"), list):
        return list(form["Messages"])
    records = form.get("Records")
    if isinstance(records, list) and records and all(isinstance(one, dict) for one in records):
        if all("body" in one for one in records):
            return [one["body"] for one in records]
        if all("Sns" in one for one in records):
            return [{"Type": "Notification", **one["Sns"]} for one in records if isinstance(one["Sns"], dict)]
    return None
