"""One attempt on this worker: prepare, start the children, watch them, end it.

Whatever happens, three things hold at the end: no process of the attempt is left, everything it printed was sent, and the
API was told once how it ended, unless the attempt was fenced: then nothing more is written.
"""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Sequence
from typing import Protocol

from trainlet.client.stores import open_store
from trainlet.core import artifacts, bundles, traces
from trainlet.core.clocks import Clock
from trainlet.core.errors import TrainletError, UserError
from trainlet.core.wire import ClaimReply, ErrorInfo, FinishRequest, StopCode
from trainlet_functions import environments, journals, processes, secrets
from trainlet_functions.child.orders import Order
from trainlet_functions.worker import checkouts, endings
from trainlet_functions.worker import output as outputs
from trainlet_functions.worker.api import Api
from trainlet_functions.worker.leases import Lease
from trainlet_functions.worker.meter import Meter
from trainlet_functions.worker.nurseries import MARK, Child, Nursery
from trainlet_functions.worker.reports import Reports
from trainlet_functions.worker.samples import Sampler
from trainlet_functions.worker.savers import Savers
from trainlet_functions.worker.settings import WorkerSettings

_LOG = logging.getLogger(__name__)
JOIN_S = 60.0
MEMORY_EVERY_S = 0.25
SILENT_S = 1.0  # how long after its end a child's last report may still be on its way
EXIT_S = 10.0  # how long a child may take to clean up after it has reported


class Teller(Protocol):
    """Somebody who hears of each end that the training API has taken."""

    def ended(self, claim: ClaimReply, finish: FinishRequest) -> None:
        """Pass it on; returns at once."""


