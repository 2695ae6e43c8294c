"""A worker that a Job starts for one event: it does what the event asks for and ends."""

from __future__ import annotations

from pathlib import Path
from typing import Any


def test_it_does_its_one_task_and_ends(bench: Any, tmp_path: Path) -> None:
    key = bench.offer("def f(): return 7")
    other = bench.offer("def f(): return 8")
    job = bench.start(K_EXECUTION_MODE="batch", K_EVENT_PATH=bench.event_file(tmp_path / "mount", key))
    assert bench.finish().output == 7
    assert job.wait(30) == 0
    assert list(bench.api.offered) == [other], "it asks for nothing else"


def test_a_repeated_event_is_no_failure(bench: Any, tmp_path: Path) -> None:
    job = bench.start(K_EXECUTION_MODE="batch", K_EVENT_PATH=bench.event_file(tmp_path / "mount", "gone.f"))
    assert job.wait(30) == 0
    assert not bench.api.finishes


def test_S1_an_event_of_another_function_is_refused(bench: Any, tmp_path: Path) -> None:
    key = bench.offer("def f(): return 7")
    path = bench.event_file(tmp_path / "mount", key, function="g")
    assert bench.start(K_EXECUTION_MODE="batch", K_EVENT_PATH=path).wait(30) == 2
    assert "serves p/f, not p/g" in (bench.root / "worker0" / "worker.log").read_text()


def test_an_api_that_is_away_is_asked_until_it_answers(bench: Any, tmp_path: Path) -> None:
    key = bench.offer("def f(): return 7")
    bench.api.away = True
    job = bench.start(K_EXECUTION_MODE="batch", K_EVENT_PATH=bench.event_file(tmp_path / "mount", key))
    bench.eventually(lambda: bench.api.refused > 1)
    bench.api.away = False
    assert bench.finish().output == 7
    assert job.wait(30) == 0
