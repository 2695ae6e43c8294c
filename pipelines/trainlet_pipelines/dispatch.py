"""The dispatch task: the light pod of a compiled GPU step that waits while the work is done elsewhere.

`python -m trainlet_pipelines.dispatch --executor-input {{$}} --step <json>`. It creates the task at the training API or
attaches to it (the key comes from the task root, which is the same over retries), prints the task's lines, and writes
the outputs. The same program evaluates conditions, the items of loops, and values for native components. Exit codes:
0 done, 1 the step failed, 75 the training API could not be reached, 143 the pod was told to end.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import PurePosixPath
from typing import Any

from trainlet.core import codecs, wire
from trainlet.core.clocks import SystemClock
from trainlet.core.errors import UserError
from trainlet.core.models import sha256_hex
from trainlet.core.protocols import ObjectStore
from trainlet.core.settings import Settings
from trainlet_functions import curves
from trainlet_pipelines.pods import following, inputs, leases, orders, outputs, placements, reports, stations
from trainlet_pipelines.pods.stations import say
from trainlet_pipelines.pods.taps import Tap

EXIT_TOLD = 143


def main(arguments: list[str] | None = None) -> int:
    """Do one task of a compiled pipeline."""
    return stations.run("trainlet_pipelines.dispatch", arguments, _work)


def _work(executor: inputs.ExecutorInput, order: orders.Order) -> int:
    settings = Settings.from_environment()
    if order.kind == "step":
        return _Dispatch(settings, executor, order).run()
    store = stations.store(settings)
    given = inputs.Inputs(executor, order, store, inputs.workdir())
    written = outputs.Outputs(executor, order, store)
    written.result(_evaluated(order, given, store))
    written.close()
    return stations.EXIT_DONE


def _evaluated(order: orders.Order, given: inputs.Inputs, store: ObjectStore) -> Any:
    match order.kind:
        case "condition":
            return bool(given.plain(given.value()))
        case "items":
            return [outputs.encoded_text(item, store) for item in codecs.items(given.value(), store)]
        case _:
            return given.value()


class _Dispatch:
    """One GPU step."""

    def __init__(self, settings: Settings, executor: inputs.ExecutorInput, order: orders.Order) -> None:
        root = executor.task_root()
        if root is None:
            raise UserError("KFP's executor input names no output artifact, so the task has no key. Compile it again.")
        self._executor, self._order, self._node = executor, order, root.parent.name
        self._key = f"kfp-{sha256_hex(str(root).encode())[:40]}"
        run = os.environ.get("KFP_RUN_ID") or sha256_hex(str(root.parent.parent).encode())[:16]
        self._run_id = f"kfp-{run}"
        self._pipeline = _pipeline_of(root, run)
        self._client = stations.client(settings)
        self._store = stations.store(settings)
        self._url = (os.environ.get("TRAINLET_DASHBOARD") or self._client.url).rstrip("/")
        pod = sha256_hex((os.environ.get("KFP_POD_UID") or f"{os.getpid()}").encode())[:12]
        self._lease = wire.DispatcherLease(id=f"{self._key}-{pod}", lease_s=settings.limits.dispatcher_lease_s)

    def run(self) -> int:
        """Create or attach, follow, and write the outputs; return the exit code."""
        say(f"trainlet: {self._url}/runs/{self._run_id} task {self._key}")
        body = self._body()
        labels = {"kfp.run": self._run_id.removeprefix("kfp-")}
        self._client.put_run(self._run_id, wire.RunCreate(pipeline=self._pipeline, labels=labels))
        lease = leases.Lease(self._client.url, lambda: self._client.token, self._lease, self._key)
        signal.signal(signal.SIGTERM, lambda *_: _leave(lease))
        lease.start()
        try:
            task = following.create_or_attach(self._client, self._key, body, _retry_index())
            tap = Tap(say, SystemClock(), f"trainlet logs {self._run_id}")
            task = following.Follower(self._client, tap, say).follow(task)
        finally:
            lease.close()
        return self._end(task)

    def _body(self) -> wire.TaskCreate:
        function, digest = self._order.function, self._order.digest
        if function is None or digest is None:
            raise UserError("This order names no function. Compile the pipeline again.")
        given = self._executor.inputs.parameter_values.get("task_config")
        if given:
            function, digest = self._placed(function, digest, given)
        return wire.TaskCreate(
            run_id=self._run_id,
            node=self._node,
            function=function,
            digest=digest,
            args=inputs.Inputs(self._executor, self._order, self._store, inputs.workdir()).arguments(),
            dispatcher=self._lease,
        )

    def _placed(self, function: str, digest: str, given: Any) -> tuple[str, str]:
        config = placements.TaskConfig.model_validate(json.loads(given) if isinstance(given, str) else given)
        spec = self._client.get_function(function, digest).spec
        wanted, left = placements.apply(spec, config)
        if left:
            say(f"trainlet: not applied to the GPU work: {', '.join(left)}")
        if wanted != spec:
            say(f"trainlet: as KFP asks, {wanted.name} with {wanted.resources.model_dump_json(exclude_defaults=True)}")
            self._client.put_function(wanted)
        return wanted.name, wanted.digest()

    def _end(self, task: wire.TaskView) -> int:
        usage = self._client.usage(task=self._key)
        timeline = self._client.timeline(self._key)
        went = self._client.metric_history(self._key).metrics
        numbers = reports.summary(task, usage, timeline)
        if task.state != "succeeded":
            say("\n".join([*reports.table(("what", "value"), numbers.items()), "", *reports.went(went)]))
            say(_failure(task, f"{self._url}/runs/{self._run_id}"))
            return stations.EXIT_FAILED
        written = outputs.Outputs(self._executor, self._order, self._store)
        written.result(task.output)
        written.metrics(numbers)
        written.document("report", reports.of_task(self._url, task, numbers, timeline, went))
        written.document("curve", curves.page(task.node, went))
        written.close()
        say(f"trainlet: {usage.gpu_seconds} GPU-seconds, {usage.cost_nano / 1e9:.6f} {usage.currency}")
        return stations.EXIT_DONE


def _pipeline_of(root: PurePosixPath, run: str) -> str:
    """Return the pipeline's name, the same for all tasks of a run: the root is `.../<pipeline>/<run>/<task>/<uuid>`."""
    return root.parents[2].name if len(root.parents) > 2 and root.parents[1].name == run else "kubeflow"


def _failure(task: wire.TaskView, url: str) -> str:
    """Return the last lines of a failed task: the traceback, what happened, what to do."""
    error = task.error or wire.ErrorInfo(kind="platform", message=task.reason)
    where = f" at {error.where}" if error.where else ""
    kind = f"{error.type}: " if error.type and task.state == "failed" else ""
    lines = [error.traceback.rstrip()] if error.traceback else []
    lines.append(f"trainlet: {task.node} {task.state}{where}: {kind}{error.message}")
    if error.hint:
        lines.append(f"trainlet: {error.hint}")
    go_on = "Retry in KFP goes on from its last checkpoint" if task.checkpoints else "Retry in KFP starts it again"
    lines.append(f"trainlet: {go_on}. More: {url}")
    return "\n".join(lines)


def _retry_index() -> int:
    """Return how often KFP has started this task before; its Retry button begins at 0 again."""
    text = os.environ.get("KFP_RETRY_INDEX", "0")
    return int(text) if text.isdigit() else 0


def _leave(lease: leases.Lease) -> None:
    lease.say_farewell()
    os.write(1, b"trainlet: this pod was told to end; the work stops after a checkpoint\n")
    os._exit(EXIT_TOLD)


if __name__ == "__main__":
    sys.exit(main())
