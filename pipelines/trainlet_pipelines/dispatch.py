"""The dispatch task: the light pod of a compiled step that waits while the work is done elsewhere.

`python -m trainlet_pipelines.dispatch --executor-input {{$}} --step <json>`. It reads KFP's executor input, creates the
task at the training API or attaches to it (the key comes from the task root, which is the same over retries), prints the
task's log lines, and writes the encoded result to the output parameter. The same program evaluates conditions and the
items of loops. Exit codes: 0 done, 1 the step failed, 75 the training API could not be reached.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from trainlet.client import ApiUnreachable, connect
from trainlet.client.http import Client
from trainlet.client.stores import open_store
from trainlet.core import codecs, graphs, wire
from trainlet.core.errors import TrainletError, UserError
from trainlet.core.models import sha256_hex
from trainlet.core.protocols import ObjectStore
from trainlet.core.settings import Settings
from trainlet_pipelines.compile import leaf_key
from trainlet_pipelines.values import EncodedSpace, compare

EXIT_FAILED, EXIT_TRANSPORT = 1, 75
_EXPRESSION: TypeAdapter[graphs.Expression] = TypeAdapter(graphs.Expression)


def main(arguments: list[str] | None = None) -> int:
    """Do one step of a compiled pipeline."""
    parser = argparse.ArgumentParser(prog="trainlet_pipelines.dispatch")
    parser.add_argument("--executor-input", required=True)
    parser.add_argument("--step", required=True)
    options = parser.parse_args(arguments)
    try:
        executor, step = json.loads(options.executor_input), json.loads(options.step)
        settings = Settings.from_environment()
        client = connect(settings)
        store = open_store(client.get_info().store_url)
        inputs = Inputs(executor, step["bound"], store)
        match step["kind"]:
            case "step":
                value = _run_step(client, settings, executor, step, inputs)
            case "condition":
                value = "true" if inputs.plain(step["condition"]) else "false"
            case "items":
                listed = codecs.items(inputs.value(step["items"]), store)
                value = json.dumps([json.dumps(item) for item in listed])
            case other:
                raise UserError(
                    f"The step is a {other!r}, which this trainlet does not know: update the dispatch image."
                )
    except ApiUnreachable as error:
        print(f"trainlet: {error}", file=sys.stderr)
        return EXIT_TRANSPORT
    except (TrainletError, KeyError, ValueError) as error:
        print(f"trainlet: {error}", file=sys.stderr)
        return EXIT_FAILED
    _write_output(executor, value)
    return 0


class Inputs:
    """Evaluates expressions over the parameters that KFP handed to this task."""

    def __init__(self, executor: dict[str, Any], bound: dict[str, str], store: ObjectStore) -> None:
        self._values = executor.get("inputs", {}).get("parameterValues", {})
        self._bound = bound
        self._space = EncodedSpace(store, Path(tempfile.gettempdir()) / "trainlet")

    def value(self, expression: Any) -> Any:
        """Return the encoded value of an expression."""
        return self._evaluate(_EXPRESSION.validate_python(expression))

    def plain(self, expression: Any) -> Any:
        """Return the Python value of an expression."""
        return self._space.plain(self.value(expression))

    def _evaluate(self, expression: graphs.Expression) -> Any:
        match expression:
            case graphs.Constant(value=value):
                return value
            case graphs.Parameter(name=_):
                return _whole(self._values[self._bound[leaf_key(expression)]])
            case graphs.Output(path=path) | graphs.Item(path=path):
                return self._space.select(json.loads(self._values[self._bound[leaf_key(expression)]]), path)
            case graphs.Collected(value=value):
                path = value.path if isinstance(value, graphs.Output) else ()
                collected = self._values[self._bound[leaf_key(expression)]]
                return [self._space.select(json.loads(item), path) for item in collected]
            case graphs.ListOf(items=items):
                return [self._evaluate(item) for item in items]
            case graphs.DictOf(items=mapping):
                return {name: self._evaluate(item) for name, item in mapping.items()}
            case graphs.RunStatus():
                raise UserError("tl.run_status() is not known to KFP at this place.")
            case graphs.Condition(operator=name, operands=operands):
                return compare(name, [self._space.plain(self._evaluate(one)) for one in operands])


def _whole(value: Any) -> Any:
    """Undo KFP's habit of handing every number over as a double."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _run_step(
    client: Client, settings: Settings, executor: dict[str, Any], step: dict[str, Any], inputs: Inputs
) -> str:
    root = str(Path(executor["outputs"]["outputFile"]).parent)
    key = f"kfp-{sha256_hex(root.encode())[:40]}"
    run_id = f"kfp-{os.environ.get('KFP_RUN_ID') or sha256_hex(root.encode())[:16]}"
    lease = wire.DispatcherLease(id=f"{key}-{os.getpid()}", lease_s=settings.limits.dispatcher_lease_s)
    body = wire.TaskCreate(
        run_id=run_id,
        node=step["node"],
        function=step["function"],
        digest=step["digest"],
        args={name: inputs.value(value) for name, value in step["inputs"].items()},
        dispatcher=lease,
    )
    task = client.put_task(key, body)
    print(f"trainlet task {key} of run {run_id}: {client.url}/runs/{run_id}", flush=True)
    over = threading.Event()
    threading.Thread(target=_renew, args=(client, lease, over), daemon=True).start()
    logs = threading.Thread(target=_print_logs, args=(client, run_id, key), daemon=True)
    logs.start()
    try:
        task = _wait(client, run_id, task, print)
    finally:
        over.set()
    logs.join(timeout=10.0)
    if task.state != "succeeded":
        error = task.error.message if task.error else task.reason
        trace = f"\n{task.error.traceback}" if task.error and task.error.traceback else ""
        raise UserError(f"{task.node} {task.state}: {error}{trace}")
    return json.dumps(task.output)


def _wait(client: Client, run_id: str, task: wire.TaskView, say: Callable[[str], None]) -> wire.TaskView:
    """Follow the task to its end and say why it waits whenever that changes."""
    cursor, told = 0, ""
    while task.state not in wire.TERMINAL:
        if task.reason != told:
            told = task.reason
            say(f"trainlet: {task.state}: {told}")
        changes = client.changes(run_id, cursor, wait_s=20.0)
        cursor = changes.cursor
        task = next((one for one in changes.tasks if one.key == task.key), task)
    return task


def _renew(client: Client, lease: wire.DispatcherLease, over: threading.Event) -> None:
    while not over.wait(lease.lease_s / 4):
        try:
            client.renew_dispatcher(lease)
        except TrainletError as error:
            print(f"trainlet: the lease could not be renewed: {error}", file=sys.stderr)


def _print_logs(client: Client, run_id: str, key: str) -> None:
    try:
        for line in client.follow_logs(run_id, task=key):
            print(line.text, flush=True)
    except TrainletError as error:
        print(f"trainlet: logs: {error}", file=sys.stderr)


def _write_output(executor: dict[str, Any], value: str) -> None:
    path = Path(executor["outputs"]["parameters"]["output"]["outputFile"])
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(value)


if __name__ == "__main__":
    sys.exit(main())
