"""When a pod attaches, resumes or reports; what it prints, in which order, and how much."""

from __future__ import annotations

from typing import Any

import pytest

from trainlet.client import ApiUnreachable
from trainlet.core import wire
from trainlet.core.clocks import ManualClock
from trainlet_pipelines.pods.following import Follower, create_or_attach
from trainlet_pipelines.pods.taps import Tap

LEASE = wire.DispatcherLease(id="pod-1")
BODY = wire.TaskCreate(run_id="kfp-1", node="train", function="f", digest="0" * 64, dispatcher=LEASE)


def view(state: Any, reason: str = "", **more: Any) -> wire.TaskView:
    stamp = "2026-01-01T00:00:00Z"
    fields = {"key": "k", "project": "p", "run_id": "kfp-1", "node": "train", "function": "f", "digest": "0" * 64}
    return wire.TaskView(**fields, state=state, reason=reason, created_at=stamp, updated_at=stamp, **more)


def line(seq: int, text: str, epoch: int = 1, rank: int = 0, stream: Any = "stdout") -> wire.LogLine:
    return wire.LogLine(seq=seq, task="k", epoch=epoch, rank=rank, stream=stream, at="", text=text)


class Api:
    """Answers with what a test has written down, one after the other; an exception is raised."""

    def __init__(self, tasks: list[Any], pages: list[Any]) -> None:
        self.tasks, self.pages, self.waits, self.resumed = tasks, pages, [], []

    def put_task(self, key: str, body: Any) -> wire.TaskView:
        return self.tasks[0]

    def resume_task(self, key: str, body: wire.Resume) -> wire.TaskView:
        self.resumed.append(body.dispatcher)
        return view("queued", "resumed")

    def changes(self, run_id: str, after: int, wait_s: float) -> Any:
        self.waits.append(wait_s)
        task = self.tasks.pop(0) if self.tasks else None
        if isinstance(task, Exception):
            raise task
        run = wire.RunView(id="kfp-1", project="p", pipeline="x", state="running", created_at="")
        return wire.Changes(cursor=after + 1, run=run, tasks=[task] if task else [])

    def logs(self, run_id: str, *, task: str, after: int, limit: int) -> list[wire.LogLine]:
        page = self.pages.pop(0) if self.pages else []
        if isinstance(page, Exception):
            raise page
        assert all(one.seq > after for one in page)
        return page


def follow(api: Api, task: wire.TaskView, **options: Any) -> tuple[wire.TaskView, list[str]]:
    said: list[str] = []
    clock = ManualClock()

    def pause(seconds: float) -> None:
        clock.advance(seconds)

    tap = Tap(said.append, clock, "trainlet logs kfp-1")
    return Follower(api, tap, said.append, clock=clock, pause=pause, **options).follow(task), said  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("state", "error", "retry", "resumes"),
    [
        ("running", None, 0, False),
        ("succeeded", None, 2, False),
        ("failed", "ValueError", 0, True),
        ("failed", "ValueError", 1, False),
        ("canceled", "canceled", 0, True),
        ("canceled", "canceled", 1, False),
        ("canceled", "dispatcher_lost", 1, True),
    ],
)
def test_kfps_retries_repeat_no_user_code_but_its_button_does(
    state: str, error: str | None, retry: int, resumes: bool
) -> None:
    info = None if error is None else wire.ErrorInfo(kind="user", type=error)
    api = Api([view(state, error=info)], [])
    task = create_or_attach(api, "k", BODY, retry)  # type: ignore[arg-type]
    assert (task.state == "queued", api.resumed) == (resumes, [LEASE] if resumes else [])


def test_it_says_why_the_task_waits_whenever_that_changes() -> None:
    tasks = [
        view("queued", "2 of 4 GPUs are free"),
        view("queued", "2 of 4 GPUs are free"),
        view("succeeded", "finished"),
    ]
    _, said = follow(Api(tasks, []), view("queued", "created"))
    assert said == [
        "trainlet: queued: created",
        "trainlet: queued: 2 of 4 GPUs are free",
        "trainlet: succeeded: finished",
    ]


def test_it_holds_a_request_open_only_while_there_is_nothing_to_print() -> None:
    api = Api([view("running", "runs"), view("running", "runs"), view("succeeded", "finished")], [])
    follow(api, view("queued", "created"))
    assert api.waits == [20.0, 0.0, 0.0]


def test_every_line_is_printed_once_in_order_also_those_after_the_end() -> None:
    pages = [[line(1, "a"), line(2, "b")], [], [line(3, "c")], [], [line(4, "d")], [], []]
    task, said = follow(Api([view("running"), view("succeeded")], pages), view("running"))
    assert [one for one in said if not one.startswith("trainlet:")] == ["a", "b", "c", "d"]
    assert task.state == "succeeded"


def test_an_api_that_restarts_is_waited_for_and_nothing_is_lost_or_doubled() -> None:
    gone = ApiUnreachable("nobody answers")
    pages = [[line(1, "a")], gone, gone, [line(2, "b")], []]
    _, said = follow(Api([gone, view("succeeded")], pages), view("running"))
    assert [one for one in said if not one.startswith("trainlet:")] == ["a", "b"]
    assert said.count("trainlet: the training API is back") == 2


def test_an_api_that_stays_away_ends_the_pod_for_kfp_to_start_it_again() -> None:
    with pytest.raises(ApiUnreachable):
        follow(Api([], [ApiUnreachable("gone")] * 1000), view("running"), patience_s=30)


def test_a_flood_is_held_back_and_counted_and_what_follows_is_in_order() -> None:
    said: list[str] = []
    clock = ManualClock()
    tap = Tap(said.append, clock, "trainlet logs r", burst=3, per_second=1.0)
    tap.write(line(n, f"line {n}") for n in range(1, 11))
    clock.advance(2.0)
    tap.write([line(11, "line 11"), line(12, "line 12"), line(13, "line 13")])
    tap.close()
    assert said == [
        "line 1", "line 2", "line 3", "trainlet: 7 lines were held back here; all of them: trainlet logs r",
        "line 11", "line 12", "trainlet: 1 lines were held back here; all of them: trainlet logs r",
    ]  # fmt: skip


def test_ranks_and_attempts_are_told_apart() -> None:
    said: list[str] = []
    Tap(said.append, ManualClock(), "").write([line(1, "a"), line(2, "b", rank=1), line(3, "c", epoch=2)])
    assert said == ["a", "[rank 1] b", "trainlet: attempt 2", "c"]
