"""S3 event notifications: AWS, MinIO and Ceph (`Records`), EventBridge, and SeaweedFS; direct, or through SQS and SNS.

The id is made of bucket, key, version and sequencer, so that one change of one object is one event, whichever way
it is told. The subject is the object's key; `data.uri` is where it is, as the poller says it too.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import unquote_plus

from pydantic import Field

from trainlet.core import events
from trainlet.core.errors import UserError
from trainlet.core.events import Event
from trainlet_functions.triggers.adapters import carriers, seaweedfs, shapes

WHAT = "S3 notification"
PREFIX = "com.amazonaws.s3."
_KINDS = {"objectdeleted": "objectremoved"}  # EventBridge's word for it
_PLAIN_KEYS = frozenset({"ceph:s3"})  # keys as they are; the others write them as in a URL's query


class _Object(shapes.Shape):
    key: str = Field(min_length=1, max_length=4096)
    size: int | None = None
    etag: str | None = Field(default=None, alias="eTag")
    version: str | None = Field(default=None, alias="versionId")
    sequencer: str | None = None


class _Bucket(shapes.Shape):
    name: str = Field(min_length=1, max_length=255)


class _Entity(shapes.Shape):
    bucket: _Bucket
    object: _Object


class _Record(shapes.Shape):
    event: str = Field(alias="eventName", min_length=1, max_length=200)
    origin: str = Field(default="aws:s3", alias="eventSource")
    region: str | None = Field(default=None, alias="awsRegion")
    time: str | None = Field(default=None, alias="eventTime")
    s3: _Entity


class _Bridged(shapes.Shape):
    key: str = Field(min_length=1, max_length=4096)
    size: int | None = None
    etag: str | None = None
    sequencer: str | None = None
    version: str | None = Field(default=None, alias="version-id")


class _Detail(shapes.Shape):
    bucket: _Bucket
    object: _Bridged
    reason: str | None = None


class _Bridge(shapes.Shape):
    kind: str = Field(alias="detail-type", min_length=1, max_length=200)
    region: str | None = None
    time: str | None = None
    detail: _Detail


def convert(headers: Mapping[str, str], body: bytes) -> list[Event]:
    """Return an event of each change; raises UserError for what no store sends."""
    found: list[Event] = []
    for form in carriers.unwrap(shapes.content(headers, body, WHAT)):
        asked = carriers.confirmation(form)
        found.extend([asked] if asked is not None else _events(form))
    return found


def _events(form: Any) -> Iterator[Event]:
    if not isinstance(form, dict):
        raise UserError(f"This is no {WHAT}: it is a JSON {type(form).__name__}, not an object.")
    if form.get("Event") == "s3:TestEvent" or form.get("Type") == "UnsubscribeConfirmation":
        return
    if "event_type" in form and "message" in form:
        change = seaweedfs.read(form)
        if change is not None:
            yield _event(**change)
        return
    if "detail-type" in form:
        bridge = shapes.read(_Bridge, form, f"{WHAT} of EventBridge")
        moved, event = bridge.detail.object, f"{bridge.kind}:{bridge.detail.reason or ''}".rstrip(":")
        kind = shapes.word(bridge.kind)
        yield _event(kind, event, bridge.detail.bucket.name, moved.key, moved, "aws:s3", bridge.region, bridge.time)
        return
    records = form.get("Records")
    if not isinstance(records, list):
        raise UserError(f"This is no {WHAT}: it has no Records, no detail-type and no event_type.")
    for position, item in enumerate(records):
        record = shapes.read(_Record, item, f"{WHAT}: record {position}")
        one = record.s3.object
        key = one.key if record.origin in _PLAIN_KEYS else unquote_plus(one.key)
        event = record.event.removeprefix("s3:")
        kind = shapes.word(event.partition(":")[0])
        yield _event(kind, event, record.s3.bucket.name, key, one, record.origin, record.region, record.time)


def _event(
    kind: str,
    event: str,
    bucket: str,
    key: str,
    one: Any,
    origin: str,
    region: str | None = None,
    time: str | None = None,
) -> Event:
    kind = _KINDS.get(kind, kind)
    etag = (one.etag or "").strip('"') or None
    version = None if one.version in (None, "", "null") else one.version
    mark = one.sequencer or [etag, time]  # the sequencer is the same on every way, and not every way tells the rest
    data = {
        "uri": f"s3://{bucket}/{key}",
        "bucket": bucket,
        "key": key,
        "size_bytes": one.size,
        "etag": etag,
        "version_id": version,
        "event": event,
        "region": region or None,
        "store": origin,
    }
    return events.make(
        PREFIX + kind,
        f"s3://{bucket}",
        shapes.identity(bucket, key, kind, version, mark),
        {name: value for name, value in data.items() if value is not None},
        subject=shapes.text(key),
        time=shapes.moment(time),
    )
