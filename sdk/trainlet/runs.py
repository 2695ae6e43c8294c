"""Runs: one execution of a pipeline or of a single step, driven from here or looked at from anywhere.

`start` drives a run on the training API from a thread of this process, which holds the dispatcher's lease; `get` finds a
run again, also from another process, where `resume` takes it over.
"""

from __future__ import annotations

import atexit
import functools
import html
import secrets
import sys
import threading
import time
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trainlet import endings, estimates, handles, sessions
from trainlet.boundaries import boundary
from trainlet.core import codecs, graphs, wire
from trainlet.core.errors import NotFoundError, PlatformError, TrainletError, UserError
from trainlet.core.settings import Settings
from trainlet.core.specs import dns_label
from trainlet.core.tags import parse_tags

if TYPE_CHECKING:
    from trainlet.client.http import Client
    from trainlet.core.estimates import Estimate
    from trainlet.steps import Step
    from trainlet_pipelines.caches import Cached
    from trainlet_pipelines.remote import Remote
    from trainlet_pipelines.runner import Runner

_ALPHABET = "abcdefghjkmnpqrstuvwxyz23456789"
_session = sessions.current


def new_id(name: str) -> str:
    """Return a fresh run id: the pipeline's name and 8 random characters."""
    try:
        label = dns_label(name)[:48].rstrip("-")
    except ValueError:
        label = "run"
    return f"{label}-{''.join(secrets.choice(_ALPHABET) for _ in range(8))}"


def start(
    graph: graphs.Graph,
    params: Mapping[str, Any],
    steps: Mapping[str, Step[Any, Any]],
    *,
    budget_nano: int | None = None,
    tags: Mapping[str, str] | None = None,
) -> Run:
    """Register what the graph needs, create the run, and drive it from a thread of this process."""
    labels = parse_tags(tags or {}, "tags=")
    from trainlet_pipelines.plans import Plan

    given = {**graph.parameters, **params}
    Plan(graph).check_params(given)
    session = _session(Settings.from_environment())
    session.register(steps)
    encoded = {name: codecs.encode(value, session.store, name=name) for name, value in given.items()}
    run_id = new_id(graph.name)
    lease = session.lease()
    body = wire.RunCreate(
        pipeline=graph.name,
        graph=graph.model_dump(mode="json"),
        params=encoded,
        dispatcher=lease,
        budget_nano=budget_nano,
        labels=labels,
    )
    session.client.put_run(run_id, body)
    run = Run(run_id, session)
    run._drive(graph, encoded, lease)
    return run


def as_it_is(value: Any) -> Any:
    """Return a value that is encoded already."""
    return value


def returned(outputs: dict[str, Any]) -> Any:
    """Return what the pipeline function returned: one value, a dictionary of several, or None."""
    return outputs.get("result") if set(outputs) <= {"result"} else outputs


@boundary
def get(run_id: str) -> Run:
    """Return a run by its id, from any process; raises NotFoundError with the newest ids when there is none."""
    session = _session(Settings.from_environment())
    try:
        session.client.get_run(run_id)
    except NotFoundError as error:
        newest = ", ".join(view.id for view in session.client.list_runs(5)) or "none"
        raise NotFoundError(f"{error} The newest: {newest}.") from None
    return Run(run_id, session)


@boundary
def list(limit: int = 20) -> Sequence[Run]:
    """Return the newest runs."""
    session = _session(Settings.from_environment())
    return [Run(view.id, session) for view in session.client.list_runs(limit)]


