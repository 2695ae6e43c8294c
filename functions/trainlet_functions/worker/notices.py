"""The news that an attempt has ended, for whoever listens: a CloudEvent to the sink that Knative's convention names.

`K_SINK` is where it goes and `K_CE_OVERRIDES` what is added to it, as Knative's own sources read them. The training API
has heard of the end before, and it has the truth: an event that does not arrive within a few tries is given up.
"""

from __future__ import annotations

import json
import logging
import re
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx

from trainlet.core import envelopes
from trainlet.core.clocks import rfc3339
from trainlet.core.errors import UserError
from trainlet.core.wire import ClaimReply, FinishRequest

_LOG = logging.getLogger(__name__)
FINISHED = "dev.trainlet.step.finished"
TOKEN_FILE = Path("/oidc/token")  # where Knative mounts a sender's identity, when it has one
_TRIES = 3
_TIMEOUT_S = 5.0
_EXTENSION = re.compile(r"[a-z0-9]{1,20}")


class Notices:
    """Sends one event for each attempt that ended, in the background: no work waits for whoever listens."""

    def __init__(self, sink: str, extensions: Mapping[str, str], *, pause_s: float = 1.0) -> None:
        self._sink = sink
        self._extensions = dict(extensions)
        self._pause_s = pause_s
        self._pool = ThreadPoolExecutor(max_workers=1, thread_name_prefix="notices")  # it is waited for at the exit

    @classmethod
    def from_environment(cls, environ: Mapping[str, str]) -> Notices | None:
        """Return what the environment asks for, None without K_SINK; UserError for what is no URL, or no overrides."""
        sink = environ.get("K_SINK")
        if not sink:
            return None
        if not re.match(r"https?://[^/\s]", sink):
            raise UserError(f"K_SINK={sink!r} is no URL. Write http://HOST/PATH, or leave it out.")
        return cls(sink, _extensions(environ.get("K_CE_OVERRIDES") or "{}"))

    def ended(self, claim: ClaimReply, finish: FinishRequest) -> None:
        """Tell that an attempt has ended; returns at once."""
        task = claim.task
        data = {
            "task": task.key,
            "run": task.run_id,
            "epoch": claim.epoch,
            "function": task.function,
            "project": task.project,
            "outcome": finish.outcome,
            "reason": finish.reason,
        }
        headers = {
            "ce-specversion": "1.0",
            "ce-type": FINISHED,
            "ce-source": envelopes.source(task.project),
            "ce-id": f"{task.key}.{claim.epoch}.{finish.outcome}",
            "ce-subject": task.key,
            "ce-time": rfc3339(time.time_ns()),
            "content-type": "application/json",
            **{f"{envelopes.HEADER_PREFIX}{name}": value for name, value in self._extensions.items()},
        }
        self._pool.submit(self._send, headers, json.dumps(data).encode())

    def _send(self, headers: dict[str, str], body: bytes) -> None:
        for number in range(_TRIES):
            if number:
                time.sleep(self._pause_s)
            try:
                answer = httpx.post(self._sink, content=body, headers=headers | _identity(), timeout=_TIMEOUT_S)
            except (httpx.HTTPError, httpx.InvalidURL) as error:
                why = f"{type(error).__name__} {error}"
                continue
            if answer.is_success:
                return
            why = f"it answered {answer.status_code}"
            if answer.is_client_error and answer.status_code not in (404, 408, 409, 429):
                break
        _LOG.warning("the end of %s was not told to K_SINK %s: %s", headers["ce-subject"], self._sink, why)


def _identity() -> dict[str, str]:
    """Return the token of this sender as it is now: it is renewed under our feet."""
    try:
        return {"Authorization": f"Bearer {TOKEN_FILE.read_text().strip()}"}
    except (OSError, UnicodeDecodeError):
        return {}


def _extensions(text: str) -> dict[str, str]:
    try:
        found = json.loads(text).get("extensions") or {}
        wrong = [name for name, value in found.items() if not _EXTENSION.fullmatch(name) or not isinstance(value, str)]
        wrong += [name for name, value in found.items() if not str(value).isprintable() or not str(value).isascii()]
    except (ValueError, AttributeError) as error:
        raise UserError('K_CE_OVERRIDES is not like {"extensions": {"team": "vision"}}. Correct it.') from error
    if wrong:
        raise UserError(
            f"K_CE_OVERRIDES: {', '.join(sorted(set(wrong)))}: names are a-z and 0-9, at most 20; values are plain text."
        )
    return dict(found)
