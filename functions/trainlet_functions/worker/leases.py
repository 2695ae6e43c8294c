"""The lease of one attempt: renewed by heartbeats, metered every second, given back with the end of the attempt.

Metering has a thread of its own, so that an API that hangs cannot keep a reading from the disk. A heartbeat that is
refused means that a newer attempt owns the task: the lease is fenced, and nothing more is written.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable

from trainlet.client import ApiUnreachable, FencedError
from trainlet.client.errors import ApiFailed
from trainlet.core.errors import AccessError, TrainletError
from trainlet.core.wire import ClaimReply, ErrorInfo, FinishRequest, HeartbeatRequest, LogsRequest, StopCode
from trainlet_functions import journals
from trainlet_functions.worker.api import Api
from trainlet_functions.worker.meter import Meter
from trainlet_functions.worker.reports import Reports
from trainlet_functions.worker.samples import Sampler

_LOG = logging.getLogger(__name__)
METER_EVERY_S = 1.0
LAST_WORDS_S = 10.0  # how much longer than `orphan_s` an orphan tries to tell its end


class Lease:
    """Keeps the attempt alive at the API from `start` to `finish`."""

    def __init__(
        self,
        api: Api,
        claim: ClaimReply,
        worker: str,
        meter: Meter,
        sampler: Sampler,
        *,
        on_stop: Callable[[StopCode, str], None],
        on_fenced: Callable[[], None],
    ) -> None:
        self._api = api
        self._key, self._epoch, self._token = claim.task.key, claim.epoch, claim.token
        self._heartbeat_s = claim.heartbeat_s
        self._log = journals.of_attempt(_LOG, claim)
        self._worker = worker
        self._meter = meter
        self._sampler = sampler
        self._on_stop = on_stop
        self._on_fenced = on_fenced
        self._reports: Reports | None = None
        self._fenced = threading.Event()
        self._over = threading.Event()
        self._news = threading.Event()
        self._threads = [
            threading.Thread(target=self._count, name="meter", daemon=True),
            threading.Thread(target=self._beat, name="heartbeat", daemon=True),
        ]

    @property
    def fenced(self) -> bool:
        """Say whether the API has refused this attempt: stop at once and write nothing more."""
        return self._fenced.is_set()

    def start(self, reports: Reports) -> None:
        """Begin to meter and to renew."""
        self._reports = reports
        for thread in self._threads:
            thread.start()
        self._sampler.start()

    def hurry(self) -> None:
        """Renew now: there are news."""
        self._news.set()

    def stop(self) -> None:
        """End the heartbeats; `finish` says the rest."""
        self._over.set()
        self._news.set()
        for thread in self._threads:
            thread.join()
        self._sampler.stop()

    def send_logs(self, request: LogsRequest) -> int:
        """Append lines; raises FencedError when nobody wants them any more."""
        if self.fenced:
            raise FencedError("the attempt is fenced")
        try:
            return self._api.append_logs(self._key, self._epoch, self._token, request)
        except FencedError:
            self._fence()
            raise

    def worth_waiting(self) -> bool:
        """Say whether the API may still want to hear of the attempt: not fenced, and somebody is there or may come back."""
        return not self.fenced and not self._api.orphaned(LAST_WORDS_S)

    def finish(self, finish: FinishRequest) -> bool:
        """Tell the API how it ended until it has heard; without an API the usage stays spooled for the next one.

        Returns whether the API took it.
        """
        if self.fenced:
            self._forget()
            return False
        news = self._reports.take_news() if self._reports is not None else None
        finish = finish.model_copy(update={"usage": self._meter.close(), "samples": self._sampler.all()})
        if news is not None:
            finish = finish.model_copy(
                update={
                    "metrics": news.metrics,
                    "checkpoints": list(news.checkpoints),
                    "progress": news.progress,
                }
            )
        pause_s = 0.1
        while True:
            try:
                self._api.finish(self._key, self._epoch, self._token, finish)
                self._forget()
                return True
            except (FencedError, AccessError):
                self._forget()
                return False
            except (ApiUnreachable, ApiFailed) as error:
                if not self.worth_waiting():
                    self.leave(str(error))
                    return False
            except TrainletError as error:
                finish = _refused(finish, error)
            time.sleep(pause_s)
            pause_s = min(pause_s * 2, 2.0)

    def leave(self, why: str) -> None:
        """Go without having told the end: the task is given to another worker when the lease has run out."""
        self._log.error("the end of %s could not be told (%s); the usage stays spooled", self._key, why)

    def _forget(self) -> None:
        self._meter.forget()
        self._sampler.forget()

    def _fence(self) -> None:
        self._fenced.set()
        self._log.warning("attempt %d of %s is fenced: a newer one owns the task", self._epoch, self._key)
        self._on_fenced()

    def _count(self) -> None:
        while not self._over.is_set() and not self.fenced:
            self._meter.read()
            self._over.wait(METER_EVERY_S)

    def _beat(self) -> None:
        assert self._reports is not None
        next_beat = time.monotonic()
        while not self._over.is_set() and not self.fenced:
            if time.monotonic() >= next_beat or self._news.is_set():
                self._news.clear()
                next_beat = time.monotonic() + self._heartbeat_s
                self._renew(self._reports)
            self._news.wait(max(0.02, next_beat - time.monotonic()))

    def _renew(self, reports: Reports) -> None:
        news = reports.take_news()
        if news.checkpoints:
            self._meter.saved()
        request = HeartbeatRequest(
            worker=self._worker,
            usage=self._meter.read(),
            samples=self._sampler.due(),
            progress=news.progress,
            metrics=news.metrics,
            checkpoints=list(news.checkpoints),
            started=reports.started,
            resumed_from_step=reports.resumed_from,
        )
        try:
            reply = self._api.heartbeat(self._key, self._epoch, self._token, request)
        except (FencedError, AccessError):
            self._fence()
            return
        except TrainletError as error:
            reports.give_back(news)
            if not isinstance(error, ApiUnreachable):
                self._log.warning("the heartbeat of %s failed: %s", self._key, error)
            if self._api.orphaned():
                self._on_stop("preempted", "the platform is gone; continue when it is back")
            return
        self._sampler.heard(request.samples)
        if reply.directive == "stop" and reply.code is not None:
            self._on_stop(reply.code, reply.reason)


def _refused(finish: FinishRequest, error: TrainletError) -> FinishRequest:
    """Turn an end that the API will never take (a result too big, say) into a failure that says so."""
    message = f"The result was refused: {error}"
    info = ErrorInfo(kind="platform", type=type(error).__name__, message=message[:4000])
    return finish.model_copy(
        update={"outcome": "failed", "output": None, "error": info, "progress": None, "metrics": {}, "checkpoints": []}
    )