class Run:
    """A run on the training API. What this process started, it also drives; any other run it can look at and resume.

    `on_change`, where it is set, is called with every new view of a task, from a thread of the run.
    """

    def __init__(self, run_id: str, session: sessions.Session) -> None:
        self.id = run_id
        self.on_change: Callable[[wire.TaskView], object] | None = None
        self._session = session
        self._ended: threading.Event | None = None
        self._runner: Runner | None = None
        self._crash: BaseException | None = None
        self._canceled = False
        self._cached: Cached | None = None

    def __repr__(self) -> str:
        return f"<Run {self.id} {self.state}>"

    def _repr_html_(self) -> str:
        """Show the run's tasks as a table in a notebook."""
        view = self.view
        rows = "".join(
            "<tr>" + "".join(f"<td>{html.escape(str(cell))}</td>" for cell in cells) + "</tr>"
            for cells in ((self.name_of(task), task.state, task.epoch, task.reason) for task in self.tasks)
        )
        head = f"{html.escape(self.id)}: {view.state} {html.escape(view.reason)}"
        titles = "<tr><th>task</th><th>state</th><th>epoch</th><th>reason</th></tr>"
        return f"<div><b>{head}</b><table>{titles}{rows}</table></div>"

    @property
    def _client(self) -> Client:
        return self._session.client

    @property
    @boundary
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

    @boundary
    def wait(self, timeout: float | None = None) -> Run:
        """Wait for the end; raises StepFailed with the remote traceback, TimeoutError, or on Ctrl-C cancels the run.

        A run that another process drives is only waited for: Ctrl-C leaves it alone.
        """
        try:
            view = self._wait(timeout)
        except KeyboardInterrupt:
            if self._drives():
                self.cancel("interrupted")
                print(f"\nRun {self.id} was cancelled. Continue it with: trainlet resume {self.id}", file=sys.stderr)
            raise
        if view.state == "succeeded":
            return self
        raise endings.error_of(self, view)

    @boundary
    def result(self, timeout: float | None = None) -> Any:
        """Wait, and return what the pipeline or step returned."""
        return returned(self.wait(timeout).outputs)

    @property
    @boundary
    def outputs(self) -> dict[str, Any]:
        """Return the decoded outputs of a run that succeeded; raises UserError while there are none."""
        view = self.view
        if view.state != "succeeded":
            raise UserError(f"Run {self.id} is {view.state}, so it has no outputs. run.wait() waits for them.")
        return {name: self._decode(value) for name, value in view.outputs.items()}

    @property
    @boundary
    def tasks(self) -> Sequence[wire.TaskView]:
        """Return the tasks as views, in the order of their creation."""
        found: dict[str, wire.TaskView] = {}
        cursor = 0
        while True:
            changes = self._client.changes(self.id, cursor)
            found.update({task.key: task for task in changes.tasks})
            if not changes.tasks or changes.cursor == cursor:
                return sorted(found.values(), key=lambda task: (task.created_at, task.version))
            cursor = changes.cursor

    @boundary
    def task(self, name: str) -> handles.TaskHandle:
        """Return a task by its name inside the run: `train`, or `score.3` for one item of an each.

        Raises UserError with the names that there are.
        """
        found = self.tasks
        same = [task for task in found if self.name_of(task) == name] or [task for task in found if task.node == name]
        if len(same) == 1:
            return handles.TaskHandle(self._client, self.id, same[0].key, self._decode)
        ordered = sorted(map(self.name_of, same or found), key=lambda one: (len(one), one))
        names = ", ".join(ordered[:20]) or "none yet"
        if same:
            raise UserError(f"Run {self.id} has {len(same)} tasks {name!r}; name one of them: {names}.")
        raise UserError(f"Run {self.id} has no task {name!r}. It has: {names}.")

    @boundary
    def timeline(self) -> dict[str, Sequence[wire.TimelineEntry]]:
        """Return every state that each task has had, by the task's name."""
        return {self.name_of(task): self._client.timeline(task.key) for task in self.tasks}

    def logs(self, follow: bool = False) -> Iterator[wire.LogLine]:
        """Yield log lines; with `follow`, until the run ends."""
        return handles.lines(self._client, self.id, follow=follow)

    @boundary
    def usage(self) -> wire.UsageReport:
        """Return metered seconds and cost."""
        return self._client.usage(self.id)

    @boundary
    def estimate(self, duration: estimates.Durations = None) -> Estimate:
        """Return what this whole run would cost, were it to start now; `duration` as in `pipeline.estimate`."""
        view = self.view
        if view.graph is None:
            raise UserError(
                f"Run {self.id} has no graph, so there is nothing to estimate. run.usage() says what it cost."
            )
        graph = graphs.Graph.model_validate(view.graph)
        used = {node.function: node.digest for node in graph.nodes}
        needs = {name: self._client.get_function(name, digest).spec for name, digest in used.items()}
        return estimates.of_graph(self._client, graph, view.params, needs, duration)

    @boundary
    def cancel(self, reason: str = "cancelled by the user") -> None:
        """Stop after a checkpoint; a finished run stays as it is."""
        if self._runner is not None and self._drives():
            self._canceled = True
            self._runner.cancel(reason)
        else:
            self._client.cancel_run(self.id, reason)

    @boundary
    def resume(self, *, budget: str | float | None = None) -> Run:
        """Continue a failed, cancelled or abandoned run from here: what succeeded is kept, the rest goes on.

        `budget` ("20 USD") replaces the run's budget. Raises UserError when this process drives the run already.
        """
        from trainlet.core import durations

        if self._drives():
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

    def _drives(self) -> bool:
        return self._ended is not None and not self._ended.is_set()

    def _drive(self, graph: graphs.Graph, params: Mapping[str, Any], lease: wire.DispatcherLease) -> None:
        from trainlet_pipelines import caches, remote, runner, values

        def tell(task: wire.TaskView) -> None:
            if self.on_change is not None:
                self.on_change(task)

        executor = remote.Remote(self._client, self.id, lease, tell)
        space = values.EncodedSpace(self._session.store, self._workdir)
        walked: runner.Executor = executor
        if graph.cache:
            store, say = self._session.store, self._say
            digests = {node.function: node.digest for node in graph.nodes}
            cache = caches.Cache(store, self.id, "api", encode=as_it_is, decode=as_it_is, tell=say)
            walked = self._cached = caches.Cached(executor, cache, digests)
        self._crash, self._canceled = None, False
        self._runner = runner.Runner(graph, params, space, walked)
        # An event, because a join that Ctrl-C interrupts takes the thread for ended (bpo-45274).
        self._ended = threading.Event()
        at_exit = functools.partial(_say_abandoned, weakref.ref(self))
        arguments = (self._runner, executor, self._ended, at_exit)
        threading.Thread(target=self._walk, args=arguments, name=f"drive-{self.id}", daemon=True).start()
        atexit.register(at_exit)

    def _walk(self, walker: Runner, executor: Remote, ended: threading.Event, at_exit: Callable[[], object]) -> None:
        try:
            body = self._outcome(walker)
            executor.patient(lambda client: client.finish_run(self.id, body))
        except BaseException as error:  # noqa: BLE001 - told to whoever waits
            self._crash = error
        finally:
            executor.close()
            ended.set()
            atexit.unregister(at_exit)

    def _outcome(self, walker: Runner) -> wire.RunFinish:
        """Run the graph and describe its end; a fault of the runner itself is the end of the run, too."""
        from trainlet_pipelines import outcomes

        result = outcomes.run(walker, self.id)
        self._crash = result.error if result.state == "failed" else None
        return outcomes.describe(result, self._cached.reused if self._cached is not None else ())

    def _say(self, text: str) -> None:
        print(text, file=sys.stderr)

    def _wait(self, timeout: float | None) -> wire.RunView:
        deadline = None if timeout is None else time.monotonic() + timeout

        def left(at_most: float) -> float:
            seconds = at_most if deadline is None else min(at_most, deadline - time.monotonic())
            if seconds <= 0:
                raise TimeoutError(f"Run {self.id} is not finished after {timeout:g} s; it goes on.")
            return seconds

        while self._ended is not None and not self._ended.wait(left(1.0)):
            continue
        cursor, view = 0, self.view
        if view.state == "running" and self._crash is not None:
            raise PlatformError(f"Run {self.id} could not be driven: {self._crash}") from self._crash
        while view.state == "running":
            changes = self._client.changes(self.id, cursor, wait_s=left(20.0))
            cursor, view = changes.cursor, changes.run
        return view

    def name_of(self, task: wire.TaskView) -> str:
        """Return a task's name inside the run."""
        return task.key.removeprefix(f"{self.id}.")

    @property
    def _workdir(self) -> Path:
        return self._session.settings.home / "cache" / "results"

    def _decode(self, value: Any) -> Any:
        return codecs.decode(value, self._session.store, workdir=self._workdir)


def _say_abandoned(found: weakref.ref[Run]) -> None:
    """Say at the end of a process that a run which it drives ends with it, and stop that run now."""
    run = found()
    if run is None or run._canceled or not run._drives():
        return
    print(
        f"trainlet: this process ends, and run {run.id} stops after a checkpoint. Wait with run.wait(); "
        f"continue it with: trainlet resume {run.id}",
        file=sys.stderr,
    )
    try:
        run._client.cancel_run(run.id, "the process that waited for it ended")
    except TrainletError:
        return  # the dispatcher's lease runs out by itself