class Attempt:
    """Runs to its end in `run`; `stop` may be called from other threads."""

    def __init__(
        self, settings: WorkerSettings, api: Api, claim: ClaimReply, clock: Clock, tellers: Sequence[Teller] = ()
    ) -> None:
        self._settings = settings
        self._claim = claim
        self._tellers = tellers
        self._key = claim.task.key
        self._log = journals.of_attempt(_LOG, claim)
        self._store = open_store(claim.store_url)
        self._scratch = settings.folder / "scratch" / f"{self._key}.{claim.epoch}"
        self._masker = secrets.Masker(())
        self._children: list[Child] = []
        self._silent_since: dict[int, float] = {}
        self._first_broken: int | None = None
        self._savers: Savers | None = None
        self._stop: endings.Stop | None = None
        self._stop_by = float("inf")
        self._peak_bytes = 0
        self._memory_error: ErrorInfo | None = None
        meter = Meter(claim, settings.folder, clock)
        sampler = Sampler(claim, settings.folder, clock)
        self._lease = Lease(api, claim, settings.worker, meter, sampler, on_stop=self._obey, on_fenced=self._abandon)
        self._output = outputs.Output(self._lease.send_logs, self._mask, self._log)
        self._reports = Reports(meter.running, self._lease.hurry, self._output.say, self._mask)
        limit_s = claim.spec.timeout_s
        # The API tells when the time is up. Without an API the attempt must not run for ever.
        self._deadline = float("inf") if limit_s is None else time.monotonic() + limit_s + claim.lease_s

    # -- called from outside

    def stop(self, code: StopCode, reason: str, *, grace_s: float | None = None) -> None:
        """Ask the children to save and end; after the grace they are killed."""
        grace = self._claim.spec.grace_s if grace_s is None else grace_s
        self._stop_by = min(self._stop_by, time.monotonic() + grace)
        if self._stop is None:
            self._stop = endings.Stop(code, reason)
            if self._savers is not None:
                self._savers.stop(code)
            for child in self._children:
                child.ask_to_stop(code)
        if self._savers is not None:
            self._savers.hurry(code, grace)

    def run(self, nursery: Nursery | None) -> Nursery | None:
        """Run the attempt; returns the warm process to use next."""
        self._log.info("attempt %d of %s begins", self._claim.epoch, self._key)
        self._lease.start(self._reports)
        try:
            finish, nursery = self._work(nursery)
        except Exception as error:  # noqa: BLE001 - a fault of this worker must end the attempt, not the worker
            self._log.exception("the worker failed")
            finish = self._platform_failed(f"The worker failed: {type(error).__name__}: {error}", error)
        self._kill_everything(nursery)
        sent = self._output.close(self._lease.worth_waiting)
        self._lease.stop()
        told = False
        if sent or self._lease.fenced:
            told = self._lease.finish(finish)
        else:
            self._lease.leave("lines of its log are left")  # an end without them would lose them for good
        for teller in self._tellers if told else ():
            teller.ended(self._claim, finish)
        words = finish.reason or (finish.error.message.splitlines() or [""])[0] if finish.error else finish.reason
        self._log.info("attempt %d of %s ended: %s %s", self._claim.epoch, self._key, finish.outcome, words)
        artifacts.remove_scratch(self._scratch)
        return nursery

    def _obey(self, code: StopCode, reason: str) -> None:
        if self._stop is None:
            self._output.say(f"stopping after a checkpoint: {reason}")
            self.stop(code, reason)

    def _abandon(self) -> None:
        self._output.abandon()

    def _mask(self, text: str) -> str:
        return self._masker.mask(text)

    # -- the work

    def _work(self, nursery: Nursery | None) -> tuple[FinishRequest, Nursery | None]:
        try:
            nursery, bundle = self._prepare(nursery)
            if self._given_up():
                return self._not_started(), nursery
            self._start(nursery, bundle)
        except UserError as error:
            info = ErrorInfo(kind="user", type=type(error).__name__, message=str(error))
            return endings.failed(self._settings.worker, info, self._mask), nursery
        except (TrainletError, OSError) as error:
            if self._given_up():
                return self._not_started(), nursery
            return self._platform_failed(f"The attempt could not start: {error}", error), nursery
        threads = [threading.Thread(target=self._reports.hear, args=(child,), daemon=True) for child in self._children]
        threads += [
            threading.Thread(target=outputs.pump, args=(one.rank, one.stdout, one.stderr, self._output), daemon=True)
            for one in self._children
        ]
        for thread in threads:
            thread.start()
        self._watch()
        self._kill_everything(nursery)
        for thread in threads:
            thread.join(JOIN_S)
        saved = self._end_saving()
        for child in self._children:
            os.close(child.stop)
        return self._ended(saved), nursery

    def _end_saving(self) -> bool:
        """Have the savers finish; returns whether what the children staged is committed.

        What was only staged counts when the children could not say themselves: a stop that they did not obey, a death.
        """
        savers, self._savers = self._savers, None
        if savers is None:
            return False
        silent = any(self._reports.last(child.rank) is None for child in self._children)
        reason = self._stop.code if self._stop is not None else "lost"
        within_s = None if self._stop is None else self._stop_by - time.monotonic()
        saved = not self._lease.fenced and savers.end(reason, staged=silent, within_s=within_s)
        savers.close()
        return saved

    def _given_up(self) -> bool:
        return self._lease.fenced or self._stop is not None

    def _not_started(self) -> FinishRequest:
        stop = self._stop or endings.Stop("preempted", "fenced")
        outcome: endings.Outcome = "preempted" if stop.code == "preempted" else "canceled"
        return FinishRequest(worker=self._settings.worker, outcome=outcome, reason=f"{stop.reason}; it had not started")

    def _platform_failed(self, message: str, error: Exception) -> FinishRequest:
        info = ErrorInfo(kind="platform", type=type(error).__name__, message=message)
        return endings.failed(self._settings.worker, info, self._mask)

    def _prepare(self, nursery: Nursery | None) -> tuple[Nursery, str]:
        """Fetch the code and its environment, and have a warm process with its imports."""
        spec = self._claim.spec
        self._child_environment = self._environment()
        bundle = checkouts.unpacked(self._store, self._settings.home, spec.bundle, self._scratch)
        python = sys.executable
        if spec.packages_lock is not None:
            lock = (bundle / bundles.LOCK).read_text()
            self._output.say("installing the locked packages (once per machine)")
            python = str(
                environments.install(self._settings.home, lock, cache=self._settings.cache, given_up=self._given_up)
            )
        if nursery is not None and (nursery.key != (python, spec.imports) or not nursery.alive()):
            nursery.close()
            nursery = None
        if nursery is None:
            nursery = Nursery.of_worker(self._settings.worker, python, spec.imports)
        return nursery.ready_or_plain(self._given_up), str(bundle)

    def _environment(self) -> dict[str, str]:
        """Return the complete environment of the children, but for their ranks."""
        spec, task = self._claim.spec, self._claim.task
        environment = {name: value for name, value in os.environ.items() if not name.startswith("TRAINLET_")}
        environment |= {
            MARK: self._settings.worker,
            "TRAINLET_HOME": str(self._settings.home),
            "TRAINLET_RUN": task.run_id,
            "TRAINLET_TASK": self._key,
            "TRAINLET_EPOCH": str(self._claim.epoch),
            traces.ENVIRONMENT: str(traces.of_attempt(task.run_id, task.key, task.labels, self._claim.epoch)),
            "PYTHONUNBUFFERED": "1",
        }
        values = secrets.environment(self._settings.home, spec.secrets)
        self._masker = secrets.Masker(values.values())
        return environment | values

    def _start(self, nursery: Nursery, bundle: str) -> None:
        spec, devices = self._claim.spec, self._claim.devices
        port = _free_port() if spec.ranks > 1 else 0
        savers = self._savers = Savers(nursery, self._claim, self._child_environment, self._reports)
        self._reports.on_checkpointing = savers.begin
        share = len(devices) // spec.ranks
        # As torchrun does, every rank sees all devices: LOCAL_RANK is an index into what is seen.
        seen = ",".join(device.uuid for device in devices if not device.virtual)
        for rank in range(spec.ranks):
            own = devices[rank * share : (rank + 1) * share]
            environment = {**self._child_environment, "CUDA_VISIBLE_DEVICES": seen}
            if spec.ranks > 1:
                environment |= {
                    "RANK": str(rank),
                    "LOCAL_RANK": str(rank),
                    "WORLD_SIZE": str(spec.ranks),
                    "LOCAL_WORLD_SIZE": str(spec.ranks),
                    "MASTER_ADDR": "127.0.0.1",
                    "MASTER_PORT": str(port),
                }
            order = Order(
                run_id=self._claim.task.run_id,
                task=self._key,
                node=self._claim.task.node,
                epoch=self._claim.epoch,
                rank=rank,
                spec=spec,
                args=self._claim.args,
                devices=tuple(own),
                bundle_dir=bundle,
                scratch_dir=str(self._scratch / str(rank)),
                store_url=self._claim.store_url,
                environment=environment,
            )
            staging, line = savers.staging(rank)
            try:
                child = nursery.start(order, staging)
            finally:
                os.close(line)
            self._children.append(child)
            if self._stop is not None:
                child.ask_to_stop(self._stop.code)

    # -- watching

    def _watch(self) -> None:
        """Wait until every child has ended; end them when one fails, when fenced, and when the grace is over."""
        next_look = 0.0
        while going := [child for child in self._children if not child.ended.is_set()]:
            going[0].ended.wait(0.05)
            now = time.monotonic()
            if now > self._deadline:
                self.stop("timeout", f"it ran longer than timeout={self._claim.spec.timeout_s:g} s")
            self._follow_one_that_stopped()
            over = now > self._stop_by or self._memory_error is not None or self._lease.fenced
            if over or self._a_rank_failed(now):
                self._kill(going)
            self._kill([child for child in going if self._reports.seconds_since_last(child.rank) > EXIT_S])
            if now >= next_look:
                next_look = now + MEMORY_EVERY_S
                self._look_at_memory(going)

    def _follow_one_that_stopped(self) -> None:
        """A rank that stopped by itself leaves the others waiting for it: they stop too."""
        if self._stop is None and len(self._children) > 1:
            for child in self._children:
                last = self._reports.last(child.rank)
                if last is not None and last["type"] == "stopped":
                    self.stop("preempted", str(last["message"]) or f"rank {child.rank} stopped itself")
                    return

    def _a_rank_failed(self, now: float) -> bool:
        """Say whether one rank ended without a result while others still run."""
        if len(self._children) < 2:
            return False
        for child in self._children:
            last = self._reports.last(child.rank)
            if last is not None:
                if last["type"] == "error":
                    return True
            elif child.ended.is_set() and now - self._silent_since.setdefault(child.rank, now) > SILENT_S:
                self._first_broken = child.rank if self._first_broken is None else self._first_broken
                return True
        return False

    def _look_at_memory(self, going: list[Child]) -> None:
        used = sum(processes.memory_of_tree(child.pid) for child in going)
        self._peak_bytes = max(self._peak_bytes, used)
        limit = self._claim.spec.resources.memory_bytes
        if limit is not None and used > limit:
            self._memory_error = endings.out_of_memory(used, limit)

    def _kill(self, children: list[Child]) -> None:
        for child in children:
            child.kill_group()
            with contextlib.suppress(OSError):
                os.kill(child.pid, signal.SIGKILL)

    def _kill_everything(self, nursery: Nursery | None) -> None:
        """Kill every process that the attempt left, however it hid, but for the warm process."""
        keep = {os.getpid(), nursery.pid if nursery is not None else 0}
        if self._savers is not None and not self._lease.fenced:
            keep |= self._savers.pids()
        if not processes.kill_descendants(keep, MARK, self._settings.worker):
            self._log.error("processes of %s cannot be killed; they stay in the kernel", self._key)
        processes.reap(keep)

    def _ended(self, saved: bool) -> FinishRequest:
        if self._memory_error is not None:
            return endings.failed(self._settings.worker, self._memory_error)
        ranks = [endings.Ended(one.rank, one.status or 0, self._reports.last(one.rank)) for one in self._children]
        return endings.finish(
            self._settings.worker,
            ranks,
            first=self._first_broken,
            stop=self._stop,
            saved=saved,
            peak_bytes=self._peak_bytes,
            mask=self._mask,
        )


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
