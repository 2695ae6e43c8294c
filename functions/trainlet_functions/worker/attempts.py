"""One attempt on this worker: prepare, start the children, keep the lease, hear them out, end it.

Whatever happens, three things hold at the end: no process of the attempt is left, everything it printed was sent, and the
API was told once how it ended, unless the attempt was fenced: then nothing more is written.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import sys
import threading
import time
from typing import Any, Literal

from trainlet.client import ApiUnreachable, FencedError
from trainlet.client.errors import ApiFailed
from trainlet.client.stores import open_store
from trainlet.core import artifacts, bundles
from trainlet.core.clocks import Clock
from trainlet.core.errors import AccessError, PlatformError, TrainletError, UserError
from trainlet.core.wire import (
    CheckpointNote,
    ClaimReply,
    ErrorInfo,
    FinishRequest,
    HeartbeatReply,
    HeartbeatRequest,
    StopCode,
)
from trainlet_functions import environments, processes, secrets
from trainlet_functions.child.orders import Order
from trainlet_functions.worker import output as outputs
from trainlet_functions.worker.api import Api
from trainlet_functions.worker.meter import Meter
from trainlet_functions.worker.nurseries import MARK, Child, Nursery
from trainlet_functions.worker.settings import WorkerSettings

LOG_FLUSH_S = 60.0
FINISH_S = 60.0
ORPHAN_FINISH_S = 5.0
MEMORY_EVERY_S = 0.25

Outcome = Literal["succeeded", "failed", "preempted", "canceled"]


class Attempt:
    """Runs to its end in `run`; `stop` may be called from other threads and from signal handlers."""

    def __init__(self, settings: WorkerSettings, api: Api, claim: ClaimReply, clock: Clock) -> None:
        self._settings = settings
        self._api = api
        self._claim = claim
        self._key = claim.task.key
        self._meter = Meter(claim, settings.folder, clock)
        self._store = open_store(claim.store_url)
        self._bundle_dir = settings.home / "cache" / "bundles" / claim.spec.bundle
        self._scratch = settings.folder / "scratch" / f"{self._key}.{claim.epoch}"
        self._masker = secrets.Masker(())
        self._children: list[Child] = []
        self._fenced = threading.Event()
        self._over = threading.Event()
        self._news = threading.Event()
        self._started = False
        self._stop_code: StopCode | None = None
        self._stop_reason = ""
        self._stop_by = float("inf")
        self._lock = threading.Lock()
        self._messages: dict[int, dict[str, Any]] = {}
        self._metrics: dict[str, float] = {}
        self._progress: dict[str, Any] | None = None
        self._checkpoints: list[CheckpointNote] = []
        self._resumed_from: int | None = None
        self._peak_bytes = 0
        self._memory_error: ErrorInfo | None = None
        self._output = outputs.Output(self._send_logs, self._mask)

    # -- called from outside

    def stop(self, code: StopCode, reason: str, *, grace_s: float | None = None) -> None:
        """Ask the children to save and end; after the grace they are killed."""
        grace = self._claim.spec.grace_s if grace_s is None else grace_s
        self._stop_by = min(self._stop_by, time.monotonic() + grace)
        if self._stop_code is None:
            self._stop_code, self._stop_reason = code, reason
            for child in self._children:
                child.ask_to_stop(code)

    def run(self, nursery: Nursery | None) -> Nursery | None:
        """Run the attempt; returns the warm process to use next."""
        beating = threading.Thread(target=self._beat, name="heartbeat", daemon=True)
        beating.start()
        try:
            finish, nursery = self._work(nursery)
        finally:
            # Set only after the lease has been kept to the very end of the work.
            self._kill_everything(nursery)
        if self._fenced.is_set():
            self._output.abandon()
        else:
            self._output.close(LOG_FLUSH_S)
        self._over.set()
        self._news.set()
        beating.join()
        self._end(finish)
        artifacts.remove_scratch(self._scratch)
        return nursery

    # -- the work

    def _work(self, nursery: Nursery | None) -> tuple[FinishRequest, Nursery | None]:
        try:
            nursery = self._prepare(nursery)
            self._start(nursery)
        except UserError as error:
            return self._failed(ErrorInfo(kind="user", type=type(error).__name__, message=str(error))), nursery
        except (PlatformError, OSError) as error:
            message = f"The attempt could not start: {error}"
            return self._failed(ErrorInfo(kind="platform", type=type(error).__name__, message=message)), nursery
        readers = [threading.Thread(target=self._hear, args=(child,), daemon=True) for child in self._children]
        pumps = [
            threading.Thread(
                target=outputs.pump, args=(child.rank, child.stdout, child.stderr, self._output), daemon=True
            )
            for child in self._children
        ]
        for thread in readers + pumps:
            thread.start()
        self._watch()
        self._kill_everything(nursery)
        for thread in readers + pumps:
            thread.join(LOG_FLUSH_S)
        for child in self._children:
            os.close(child.stop)
        return self._outcome(), nursery

    def _prepare(self, nursery: Nursery | None) -> Nursery:
        """Fetch the code and its environment, and have a warm process with its imports."""
        spec = self._claim.spec
        if not self._bundle_dir.exists():
            try:
                data = self._store.get(bundles.bundle_key(spec.bundle))
            except FileNotFoundError:
                raise UserError(f"The store has no bundle {spec.bundle[:12]}; submit the step again.") from None
            self._bundle_dir.parent.mkdir(parents=True, exist_ok=True)
            bundles.extract(data, spec.bundle, self._bundle_dir)
        self._child_environment = self._environment()
        python = sys.executable
        if spec.packages_lock is not None:
            lock = (self._bundle_dir / bundles.LOCK).read_text()
            self._output.say("installing the locked packages (once per machine)")
            python = str(environments.install(self._settings.home, lock))
        if nursery is not None and (nursery.key != (python, spec.imports) or not nursery.alive()):
            nursery.close()
            nursery = None
        if nursery is None:
            nursery = Nursery.of_worker(self._settings.worker, python, spec.imports)
        nursery.wait_ready()
        return nursery

    def _environment(self) -> dict[str, str]:
        """Return the complete environment of the children, but for their ranks."""
        spec = self._claim.spec
        environment = {name: value for name, value in os.environ.items() if not name.startswith("TRAINLET_")}
        environment |= {
            MARK: self._settings.worker,
            "TRAINLET_HOME": str(self._settings.home),
            "TRAINLET_RUN": self._claim.task.run_id,
            "TRAINLET_TASK": self._key,
            "TRAINLET_EPOCH": str(self._claim.epoch),
            "PYTHONUNBUFFERED": "1",
        }
        values: list[str] = []
        for name in spec.secrets:
            value = secrets.lookup(self._settings.home, name)
            environment[secrets.variable(name)] = value
            values.append(value)
        self._masker = secrets.Masker(values)
        return environment

    def _start(self, nursery: Nursery) -> None:
        spec, devices = self._claim.spec, self._claim.devices
        port = _free_port() if spec.ranks > 1 else 0
        for rank in range(spec.ranks):
            own = [devices[rank]] if spec.ranks > 1 and len(devices) == spec.ranks else devices
            environment = dict(self._child_environment)
            real = [device.uuid for device in own if not device.virtual]
            environment["CUDA_VISIBLE_DEVICES"] = ",".join(real)
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
                bundle_dir=str(self._bundle_dir),
                scratch_dir=str(self._scratch / str(rank)),
                store_url=self._claim.store_url,
                environment=environment,
            )
            child = nursery.start(order)
            self._children.append(child)
            if self._stop_code is not None:
                child.ask_to_stop(self._stop_code)

    def _watch(self) -> None:
        """Wait until every child has ended; end them when one fails, when fenced, and when the grace is over."""
        limit = self._claim.spec.resources.memory_bytes
        next_look = 0.0
        while not all(child.ended.is_set() for child in self._children):
            next(child for child in self._children if not child.ended.is_set()).ended.wait(0.05)
            now = time.monotonic()
            overdue = now > self._stop_by
            if self._fenced.is_set() or overdue or self._rank_failed() or self._memory_error is not None:
                self._signal(signal.SIGKILL)
            if now >= next_look:
                next_look = now + MEMORY_EVERY_S
                used = sum(processes.memory_of_tree(child.pid) for child in self._children if not child.ended.is_set())
                self._peak_bytes = max(self._peak_bytes, used)
                if limit is not None and used > limit:
                    self._memory_error = ErrorInfo(
                        kind="memory",
                        type="MemoryLimit",
                        message=f"The step used {_gib(used)} and may use memory={_gib(limit)}.",
                        hint="Raise memory= on the step, or use less.",
                    )

    def _rank_failed(self) -> bool:
        """Say whether one rank ended badly while others still run."""
        if len(self._children) < 2:
            return False
        ended = [child for child in self._children if child.ended.is_set()]
        return any(
            self._messages.get(child.rank, {}).get("type") != "result" for child in ended if child.status != 0
        ) or any(self._messages.get(child.rank, {}).get("type") == "error" for child in ended)

    def _signal(self, number: int) -> None:
        for child in self._children:
            if not child.ended.is_set():
                with contextlib.suppress(OSError):
                    os.killpg(child.pid, number)
                with contextlib.suppress(OSError):
                    os.kill(child.pid, number)

    def _kill_everything(self, nursery: Nursery | None) -> None:
        """Kill every process that the attempt left, however it hid, but for the warm process."""
        keep = {os.getpid(), nursery.pid if nursery is not None else 0}
        processes.kill_descendants(keep, MARK, self._settings.worker)

    # -- what the children say

    def _hear(self, child: Child) -> None:
        buffered = b""
        while True:
            try:
                data = os.read(child.report, 1 << 16)
            except OSError:
                data = b""
            if not data:
                break
            buffered += data
            *lines, buffered = buffered.split(b"\n")
            for line in lines:
                with contextlib.suppress(ValueError, KeyError, TypeError):  # user code may write into the pipe
                    self._take(child.rank, json.loads(line))
        os.close(child.report)

    def _take(self, rank: int, message: dict[str, Any]) -> None:
        kind = message["type"]
        if kind in ("result", "error", "stopped"):
            self._messages[rank] = message
            return
        if rank != 0:
            return
        with self._lock:
            if kind == "started":
                self._started = True
                self._meter.running()
                self._news.set()
            elif kind == "metrics":
                self._metrics |= {str(name): float(value) for name, value in message["values"].items()}
            elif kind == "progress":
                self._progress = {name: message[name] for name in ("done", "total", "message")}
            elif kind == "checkpoint":
                fields = {name: message[name] for name in CheckpointNote.model_fields if name in message}
                self._checkpoints.append(CheckpointNote.model_validate(fields))
                self._news.set()
            elif kind == "restored":
                self._resumed_from = int(message["step"])
            elif kind == "warning":
                self._output.say(str(message["message"]), rank)

    # -- the lease

    def _beat(self) -> None:
        """Read the meter every second and renew the lease as often as the API asked, until the attempt is over."""
        next_beat = time.monotonic()
        while not self._over.is_set() and not self._fenced.is_set():
            usage = self._meter.read()
            if time.monotonic() >= next_beat or self._news.is_set():
                self._news.clear()
                next_beat = time.monotonic() + self._claim.heartbeat_s
                with self._lock:
                    request = self._heartbeat_request(usage)
                try:
                    self._obey(self._api.heartbeat(self._key, self._claim.epoch, self._claim.token, request))
                except (FencedError, AccessError):
                    self._fenced.set()
                    self._output.abandon()
                except (ApiUnreachable, ApiFailed):
                    self._checkpoints_back(request)
                    if self._api.orphaned():
                        self.stop("preempted", "the platform is gone; continue when it is back")
                except TrainletError as error:
                    self._checkpoints_back(request)
                    print(f"heartbeat of {self._key} refused: {error}", file=sys.stderr)
            self._news.wait(min(1.0, max(0.05, next_beat - time.monotonic())))

    def _heartbeat_request(self, usage: list[Any]) -> HeartbeatRequest:
        request = HeartbeatRequest(
            worker=self._settings.worker,
            usage=usage,
            progress=self._progress,
            metrics=dict(self._metrics),
            checkpoints=list(self._checkpoints),
            started=self._started,
            resumed_from_step=self._resumed_from,
        )
        self._progress, self._metrics, self._checkpoints = None, {}, []
        return request

    def _checkpoints_back(self, request: HeartbeatRequest) -> None:
        """Keep the news that could not be delivered for the next heartbeat."""
        with self._lock:
            self._checkpoints = [*request.checkpoints, *self._checkpoints]
            self._metrics = {**request.metrics, **self._metrics}
            self._progress = self._progress or request.progress

    def _obey(self, reply: HeartbeatReply) -> None:
        if reply.directive == "stop" and reply.code is not None and self._stop_code is None:
            self._output.say(f"stopping after a checkpoint: {reply.reason}")
            self.stop(reply.code, reply.reason)

    def _send_logs(self, request: Any) -> int:
        if self._fenced.is_set():
            raise FencedError("the attempt is fenced")
        return self._api.append_logs(self._key, self._claim.epoch, self._claim.token, request)

    def _mask(self, text: str) -> str:
        return self._masker.mask(text)

    # -- the end

    def _outcome(self) -> FinishRequest:
        if self._memory_error is not None:
            return self._failed(self._memory_error)
        messages = [self._messages.get(child.rank) for child in self._children]
        if all(message is not None and message["type"] == "result" for message in messages):
            assert messages[0] is not None
            return self._request("succeeded", output=messages[0]["value"])
        for child, message in zip(self._children, messages, strict=True):
            if message is not None and message["type"] == "error":
                error = ErrorInfo.model_validate(message["error"])
                place = f" (rank {child.rank})" if len(self._children) > 1 else ""
                return self._failed(error.model_copy(update={"message": self._mask(error.message) + place}))
        if self._stop_code is not None:
            hurried = (
                "" if any(m is not None and m["type"] == "stopped" for m in messages) else "; it did not save in time"
            )
            return self._request(self._stop_outcome(), reason=self._stop_reason + hurried)
        for message in messages:
            if message is not None and message["type"] == "stopped":
                outcome: Outcome = "preempted" if message["code"] in ("preempted", "fenced") else "canceled"
                return self._request(outcome, reason=message["message"] or "the step stopped itself")
        broken = next(child for child, message in zip(self._children, messages, strict=True) if message is None)
        return self._failed(self._broken(broken))

    def _stop_outcome(self) -> Outcome:
        return "preempted" if self._stop_code == "preempted" else "canceled"

    def _broken(self, child: Child) -> ErrorInfo:
        """Explain a child that ended without a word."""
        status = child.status or 0
        rank = f" (rank {child.rank})" if len(self._children) > 1 else ""
        if status >= 0:
            return ErrorInfo(
                kind="user",
                type="ExitedEarly",
                message=f"The step's process exited with code {status} without a result{rank}.",
                hint="Something called os._exit or ended the interpreter; look at the last log lines.",
            )
        name = signal.Signals(-status).name
        memory = f" Its peak was {_gib(self._peak_bytes)}." if self._peak_bytes else ""
        likely = " Probably the machine ran out of memory." if -status == signal.SIGKILL else ""
        return ErrorInfo(
            kind="memory" if -status == signal.SIGKILL else "user",
            type="Killed",
            message=f"The step's process was killed by signal {-status} ({name}){rank}.{likely}{memory}",
            hint="Set memory= on the step to get a clear limit, or look at the last log lines.",
        )

    def _failed(self, error: ErrorInfo) -> FinishRequest:
        return self._request("failed", error=error)

    def _request(self, outcome: Outcome, **fields: Any) -> FinishRequest:
        return FinishRequest(worker=self._settings.worker, outcome=outcome, **fields)

    def _end(self, finish: FinishRequest) -> None:
        """Tell the API until it has heard; a platform that is gone for good finds the usage in the spool."""
        if self._fenced.is_set():
            self._meter.forget()
            return
        with self._lock:
            finish = finish.model_copy(
                update={
                    "usage": self._meter.close(),
                    "metrics": dict(self._metrics),
                    "checkpoints": list(self._checkpoints),
                    "progress": self._progress,
                }
            )
        deadline = time.monotonic() + (ORPHAN_FINISH_S if self._api.orphaned() else FINISH_S)
        pause_s = 0.1
        while True:
            try:
                self._api.finish(self._key, self._claim.epoch, self._claim.token, finish)
                self._meter.forget()
                return
            except (FencedError, AccessError):
                self._meter.forget()
                return
            except (ApiUnreachable, ApiFailed) as error:
                if time.monotonic() > deadline and self._api.parent_gone():
                    print(
                        f"the end of {self._key} could not be told ({error}); the usage stays spooled", file=sys.stderr
                    )
                    return
            except TrainletError as error:
                finish = self._refused(finish, error)
            time.sleep(pause_s)
            pause_s = min(pause_s * 2, 2.0)

    def _refused(self, finish: FinishRequest, error: TrainletError) -> FinishRequest:
        """Turn an end that the API will never take (a result too big, say) into a failure that says so."""
        message = f"The result was refused: {error}"
        info = ErrorInfo(kind="platform", type=type(error).__name__, message=message[:4000])
        return finish.model_copy(update={"outcome": "failed", "output": None, "error": info})


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _gib(size_bytes: int) -> str:
    return f"{size_bytes / 2**30:.2f} GiB" if size_bytes >= 2**30 else f"{size_bytes / 2**20:.0f} MiB"
