"""A worker that a Job starts for one event: it does what the event asks for and ends."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from trainlet.core import envelopes


def event_file(bench: Any, folder: Path, key: str, *, function: str = "f") -> str:
    """Write the event as a JobSink mounts it; returns the folder."""
    data = {"task": key, "epoch": 1, "function": function, "digest": "0" * 64, "bundle": "1" * 64, "project": "p"}
    raw = json.dumps(data, separators=(",", ":")).encode()
    origin, event_id = envelopes.source("p"), f"{key}.1.1"
    event = {
        "specversion": "1.0",
        "type": envelopes.WAKE_UP,
        "source": origin,
        "id": event_id,
        "subject": key,
        "datacontenttype": "application/json",
        envelopes.SIGNATURE: bench.signer.sign(envelopes.signed_bytes(envelopes.WAKE_UP, origin, event_id, key, raw)),
        "data": data,
    }
    folder.mkdir()
    (folder / "event").write_text(json.dumps(event))
    return str(folder)


def test_it_does_its_one_task_and_ends(bench: Any, tmp_path: Path) -> None:
    key = bench.offer("def f(): return 7")
    other = bench.offer("def f(): return 8")
    job = bench.start(K_EXECUTION_MODE="batch", K_EVENT_PATH=event_file(bench, tmp_path / "mount", key))
    assert bench.finish().output == 7
    assert job.wait(30) == 0
    assert list(bench.api.offered) == [other], "it asks for nothing else"


def test_a_repeated_event_is_no_failure(bench: Any, tmp_path: Path) -> None:
    job = bench.start(K_EXECUTION_MODE="batch", K_EVENT_PATH=event_file(bench, tmp_path / "mount", "gone.f"))
    assert job.wait(30) == 0
    assert not bench.api.finishes


def test_S1_an_event_of_another_function_is_refused(bench: Any, tmp_path: Path) -> None:
    key = bench.offer("def f(): return 7")
    path = event_file(bench, tmp_path / "mount", key, function="g")
    assert bench.start(K_EXECUTION_MODE="batch", K_EVENT_PATH=path).wait(30) == 2
    assert "serves p/f, not p/g" in (bench.root / "worker0" / "worker.log").read_text()


def test_an_api_that_is_away_is_asked_until_it_answers(bench: Any, tmp_path: Path) -> None:
    key = bench.offer("def f(): return 7")
    bench.api.away = True
    job = bench.start(K_EXECUTION_MODE="batch", K_EVENT_PATH=event_file(bench, tmp_path / "mount", key))
    bench.eventually(lambda: bench.api.refused > 1)
    bench.api.away = False
    assert bench.finish().output == 7
    assert job.wait(30) == 0
