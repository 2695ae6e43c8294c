"""A CPU step in a pod of its own: `python -m trainlet_pipelines.execute --executor-input {{$}} --step <json>`.

It fetches the bundle by its digest, installs locked packages only where the image lacks them, calls the function with
what KFP passed, and writes its outputs as KFP's launcher expects them. The training API does not know of it; only the
store is needed. Exit codes: 0 done, 1 the step failed, 75 the store or the API could not be reached.
"""

from __future__ import annotations

import importlib.metadata
import os
import re
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from trainlet.core import bundles, codecs, contexts, hints
from trainlet.core.errors import StopTask, UserError
from trainlet.core.models import sha256_hex
from trainlet.core.protocols import ObjectStore
from trainlet.core.settings import Settings
from trainlet.core.specs import FunctionSpec
from trainlet_functions import checkpoints, secrets
from trainlet_functions.child import failures, manners, runner
from trainlet_pipelines.pods import inputs, orders, outputs, reports, stations
from trainlet_pipelines.pods.stations import say

_REINSTALLED = "TRAINLET_LOCKED_ENVIRONMENT"


def main(arguments: list[str] | None = None) -> int:
    """Do one CPU step of a compiled pipeline."""
    return stations.run("trainlet_pipelines.execute", arguments, _work)


def _work(executor: inputs.ExecutorInput, order: orders.Order) -> int:
    spec = order.spec
    if spec is None:
        raise UserError("This order has no function to execute here. Compile the pipeline again.")
    settings = Settings.from_environment()
    store = stations.store(settings)
    code = _unpacked(store, spec)
    _require_packages(spec, code)
    arguments = inputs.Inputs(executor, order, store, inputs.workdir()).arguments()
    written = outputs.Outputs(executor, order, store)
    task = _Task(executor, spec, store)
    try:
        value = task.call(code, arguments, secrets.environment(settings.home, spec.secrets))
    except (Exception, SystemExit, StopTask) as error:  # noqa: BLE001 - the user's, and told as such
        info = failures.describe(error, str(code))
        say(f"{info.traceback.rstrip()}\ntrainlet: {spec.name} failed at {info.where or 'an unknown place'}.")
        return stations.EXIT_FAILED
    written.result(value)
    written.metrics(task.metrics)
    written.document("report", reports.of_execution(spec, task.metrics, task.progress))
    written.close()
    return stations.EXIT_DONE


class _Task:
    """One call of the function, with a context that keeps what it reports."""

    def __init__(self, executor: inputs.ExecutorInput, spec: FunctionSpec, store: ObjectStore) -> None:
        self._spec, self._store = spec, store
        root = executor.task_root()
        self._key = f"kfp-{sha256_hex(str(root or os.environ.get('KFP_POD_UID') or os.getpid()).encode())[:40]}"
        self._node = root.parent.name if root is not None else spec.name
        self.metrics: dict[str, float] = {}
        self.progress: dict[str, Any] = {}

    def call(self, code: Path, arguments: Mapping[str, Any], environment: Mapping[str, str]) -> Any:
        """Import the function, call it, and return its encoded result."""
        os.environ.update(environment)
        sys.path.insert(0, str(code))
        folder = Path(tempfile.mkdtemp(prefix="trainlet-step-"))
        context = self._context(folder)
        pickle = self._spec.allow_pickle
        decoded = {
            name: codecs.decode(value, self._store, workdir=inputs.workdir(), allow_pickle=pickle)
            for name, value in arguments.items()
        }
        function = runner.load_entry(self._spec.entry.module, self._spec.entry.qualname)
        manners.settle(folder, self._spec.entry.qualname)
        token = contexts.activate(context)
        try:
            wanted = hints.context_parameter(function)
            result = function(**decoded, **({wanted: context} if wanted else {}))
            context.checkpoint.wait()
            return codecs.encode(result, self._store, allow_pickle=pickle, name="the result")
        finally:
            contexts.deactivate(token)
            context.checkpoint.close()

    def _context(self, folder: Path) -> contexts.Context:
        prefix = f"runs/{self._key}"
        saved = checkpoints.list_checkpoints(self._store, prefix) if self._spec.checkpoint else []
        epoch = max((note.epoch for note in saved), default=0) + 1  # KFP counts from 0 again after its Retry button
        return contexts.Context(
            run_id=f"kfp-{os.environ.get('KFP_RUN_ID', 'run')}",
            task=self._key,
            node=self._node,
            function=self._spec.name,
            attempt=epoch,
            artifacts_dir=folder,
            checkpoint=checkpoints.Checkpointer(
                self._store, prefix, epoch, policy=self._spec.checkpoint, emit=self._emit
            ),
            emit=self._emit,
            stop=lambda: None,
        )

    def _emit(self, kind: str, fields: dict[str, Any]) -> None:
        if kind == "metrics":
            self.metrics.update(fields["values"])
        elif kind == "progress":
            self.progress = fields
        elif kind == "warning":
            say(f"trainlet: {fields['message']}")


def _unpacked(store: ObjectStore, spec: FunctionSpec) -> Path:
    target = inputs.workdir() / "bundles" / spec.bundle
    try:
        data = store.get(bundles.bundle_key(spec.bundle))
    except FileNotFoundError:
        raise UserError(
            f"The store {store.url} has no bundle {spec.bundle[:12]} of {spec.name}. "
            "Run `trainlet compile --register`, or `trainlet submit`, with this store's training API."
        ) from None
    target.parent.mkdir(parents=True, exist_ok=True)
    bundles.extract(data, spec.bundle, target)
    return target


def _require_packages(spec: FunctionSpec, code: Path) -> None:
    """Go on in an environment with the locked packages, unless this one has them already."""
    if spec.packages_lock is None or os.environ.get(_REINSTALLED) == spec.packages_lock:
        return
    lock = (code / bundles.LOCK).read_text()
    missing = [f"{name}=={version}" for name, version in locked(lock) if not _installed(name, version)]
    if not missing:
        return
    from trainlet_functions import environments

    say(f"trainlet: the image lacks {', '.join(missing[:5])}{' and more' if len(missing) > 5 else ''}; installing")
    python = environments.install(inputs.workdir(), lock)
    os.environ[_REINSTALLED] = spec.packages_lock
    os.execv(str(python), [str(python), "-m", "trainlet_pipelines.execute", *sys.argv[1:]])  # noqa: S606


def locked(lock: str) -> list[tuple[str, str]]:
    """Return the (name, version) pairs of a lock file that apply to this Python."""
    return re.findall(r"^([A-Za-z0-9._-]+)==([^\s;\\]+)", lock, flags=re.MULTILINE)


def _installed(name: str, version: str) -> bool:
    try:
        return importlib.metadata.version(name) == version
    except importlib.metadata.PackageNotFoundError:
        return False


if __name__ == "__main__":
    sys.exit(main())
