"""Runs: one execution of a pipeline or of a single step, driven from here or looked at from anywhere.

`start` drives a run on the training API from a thread of this process, which holds the dispatcher's lease; `local` runs
the graph in this process; `get` finds a run again, also from another process, where `resume` takes it over.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import secrets
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trainlet.core import codecs, graphs, wire
from trainlet.core.errors import ConflictError, NotFoundError, PlatformError, StepFailed, UserError
from trainlet.core.settings import Settings
from trainlet.core.specs import dns_label

if TYPE_CHECKING:
    from trainlet.client.http import Client
    from trainlet.core.protocols import ObjectStore
    from trainlet.steps import Step
    from trainlet_pipelines.executors import Remote
    from trainlet_pipelines.runner import Runner

_ALPHABET = "abcdefghjkmnpqrstuvwxyz23456789"


def new_id(name: str) -> str:
    """Return a fresh run id: the pipeline's name and 8 random characters."""
    try:
        label = dns_label(name)[:48]
    except ValueError:
        label = "run"
    return f"{label}-{''.join(secrets.choice(_ALPHABET) for _ in range(8))}"


def start(
    graph: graphs.Graph,
    params: Mapping[str, Any],
    steps: Mapping[str, Step[Any, Any]],
    *,
    budget_nano: int | None = None,
    labels: Mapping[str, str] | None = None,
) -> Run:
    """Register what the graph needs, create the run, and drive it from a thread of this process."""
    session = _session(Settings.from_environment())
    session.register(steps)
    encoded = {
        name: codecs.encode(value, session.store, name=name) for name, value in {**graph.parameters, **params}.items()
    }
    run_id = new_id(graph.name)
    lease = session.lease()
    body = wire.RunCreate(
        pipeline=graph.name,
        graph=graph.model_dump(mode="json"),
        params=encoded,
        dispatcher=lease,
        budget_nano=budget_nano,
        labels=dict(labels or {}),
    )
    session.client.put_run(run_id, body)
    run = Run(run_id, session)
    run._drive(graph, encoded, lease)
    return run


def local(
    graph: graphs.Graph, params: Mapping[str, Any], steps: Mapping[str, Step[Any, Any]], *, isolated: bool = False
) -> Any:
    """Run the graph in this process, or each task in a clean process with only its bundle; return what it returns."""
    from trainlet.client.stores import DirectoryStore
    from trainlet_pipelines import executors, runner, values

    home = Settings.from_environment().home
    run_id = new_id(graph.name)
    store = DirectoryStore(home / "store")
    scratch = home / "local" / run_id
    given = {**graph.parameters, **params}
    executor: Any
    space: Any
    if isolated:
        space = values.EncodedSpace(store, scratch)
        given = {name: codecs.encode(value, store, name=name) for name, value in given.items()}
        built = {name: step.bundle() for name, step in steps.items()}
        specs = {name: step.spec() for name, step in steps.items()}
        code = {name: bundle.data for name, bundle in built.items()}
        executor = executors.Isolated(specs, code, run_id, store, scratch)
    else:
        space = values.PlainSpace()
        executor = executors.InProcess({name: _local(step) for name, step in steps.items()}, run_id, store, scratch)
    try:
        result = runner.Runner(graph, given, space, executor).run()
    finally:
        executor.close()
    if result.state != "succeeded":
        raise runner.failure(result, f"Pipeline {graph.name!r}")
    outputs = {name: space.plain(value) for name, value in result.outputs.items()}
    return outputs.get("result") if set(outputs) <= {"result"} else outputs


def _local(step: Step[Any, Any]) -> Any:
    from trainlet_pipelines.executors import LocalStep

    options = step.options
    return LocalStep(inspect.unwrap(step), step.name, options.resources, options.retries.times, options.checkpoint)


