"""The tasks of a run on a training API that answers late, goes away, refuses, or knows the tasks already."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from runner_parts import node, out

from trainlet.client import ApiUnreachable
from trainlet.core import graphs, wire
from trainlet.core.errors import ConflictError, StepFailed
from trainlet_pipelines import remote
from trainlet_pipelines.remote import Remote
from trainlet_pipelines.runner import Runner
from trainlet_pipelines.values import EncodedSpace

LEASE = wire.DispatcherLease(id="me", lease_s=1)


class Api:
    """A training API of one run, in memory, with the client's methods. Every task succeeds with its node's name."""

    def __init__(self) -> None:
        self.tasks: dict[str, wire.TaskView] = {}
        self.bodies: dict[str, wire.TaskCreate] = {}
        self.created: list[str] = []
        self.state = "running"
        self.away = 0
        self.version = 0
        self.ends = True
        self.renewed = 0
        self._changed = threading.Condition()

    def put_task(self, key: str, body: wire.TaskCreate, *, trace: str | None = None) -> wire.TaskView:
        with self._changed:
            self._answer()
            if key in self.tasks:
                return self.tasks[key]
            if self.state == "canceled":
                raise ConflictError("The run is canceled; resume it before it gets new tasks.")
            self.created.append(key)
            self.bodies[key] = body
            self.set(key, "queued")
            queued = self.tasks[key]
            if self.ends:
                self.set(key, "succeeded", output=body.node)
            return queued

    def set(self, key: str, state: str, **fields: Any) -> None:
        with self._changed:
            self.version += 1
            self.tasks[key] = wire.TaskView(
                key=key, project="p", run_id="r", node=key.split(".")[1], function="f", digest="0" * 64, state=state,
                version=self.version, created_at="", updated_at="", **fields,
            )  # fmt: skip
            self._changed.notify_all()

    def changes(self, run_id: str, after: int, wait_s: float = 0) -> wire.Changes:
        with self._changed:
            self._answer()
            self._changed.wait_for(lambda: self.version > after or self.away, min(wait_s, 0.5))
            found = [task for task in self.tasks.values() if task.version > after]
            return wire.Changes(cursor=self.version, run=self.get_run(run_id), tasks=found)

    def get_run(self, run_id: str) -> wire.RunView:
        return wire.RunView(id="r", project="p", pipeline="g", state=self.state, reason="said so", created_at="")

    def cancel_run(self, run_id: str, reason: str = "") -> wire.RunView:
        with self._changed:
            self.state = "canceled"
            for key, task in self.tasks.items():
                if task.state not in wire.TERMINAL:
                    self.set(key, "canceled", reason=reason)
            self.version += 1
            self._changed.notify_all()
        return self.get_run(run_id)

    def renew_dispatcher(self, lease: wire.DispatcherLease) -> None:
        with self._changed:
            self.renewed += 1
            self._changed.notify_all()

    def seen(self, count: int) -> None:
        with self._changed:
            assert self._changed.wait_for(lambda: len(self.tasks) >= count, 20)

    def _answer(self) -> None:
        if self.away:
            self.away -= 1
            raise ApiUnreachable("nobody answers")


class Drive:
    """Drives a graph on an API in a thread."""

    def __init__(self, api: Api, *parts: graphs.Node, store: Any, on_change: Any = lambda task: None) -> None:
        graph = graphs.Graph(name="g", nodes=parts, outputs={"result": out(parts[-1].id)})
        self.executor = Remote(api, "r", LEASE, on_change)  # type: ignore[arg-type]
        self.runner = Runner(graph, {}, EncodedSpace(store, Path("unused")), self.executor)
        self.result: Any = None
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        self.result = self.runner.run()

    def wait(self) -> Any:
        self._thread.join(30)
        assert not self._thread.is_alive(), "the run hangs"
        return self.result


@pytest.fixture
def api(monkeypatch: pytest.MonkeyPatch) -> Api:
    return Api()


@pytest.fixture
def drive(api: Api, tmp_path: Any) -> Iterator[Any]:
    from trainlet.client.stores import DirectoryStore

    store = DirectoryStore(tmp_path)
    driven: list[Drive] = []

    def start(*parts: graphs.Node, **options: Any) -> Drive:
        driven.append(Drive(api, *parts, store=store, **options))
        return driven[-1]

    yield start
    for one in driven:
        one.executor.close()


def test_tasks_are_created_in_order_and_their_values_stay_encoded(api, drive):
    result = drive(node("a"), node("b", x=out("a"))).wait()
    assert result.state == "succeeded" and result.outputs == {"result": "b"}
    assert api.created == ["r.a", "r.b"] and api.bodies["r.b"].args == {"x": "a"}
    assert api.bodies["r.a"].dispatcher == LEASE


def test_a_task_that_succeeded_before_is_attached_to_and_not_repeated(api, drive):
    api.set("r.a", "succeeded", output="from before")
    assert drive(node("a"), node("b", x=out("a"))).wait().state == "succeeded"
    assert api.created == ["r.b"] and api.bodies["r.b"].args == {"x": "from before"}


def test_an_api_that_goes_away_is_waited_for(api, drive, monkeypatch):
    api.ends = False
    run = drive(node("a"))
    api.seen(1)
    api.away = 3
    api.set("r.a", "succeeded", output="in the end")
    assert run.wait().outputs == {"result": "in the end"}


def test_an_api_that_stays_away_fails_the_task_that_cannot_be_created(api, drive, monkeypatch):
    monkeypatch.setattr(remote.Remote.patient, "__defaults__", (0.2,))
    api.away = 10_000
    result = drive(node("a")).wait()
    assert result.state == "failed" and isinstance(result.error, ApiUnreachable)


def test_a_run_cancelled_by_somebody_else_ends_here_too(api, drive):
    api.ends = False
    run = drive(node("a"), node("b", x=out("a")))
    api.seen(1)
    api.cancel_run("r", "the budget is spent")
    result = run.wait()
    assert result.state == "canceled" and "the budget is spent" in str(result.error)
    assert api.created == ["r.a"]


def test_cancel_here_cancels_there(api, drive):
    api.ends = False
    run = drive(node("a"))
    api.seen(1)
    run.runner.cancel("enough")
    assert run.wait().state == "canceled" and api.state == "canceled"


def test_a_cancelled_run_takes_no_new_task_and_that_is_no_failure(api, drive):
    api.state = "canceled"
    assert drive(node("a")).wait().state == "canceled"


def test_a_failed_task_tells_what_where_and_how_to_see_the_logs(api, drive):
    api.ends = False
    run = drive(node("a"), node("b", x=out("a")))
    api.seen(1)
    error = wire.ErrorInfo(kind="user", type="ValueError", message="bad", where="f.py:3", traceback="Traceback: ...")
    api.set("r.a", "failed", error=error)
    result = run.wait()
    assert isinstance(result.error, StepFailed)
    for part in ("a failed at f.py:3: ValueError: bad", "Remote Traceback", "trainlet logs r"):
        assert part in str(result.error)


def test_a_listener_that_raises_does_not_stop_the_run(api, drive):
    def broken(task: wire.TaskView) -> None:
        raise BrokenPipeError

    assert drive(node("a"), node("b", x=out("a")), on_change=broken).wait().state == "succeeded"


def test_a_listener_hears_each_state_once(api, drive):
    heard: list[str] = []
    drive(node("a"), on_change=lambda task: heard.append(task.state)).wait()
    assert heard in (["queued", "succeeded"], ["succeeded"])


def test_the_dispatchers_lease_is_renewed_while_the_run_goes_on(api, drive):
    api.ends = False
    run = drive(node("a"))
    with api._changed:
        assert api._changed.wait_for(lambda: api.renewed >= 2, 20)
    api.set("r.a", "succeeded", output=1)
    run.wait()


def test_a_long_collected_list_travels_through_the_store(api, drive, tmp_path):
    parts = [graphs.Constant(value="x" * 1000)] * 100
    drive(node("a", xs=graphs.ListOf(items=tuple(parts)))).wait()
    sent = api.bodies["r.a"].args["xs"]
    assert sent["$trainlet"] == "blob" and sent["size_bytes"] > 100_000


def test_the_end_of_the_run_ends_its_threads(api, drive):
    run = drive(node("a"))
    run.wait()
    run.executor.close()
    deadline = time.monotonic() + 20
    while [thread for thread in threading.enumerate() if thread.name == "run-r"]:
        assert time.monotonic() < deadline
        time.sleep(0.01)
