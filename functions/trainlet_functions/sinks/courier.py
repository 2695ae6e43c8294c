"""The courier: carries letters to sinks, each sink on its own, so that a slow or dead one holds up nobody else.

An event loop in a thread of its own serves any number of sinks at once; a sink gets its letters one after the other and
each has a time limit over all that it does. What is sent is a whole CloudEvent in structured mode, signed as Standard
Webhooks 1 has it. Redirects are not followed, answers are not read, and where to connect is decided by `addresses`.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import functools
import json
import logging
import threading
import time
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass
from typing import Any, TypeVar, cast
from urllib.parse import SplitResult

import httpx
import sqlalchemy as sa

from trainlet.core import envelopes, events, lifecycle
from trainlet.core.clocks import rfc3339
from trainlet.core.errors import PlatformError, TrainletError, UserError
from trainlet.core.sinks import SinkAnswer
from trainlet_functions.signatures import Signer
from trainlet_functions.sinks import fanout, letters, registry
from trainlet_functions.sinks.addresses import Rule
from trainlet_functions.state.database import Database
from trainlet_functions.triggers import webhooks

TIMEOUT_S = 10.0
TURN = 50  # letters that a sink gets before the others are looked at again
MOST_WAIT_S = 3600.0
_TEMPORARY = frozenset({401, 403, 404, 407, 408, 421, 423, 425, 429})  # says something of the sink, not of the letter
_LOG = logging.getLogger(__name__)
_T = TypeVar("_T")
Resolve = Callable[[str, int], Awaitable[list[str]]]


@dataclass(frozen=True, slots=True)
class _Answer:
    status: int | None
    reason: str
    wait_s: float = 0.0

    @property
    def good(self) -> bool:
        return self.status is not None and 200 <= self.status < 300


class Courier:
    """Carries what is due; `deliver_due` only sets it going."""

    def __init__(self, database: Database, signer: Signer, rule: Rule, *, resolve: Resolve | None = None) -> None:
        self._database = database
        self._signer = signer
        self._rule = rule
        self._resolve = resolve or _addresses
        self._loop = asyncio.new_event_loop()
        self._names = concurrent.futures.ThreadPoolExecutor(16, thread_name_prefix="names")
        self._loop.set_default_executor(self._names)
        self._books = concurrent.futures.ThreadPoolExecutor(2, thread_name_prefix="letters")
        self._http: httpx.AsyncClient | None = None  # made when first used: reading the CA certificates takes a while
        self._busy: dict[tuple[str, str], concurrent.futures.Future[None]] = {}
        self._begun: set[concurrent.futures.Future[Any]] = set()
        self._ending, self._ended = threading.Lock(), False
        self._thread = threading.Thread(target=self._loop.run_forever, name="courier", daemon=True)
        self._thread.start()

    def deliver_due(self) -> int:
        """Set deliveries going to each sink that something is due for and that is not being served; returns how many."""
        with self._database.read() as tx:
            sinks = letters.due_sinks(tx)
        begun = 0
        for sink in sinks:
            key = (sink.project, sink.name)
            if key not in self._busy or self._busy[key].done():
                self._busy[key] = self._begin(self._serve(sink))
                begun += 1
        return begun

    def seconds_to_next(self, at_most: float) -> float:
        """Return how long there is nothing to set going."""
        with self._database.read() as tx:
            return letters.seconds_to_next(tx, at_most)

    def settle(self) -> None:
        """Wait until what was set going is done."""
        concurrent.futures.wait(list(self._busy.values()))

    def probe(self, sink: sa.Row[Any]) -> SinkAnswer:
        """Send a test to a sink and return what it says."""
        with self._database.read() as tx:
            secrets = registry.secrets(tx, self._signer, sink)
            at = tx.now_ns
        event_id = f"{sink.name}:test.{at}"
        source, data = envelopes.source(sink.project), {"sink": sink.name}
        event = events.make(lifecycle.SINK_TEST, source, event_id, data, subject=sink.name, time=rfc3339(at))
        began = time.perf_counter()
        sent = self._send(sink.project, sink.url, secrets, event, at)
        found = self._begin(sent).result(TIMEOUT_S + 5)
        took_ms = round(1000 * (time.perf_counter() - began))
        return SinkAnswer(good=found.good, status=found.status, reason=found.reason, took_ms=took_ms)

    def check(self, project: str, url: str) -> None:
        """Raise UserError or AccessError for an address that nothing may be sent to, or that is none."""
        parts = self._rule.check(project, url)
        asked = self._begin(self._address(project, parts))
        try:
            asked.result(TIMEOUT_S)
        except (TimeoutError, OSError) as error:
            raise UserError(
                f"The name {parts.hostname!r} of the sink is not known ({error}). Correct the URL."
            ) from None

    def close(self) -> None:
        """Stop delivering; what was under way is sent again by whoever starts next."""
        with self._ending:
            self._ended = True
        for one in list(self._begun):
            one.cancel()
        with contextlib.suppress(TimeoutError):
            asyncio.run_coroutine_threadsafe(self._end(), self._loop).result(5.0)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(timeout=5.0)
        self._names.shutdown(wait=False, cancel_futures=True)
        self._books.shutdown(cancel_futures=True)  # whatever is being written down is written to its end
        if not self._thread.is_alive():
            self._loop.close()

    def _begin(self, work: Coroutine[Any, Any, _T]) -> concurrent.futures.Future[_T]:
        with self._ending:
            if self._ended:
                work.close()
                raise PlatformError("the training API is being stopped; nothing is sent any more")
            begun = asyncio.run_coroutine_threadsafe(work, self._loop)
            self._begun.add(begun)
        begun.add_done_callback(self._begun.discard)
        return begun

    async def _end(self) -> None:
        """Wait for what was cancelled, and for the tasks that the HTTP client has below it: those end by themselves."""
        if rest := asyncio.all_tasks() - {cast("asyncio.Task[Any]", asyncio.current_task())}:
            await asyncio.wait(rest)
        if self._http is not None:
            await self._http.aclose()

    async def _address(self, project: str, parts: SplitResult) -> str:
        """Return the address that may be sent to; raises AccessError when none may, OSError for an unknown name."""
        port = parts.port or (443 if parts.scheme == "https" else 80)
        return self._rule.judge(project, parts, await self._resolve(parts.hostname or "", port))

    async def _serve(self, sink: sa.Row[Any]) -> None:
        try:
            rows, secrets = await self._book(functools.partial(self._due, sink))
            for letter in rows:
                event = fanout.event_of(letter, sink.project, letter.happened_ns)
                answer = await self._send(sink.project, sink.url, secrets, event, self._database.clock.wall_ns())
                if not await self._book(functools.partial(self._note, letter, answer)):
                    return
        except asyncio.CancelledError:
            raise
        except Exception:  # noqa: BLE001 - one sink must not stop the others; its letters are still due
            _LOG.exception("sink %s of %s", sink.name, sink.project)
            await asyncio.sleep(1.0)

    async def _book(self, work: Callable[[], Any]) -> Any:
        return await self._loop.run_in_executor(self._books, work)

    def _due(self, sink: sa.Row[Any]) -> tuple[list[sa.Row[Any]], list[str]]:
        with self._database.read() as tx:
            return letters.due(tx, sink.project, sink.name, TURN), registry.secrets(tx, self._signer, sink)

    def _note(self, letter: sa.Row[Any], answer: _Answer) -> bool:
        """Write down what became of a letter; returns whether the next one may go."""
        with self._database.write() as tx:
            if answer.good:
                letters.delivered(tx, letter)
                return True
            alone = answer.status is not None and 400 <= answer.status < 500 and answer.status not in _TEMPORARY
            if answer.status == 410:
                letters.gone(tx, letter, "it answered 410 (gone); `trainlet sink resume` sends again")
                return False
            letters.failed(tx, letter, answer.reason, alone=alone, wait_s=answer.wait_s)
            return alone

    async def _send(self, project: str, url: str, secrets: list[str], event: events.Event, at_ns: int) -> _Answer:
        body = json.dumps(event.to_json(), ensure_ascii=False, separators=(",", ":")).encode()
        stamp = at_ns // 1_000_000_000
        signatures = [webhooks.standard_signature(secret, event.id, stamp, body) for secret in secrets]
        headers = {
            "Content-Type": events.STRUCTURED,
            "User-Agent": "trainlet",
            "Webhook-Id": event.id,
            "Webhook-Timestamp": str(stamp),
            "Webhook-Signature": " ".join(signatures),
        }
        try:
            async with asyncio.timeout(TIMEOUT_S):
                parts = self._rule.check(project, url)
                return await self._post(parts, await self._address(project, parts), headers, body)
        except TimeoutError:
            return _Answer(None, f"it did not answer within {TIMEOUT_S:g} s")
        except (httpx.HTTPError, OSError) as error:
            return _Answer(None, f"it cannot be reached ({type(error).__name__}: {error})")
        except TrainletError as error:
            return _Answer(None, str(error))

    async def _post(self, parts: SplitResult, address: str, headers: dict[str, str], body: bytes) -> _Answer:
        """Send to the address that was judged, with the name where HTTP and TLS have it."""
        host = f"[{address}]" if ":" in address else address
        port = "" if parts.port is None else f":{parts.port}"
        target = parts._replace(netloc=host + port).geturl()
        named = {**headers, "Host": parts.netloc}
        extensions = {"sni_hostname": parts.hostname}
        if self._http is None:
            limits = httpx.Limits(max_connections=None, max_keepalive_connections=50)
            self._http = httpx.AsyncClient(timeout=TIMEOUT_S, trust_env=False, limits=limits)
        async with self._http.stream("POST", target, content=body, headers=named, extensions=extensions) as response:
            status = response.status_code
            if 300 <= status < 400:
                return _Answer(
                    status, f"it answered {status}; redirects are not followed, so give the address it means"
                )
            return _Answer(status, f"it answered {status}", _wait_s(response.headers.get("Retry-After", "")))


def _wait_s(text: str) -> float:
    return min(MOST_WAIT_S, float(text)) if text.isascii() and text.isdecimal() and len(text) < 10 else 0.0


async def _addresses(host: str, port: int) -> list[str]:
    found = await asyncio.get_running_loop().getaddrinfo(host, port, proto=6)
    return list(dict.fromkeys(str(one[4][0]) for one in found))
