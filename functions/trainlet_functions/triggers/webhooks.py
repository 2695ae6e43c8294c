"""How the sender of a webhook shows that it has the secret: five schemes, each checked in constant time.

`hmac` is GitHub's header (Gitea, Forgejo and many others have it too), `standard` is Standard Webhooks 1, `mlflow` is
MLflow's, `bearer` a secret in the Authorization header (Alertmanager, MinIO, Grafana), `url` one at the end of the path for
senders that take nothing but a URL (SNS, SeaweedFS). Two of them sign a time, and what is old is refused; a repetition
of the others is the same event, and the intake takes that once. This module must not know where secrets come from.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import sqlalchemy as sa

from trainlet.core.hooks import Scheme

TOLERANCE_S = 300  # as Standard Webhooks and MLflow have it
STANDARD_PREFIX = "whsec_"
_HUB = "x-hub-signature-256"
_STANDARD = ("webhook-id", "webhook-timestamp", "webhook-signature")
_MLFLOW = ("x-mlflow-delivery-id", "x-mlflow-timestamp", "x-mlflow-signature")


class Refused(Exception):
    """Raised for a request that does not show the secret; the text says what is missing or wrong, never a secret."""


class _Check(Protocol):
    def __call__(self, secrets: Sequence[str], headers: Mapping[str, str], body: bytes, now_s: float) -> None: ...


def scheme_of(headers: Mapping[str, str]) -> Scheme:
    """Return the scheme that the (lower-case) headers of a request follow; raises Refused when there is none."""
    if _STANDARD[2] in headers:
        return "standard"
    if _MLFLOW[2] in headers:
        return "mlflow"
    if _HUB in headers:
        return "hmac"
    if "authorization" in headers:
        return "bearer"
    raise Refused(
        "it has none of the headers X-Hub-Signature-256 (hmac), Webhook-Signature (standard), X-MLflow-Signature "
        "(mlflow) and Authorization (bearer); does the sender have the hook's secret?"
    )


def check(scheme: Scheme, secrets: Sequence[str], headers: Mapping[str, str], body: bytes, now_s: float) -> None:
    """Raise Refused unless the request shows one of the secrets."""
    _CHECKS[scheme](secrets, headers, body, now_s)


def check_given(secrets: Sequence[str], given: str) -> None:
    """Raise Refused unless what was given is one of the secrets."""
    if not _any_equal(given, secrets):
        raise Refused("the secret is not the hook's")


def standard_signature(secret: str, event_id: str, timestamp: int | str, body: bytes) -> str:
    """Return the signature of Standard Webhooks 1 (`v1,...`) over an id, a time in whole seconds and a body."""
    key = base64.b64decode(secret.removeprefix(STANDARD_PREFIX))
    return _versioned(key, event_id, str(timestamp), body)


def _hub(secrets: Sequence[str], headers: Mapping[str, str], body: bytes, now_s: float) -> None:
    good = ["sha256=" + hmac.new(secret.encode(), body, hashlib.sha256).hexdigest() for secret in secrets]
    if not _any_equal(headers.get(_HUB, ""), good):
        raise Refused("the signature in X-Hub-Signature-256 is not made of this body with the hook's secret")


def _standard(secrets: Sequence[str], headers: Mapping[str, str], body: bytes, now_s: float) -> None:
    event_id, timestamp, given = (headers.get(name, "") for name in _STANDARD)
    _check_time(timestamp, now_s, "Webhook-Timestamp")
    good = [standard_signature(secret, event_id, timestamp, body) for secret in secrets]
    if not any(_any_equal(one, good) for one in given.split(" ")[:10]):
        raise Refused("no signature in Webhook-Signature is made of this id, time and body with the hook's secret")


def _mlflow(secrets: Sequence[str], headers: Mapping[str, str], body: bytes, now_s: float) -> None:
    event_id, timestamp, given = (headers.get(name, "") for name in _MLFLOW)
    _check_time(timestamp, now_s, "X-MLflow-Timestamp")
    if not _any_equal(given, [_versioned(secret.encode(), event_id, timestamp, body) for secret in secrets]):
        raise Refused(
            "the signature in X-MLflow-Signature is not made of this id, time and body with the hook's secret"
        )


def _bearer(secrets: Sequence[str], headers: Mapping[str, str], body: bytes, now_s: float) -> None:
    kind, _, given = headers.get("authorization", "").partition(" ")
    if kind.lower() == "basic":  # what http://user:SECRET@host/ becomes
        try:
            given = base64.b64decode(given, validate=True).decode().partition(":")[2]
        except ValueError:
            raise Refused("its Authorization header is no valid Basic one") from None
    elif kind.lower() != "bearer":
        raise Refused("write its Authorization header as 'Bearer SECRET'")
    check_given(secrets, given.strip())


def _versioned(key: bytes, event_id: str, timestamp: str, body: bytes) -> str:
    signed = f"{event_id}.{timestamp}.".encode("utf-8", "surrogateescape") + body
    return "v1," + base64.b64encode(hmac.new(key, signed, hashlib.sha256).digest()).decode()


def _check_time(text: str, now_s: float, header: str) -> None:
    if not (text.isascii() and text.isdecimal() and len(text) <= 12):
        raise Refused(f"{header} is no time in whole seconds since 1970")
    off_s = now_s - int(text)
    if abs(off_s) > TOLERANCE_S:
        direction = "ago" if off_s > 0 else "ahead"
        raise Refused(
            f"{header} is {abs(off_s):.0f} s {direction}, more than {TOLERANCE_S}: it is a repetition, or a clock is wrong"
        )


def _any_equal(given: str, good: Sequence[str]) -> bool:
    """Compare with each in a time that tells nothing of what is in them."""
    raw = given.encode("utf-8", "surrogateescape")
    found = [hmac.compare_digest(raw, one.encode()) for one in good]
    return any(found)


_CHECKS: Mapping[Scheme, _Check] = {"hmac": _hub, "standard": _standard, "mlflow": _mlflow, "bearer": _bearer}


def generations(row: sa.Row[Any], now_ns: int) -> list[int]:
    """Return the generations of a rotated secret that are good now, the newest first."""
    before = row.previous_until_ns is not None and row.previous_until_ns > now_ns
    return [row.generation, *([row.generation - 1] if before else [])]
