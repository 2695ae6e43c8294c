"""Whatever user code does to its process, the task ends, says why, and leaves nothing behind."""

from __future__ import annotations

import threading
from itertools import pairwise
from pathlib import Path
from typing import Any

import psutil
import pytest

import trainlet as tl

pytestmark = [pytest.mark.timeout(400), pytest.mark.xdist_group("children")]


def test_a_step_returns_its_value_with_its_type(shared: Any, faulty: Any) -> None:
    assert faulty.add.remote(2, 3) == 5


def test_paths_are_files_and_folders_that_travel_both_ways(shared: Any, faulty: Any, tmp_path: Path) -> None:
    (tmp_path / "words").mkdir()
    for name in ("one.txt", "two.txt"):
        (tmp_path / "words" / name).write_text(name)
    back = faulty.loud.remote(tmp_path / "words")
    assert isinstance(back, Path) and tmp_path not in back.parents
    assert {path.name: path.read_text() for path in back.iterdir()} == {"one.txt": "ONE.TXT", "two.txt": "TWO.TXT"}
    (copied,) = faulty.loud.remote(tmp_path / "words" / "one.txt").iterdir()
    assert (copied.name, copied.read_text()) == ("one.txt", "ONE.TXT")


def test_a_pipeline_runs_its_graph(shared: Any, faulty: Any) -> None:
    assert faulty.sums.run(left=4).result(60) == 16


def test_a_step_sees_its_devices_and_no_real_one(shared: Any, faulty: Any) -> None:
    device, visible = faulty.where.remote()
    assert device.startswith("virtual-")
    assert visible == ""


def test_os_exit_is_a_failure_that_names_the_code(shared: Any, faulty: Any) -> None:
    with pytest.raises(tl.StepFailed, match="exited with code 7 without a result"):
        faulty.exits.remote(7)


def test_sigkill_of_the_child_is_a_failure_that_names_the_signal(shared: Any, faulty: Any) -> None:
    with pytest.raises(tl.StepFailed, match="killed by signal 9") as caught:
        faulty.killed.remote()
    assert caught.value.kind == "memory"


def test_T8_an_exception_that_cannot_be_pickled_is_told_with_the_users_lines(shared: Any, faulty: Any) -> None:
    with pytest.raises(tl.StepFailed) as caught:
        faulty.raises.remote()
    text = str(caught.value)
    assert "cannot be pickled" in text
    assert "faulty.py" in text and "raise Unpicklable" in text
    assert "trainlet_functions" not in text
    assert "trainlet logs" in text


def test_a_closed_stdout_does_not_hurt(shared: Any, faulty: Any) -> None:
    run = faulty.closes_stdout.spawn()
    assert run.result(60) == "fine"
    assert "before" in [line.text for line in run.logs()]


def test_binary_output_is_shown_escaped(shared: Any, faulty: Any) -> None:
    run = faulty.binary.spawn()
    assert run.result(60) == "fine"
    texts = [line.text for line in run.logs()]
    assert texts == ["\\xff\\xfe\\x00binary", "grüße"]


def test_T7_a_flood_of_100_megabytes_arrives_whole_and_in_order(shared: Any, faulty: Any) -> None:
    run = faulty.floods.spawn(100_000, 1000)
    assert run.result(100) == 100_000
    lines = [(line.seq, line.text) for line in run.logs() if line.stream == "stdout"]
    assert len(lines) == 100_000
    wrong = [text[:20] for place, (_, text) in enumerate(lines) if text != f"{place} ".ljust(999, "x")]
    assert wrong[:3] == []
    seqs = [seq for seq, _ in lines]
    assert seqs == sorted(set(seqs))


def test_no_grandchild_survives_the_attempt(shared: Any, faulty: Any) -> None:
    marker = "trainlet-grandchild-marker"
    assert faulty.leaves_grandchildren.remote(marker) == "left"
    left = [p for p in psutil.process_iter(["cmdline"]) if marker in (p.info["cmdline"] or [])]
    assert [p for p in left if p.status() != psutil.STATUS_ZOMBIE] == []


def test_too_much_memory_is_a_failure_of_kind_memory(shared: Any, faulty: Any) -> None:
    with pytest.raises(tl.StepFailed, match="may use memory=200 MiB") as caught:
        faulty.hogs.remote()
    assert caught.value.kind == "memory"


def test_a_failed_attempt_is_retried_as_often_as_asked(shared: Any, faulty: Any) -> None:
    run = faulty.fails_twice.spawn()
    assert run.result(60) == 3
    assert [attempt.state for attempt in run.tasks[0].attempts] == ["failed", "failed", "succeeded"]


def test_a_timeout_ends_the_attempt_and_says_so(shared: Any, faulty: Any) -> None:
    with pytest.raises(tl.StepFailed, match=r"longer than timeout=0\.5 s") as caught:
        faulty.too_slow.remote()
    assert caught.value.kind == "timeout"


def test_a_step_that_ignores_a_cancel_is_killed_after_its_grace(shared: Any, faulty: Any) -> None:
    run = faulty.deaf.spawn(300.0)
    started = threading.Event()
    run.on_change = lambda task: started.set() if task.attempts and task.attempts[-1].started_at else None
    assert started.wait(30)
    run.cancel()
    with pytest.raises(tl.StepFailed, match="cancelled"):
        run.wait(30)
    assert run.state == "canceled"


def test_ranks_get_the_torch_environment_and_a_log_each(shared: Any, faulty: Any) -> None:
    run = faulty.ranked.spawn()
    assert run.result(60) == ["0", "127.0.0.1", "True"]
    assert sorted((line.rank, line.text) for line in run.logs()) == [(0, "rank 0 of 2"), (1, "rank 1 of 2")]


def test_one_failing_rank_stops_all(shared: Any, faulty: Any) -> None:
    with pytest.raises(tl.StepFailed, match=r"rank one is broken \(rank 1\)"):
        faulty.one_rank_fails.remote()


def test_S2_a_secret_reaches_the_child_and_no_log(shared: Any, faulty: Any) -> None:
    folder = shared.path / "secrets"
    folder.mkdir(exist_ok=True)
    (folder / "api-key").write_text("s3cr3t-value\n")
    (folder / "api-key").chmod(0o600)
    run = faulty.tells_secret.spawn()
    assert run.result(60) == "12"
    assert [line.text for line in run.logs()] == ["the key is ***"]


def test_200_mapped_tasks_share_4_devices(shared: Any, faulty: Any) -> None:
    results = faulty.holds.map(range(200))
    assert [one["value"] for one in results] == list(range(200))
    assert len({one["device"] for one in results}) <= 4
    rows = tl.runs.list(1)[0].usage().rows
    assert {row.device for row in rows} <= {one["device"] for one in results}
    held = sorted((one["device"], one["began"], one["ended"]) for one in results)
    billed = sorted((row.device, row.start_s, row.end_s) for row in rows)
    assert len(rows) >= 8, "those that took a second"
    for name, spans in (("held", held), ("billed", billed)):
        twice = [(one, two) for one, two in pairwise(spans) if one[0] == two[0] and two[1] < one[2]]
        assert twice == [], f"a device was {name} by two tasks at once"