def get(run_id: str) -> Run:
    """Return a run by its id, from any process; raises NotFoundError with the newest ids when there is none."""
    session = _session(Settings.from_environment())
    try:
        session.client.get_run(run_id)
    except NotFoundError as error:
        newest = ", ".join(view.id for view in session.client.list_runs(5)) or "none"
        raise NotFoundError(f"{error} The newest: {newest}.") from None
    return Run(run_id, session)


def list(limit: int = 20) -> Any:
    """Return the newest runs."""
    session = _session(Settings.from_environment())
    return [Run(view.id, session) for view in session.client.list_runs(limit)]


def _session(settings: Settings) -> _Session:
    """Return this process's connection to a platform: the one from before while it answers."""
    session = _known_session(settings)
    if not session.alive():
        _known_session.cache_clear()
        session = _known_session(settings)
    return session


@functools.lru_cache(maxsize=4)
def _known_session(settings: Settings) -> _Session:
    return _Session(settings)


class _Session:
    """A connection to the platform and its store."""

    def __init__(self, settings: Settings) -> None:
        from trainlet.client.stores import open_store

        self.settings = settings
        self.client: Client = self.connect()
        self.info = self.client.get_info()
        self.store: ObjectStore = open_store(self.info.store_url)
        self._registered: set[str] = set()

    def alive(self) -> bool:
        """Say whether the platform of this connection still answers."""
        try:
            self.client.ping()
        except PlatformError:
            return False
        return True

    def connect(self) -> Client:
        """Return a client, of an embedded platform that is started again if need be."""
        from trainlet.client import connect

        return connect(self.settings)

    def lease(self) -> wire.DispatcherLease:
        """Return a fresh dispatcher's lease."""
        return wire.DispatcherLease(
            id=f"dispatcher-{secrets.token_hex(6)}", lease_s=self.settings.limits.dispatcher_lease_s
        )

    def register(self, steps: Mapping[str, Step[Any, Any]]) -> None:
        """Upload bundles that the store does not have and register the functions."""
        from trainlet import versions
        from trainlet.core import bundles

        for step in steps.values():
            spec = step.spec()
            if spec.digest() in self._registered:
                continue
            bundle = step.bundle()
            if bundle.digest != spec.bundle:
                raise ConflictError(f"The source of {step.name} changed while it was being submitted. Submit it again.")
            key = bundles.bundle_key(bundle.digest)
            if not self.store.exists(key):
                with contextlib.suppress(FileExistsError):
                    self.store.create(key, bundle.data)
            if spec.packages_lock is None:
                for sentence in versions.differences(bundle.imports, bundle.versions, spec.python, self.info):
                    _warn(f"{step.name}: {sentence}")
            self.client.put_function(spec)
            self._registered.add(spec.digest())


def _warn(text: str) -> None:
    import warnings

    warnings.warn(text, stacklevel=5)


class TaskHandle:
    """One task of a run, as it is at the moment of asking."""

    def __init__(self, run: Run, key: str) -> None:
        self._run, self.key = run, key

    @property
    def view(self) -> wire.TaskView:
        """Return the task as the API has it now."""
        return self._run._client.get_task(self.key)

    @property
    def state(self) -> str:
        """Return queued, dispatched, running, succeeded, failed or canceled."""
        return self.view.state

    @property
    def reason(self) -> str:
        """Return in words why it is in this state."""
        return self.view.reason

    @property
    def attempts(self) -> Any:
        """Return the attempts, the first one first."""
        return self.view.attempts

    def result(self) -> Any:
        """Return the decoded output of a task that succeeded; raises StepFailed otherwise."""
        view = self.view
        if view.state != "succeeded":
            raise StepFailed(f"{view.node} is {view.state}: {view.reason}.", task=self.key)
        return self._run._decode(view.output)

    def logs(self) -> Any:
        """Return the lines that the task has printed so far."""
        return [line for line in self._run.logs() if line.task == self.key]

    def timeline(self) -> Any:
        """Return every state it has had, with the reasons."""
        return self._run._client.timeline(self.key)

    def cancel(self) -> None:
        """Stop this task after a checkpoint."""
        self._run._client.cancel_task(self.key)


