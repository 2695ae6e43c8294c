"""Who brings an event: where Knative Eventing gives senders an identity (OIDC), a worker takes only what carries one for it.

The token is looked at here, so that a stranger's event costs nothing; whether it is true is for the training API to find
out from Kubernetes, at the claim. It must not be logged.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping

from trainlet_functions.wakeups import Refused

MAX_TOKEN = 16_384


def token_of(headers: Mapping[str, str], audience: str) -> str:
    """Return the bearer token of an event for this audience; raises Refused (401) when there is none."""
    scheme, _, token = headers.get("authorization", "").partition(" ")
    if scheme.lower() != "bearer" or not token or len(token) > MAX_TOKEN:
        raise Refused(401, f"the event carries no token; this worker wants one for {audience}")
    if audience not in _audiences(token):
        raise Refused(401, f"the event's token is not one for {audience}")
    return token


def _audiences(token: str) -> list[str]:
    """Return whom a JSON Web Token says it is for, without believing it."""
    try:
        payload = token.split(".")[1]
        found = json.loads(base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4)))["aud"]
    except (IndexError, ValueError, KeyError, TypeError):
        return []
    return [found] if isinstance(found, str) else list(found) if isinstance(found, list) else []