class Run:
    """A run on the training API. What this process started, it also drives; any other run it can look at and resume."""

    def __init__(self, run_id: str, session: _Session) -> None:
        self.id = run_id
        self._session = session
        self._thread: threading.Thread | None = None
        self._runner: Runner | None = None
        self._executor: Remote | None = None
        self._crash: BaseException | None = None
        self.on_change: Any = None

    def __repr__(self) -> str:
        return f"<Run {self.id} {self.state}>"

    @property
    def _client(self) -> Client:
        return self._executor._client if self._executor is not None else self._session.client

    @property
    def view(self) -> wire.RunView:
        """Return the run as the API has it now."""
        return self._client.get_run(self.id)

    @property
    def state(self) -> str:
        """Return running, succeeded, failed or canceled."""
        return self.view.state

    @property
    def reason(self) -> str:
        """Return in words why it is in this state."""
        return self.view.reason

    def wait(self, timeout: float | None = None) -> Run:
        """Wait for the end; raises StepFailed with the remote traceback, TimeoutError, or on Ctrl-C cancels the run."""
        try:
            view = self._wait(timeout)
        except KeyboardInterrupt:
            self.cancel("interrupted")
            print(f"\nThe run {self.id} was cancelled. Continue it with: trainlet resume {self.id}")
            raise
        if view.state == "succeeded":
            return self
        raise self._error(view)

    def result(self, timeout: float | None = None) -> Any:
        """Wait, and return what the pipeline or step returned."""
        outputs = self.wait(timeout).outputs
        return outputs.get("result") if set(outputs) <= {"result"} else outputs

    @property
    def outputs(self) -> dict[str, Any]:
        """Return the decoded outputs of a run that succeeded."""
        return {name: self._decode(value) for name, value in self.view.outputs.items()}

    @property
    def tasks(self) -> Any:
        """Return the tasks as views, in the order of their creation."""
        found = self._client.changes(self.id, 0).tasks
        return sorted(found, key=lambda task: (task.created_at, task.version))

    def task(self, name: str) -> TaskHandle:
        """Return a task by node id (`train`) or name inside the run (`score.3`); UserError names those there are."""
        found = self.tasks
        for task in found:
            if task.key == f"{self.id}.{name}" or task.node == name:
                return TaskHandle(self, task.key)
        names = ", ".join(task.key.removeprefix(f"{self.id}.") for task in found) or "none yet"
        raise UserError(f"Run {self.id} has no task {name!r}. It has: {names}.")

    def logs(self, follow: bool = False) -> Iterator[wire.LogLine]:
        """Yield log lines; with `follow`, until the run ends."""
        if follow:
            yield from self._client.follow_logs(self.id)
            return
        after = 0
        while lines := self._client.logs(self.id, after=after, limit=5000):
            yield from lines
            after = lines[-1].seq

    def usage(self) -> wire.UsageReport:
        """Return metered seconds and cost."""
        return self._client.usage(self.id)

    def cancel(self, reason: str = "cancelled by the user") -> None:
        """Stop after a checkpoint; a finished run stays as it is."""
        if self._runner is not None:
            self._runner.cancel(reason)
        else:
            self._client.cancel_run(self.id, reason)

    def resume(self, *, budget: str | float | None = None) -> Run:
        """Continue a failed, cancelled or abandoned run from here: what succeeded is kept, the rest goes on."""
        from trainlet.core import durations

        if self._thread is not None and self._thread.is_alive():
            raise UserError(f"Run {self.id} is driven by this process already; wait for it or cancel it first.")
        view = self.view
        if view.state == "succeeded":
            return self
        if view.graph is None:
            raise UserError(f"Run {self.id} has no graph that could be resumed; its task can be started again.")
        lease = self._session.lease()
        budget_nano = None if budget is None else durations.parse_money_nano(budget, "budget=")
        self._client.resume_run(self.id, wire.Resume(dispatcher=lease, budget_nano=budget_nano))
        self._drive(graphs.Graph.model_validate(view.graph), view.params, lease)
        return self

    # -- driving

    def _drive(self, graph: graphs.Graph, params: Mapping[str, Any], lease: wire.DispatcherLease) -> None:
        from trainlet_pipelines import executors, runner, values

        def tell(task: wire.TaskView) -> None:
            if self.on_change is not None:
                self.on_change(task)

        executor = executors.Remote(self._session.client, self._session.connect, self.id, lease, tell)
        space = values.EncodedSpace(self._session.store, self._workdir)
        self._executor = executor
        self._crash = None
        self._runner = runner.Runner(graph, params, space, executor)
        self._thread = threading.Thread(
            target=self._walk, args=(self._runner, executor), name=f"drive-{self.id}", daemon=True
        )
        self._thread.start()

    def _walk(self, walker: Runner, executor: Remote) -> None:
        try:
            result = walker.run()
            error = None
            if result.state == "failed":
                cause = result.error
                first = (str(cause).splitlines() or [""])[0] if cause else ""
                kind: Any = getattr(cause, "kind", "user")
                error = wire.ErrorInfo(kind=kind, type=type(cause).__name__, message=first[:2000])
                self._crash = cause
            failed = ", ".join(result.failed)
            reason = f"failed at {failed}" if failed else "all tasks succeeded"
            if result.state == "canceled":
                reason = str(result.error or "cancelled").rstrip(".")
            body = wire.RunFinish(state=result.state, outputs=result.outputs, error=error, reason=reason)
            executor._patient(lambda client: client.finish_run(self.id, body))
        except BaseException as error:  # noqa: BLE001 - told to whoever waits
            self._crash = error
        finally:
            executor.close()

    def _wait(self, timeout: float | None) -> wire.RunView:
        import time

        deadline = None if timeout is None else time.monotonic() + timeout
        if self._thread is not None:
            while self._thread.is_alive():
                left = 1.0 if deadline is None else min(1.0, deadline - time.monotonic())
                if left <= 0:
                    raise TimeoutError(f"Run {self.id} is not finished after {timeout:g} s; it goes on.")
                self._thread.join(left)
            view = self.view
            if view.state == "running" and self._crash is not None:
                raise PlatformError(f"Run {self.id} could not be driven: {self._crash}") from self._crash
            return view
        cursor = 0
        while True:
            left = 20.0 if deadline is None else min(20.0, deadline - time.monotonic())
            if left <= 0:
                raise TimeoutError(f"Run {self.id} is not finished after {timeout:g} s; it goes on.")
            changes = self._client.changes(self.id, cursor, wait_s=left)
            cursor = changes.cursor
            if changes.run.state != "running":
                return changes.run

    def _error(self, view: wire.RunView) -> BaseException:
        from trainlet_pipelines import executors

        if view.state == "canceled":
            return StepFailed(
                f"Run {self.id} was cancelled: {view.reason}. Continue it with run.resume() or: trainlet resume {self.id}",
                kind="canceled",
            )
        failed = [task for task in self.tasks if task.state == "failed"]
        if failed and failed[0].error is not None:
            return executors.step_failed(failed[0].node, failed[0].error, failed[0].key, self.id)
        if isinstance(self._crash, Exception):
            return self._crash
        message = view.error.message if view.error else view.reason
        return StepFailed(f"Run {self.id} failed: {message}. Logs: trainlet logs {self.id}")

    @property
    def _workdir(self) -> Path:
        return self._session.settings.home / "cache" / "results"

    def _decode(self, value: Any) -> Any:
        return codecs.decode(value, self._session.store, workdir=self._workdir)
