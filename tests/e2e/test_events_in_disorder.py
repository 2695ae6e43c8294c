"""T4 and T5 on a real platform: events that come late, twice, in any order, or never start each task exactly once."""

from __future__ import annotations

import random
import sqlite3
from collections import Counter
from pathlib import Path
from typing import Any

import httpx
import pytest
import sqlalchemy as sa

import trainlet as tl
from trainlet_functions.relay import LocalSink, Relay
from trainlet_functions.signatures import Signer
from trainlet_functions.state import schema
from trainlet_functions.state.database import Database

pytestmark = [pytest.mark.timeout(400), pytest.mark.xdist_group("disorder")]

TASKS = 12


class Courier:
    """Carries the platform's own signed events to its workers again, as a broker with at-least-once delivery may."""

    def __init__(self, home: Path) -> None:
        self._database = Database(f"sqlite:///{home / 'state.db'}")
        self._relay = Relay(self._database, LocalSink(self._database), Signer.load(home / "signing.key"))

    def rows(self) -> list[Any]:
        """Return every wake-up that was ever written."""
        table = schema.outbox
        with self._database.read() as tx:
            return tx.all(sa.select(table).where(table.c.function.is_not(None)).order_by(table.c.id))

    def workers(self) -> list[str]:
        """Return the addresses of the workers."""
        with self._database.read() as tx:
            return [row.url for row in tx.all(sa.select(schema.workers.c.url)) if row.url]

    def send(self, row: Any, url: str) -> int:
        """Send one event and return the answer's status."""
        headers, body = self._relay.event(row)
        answer = httpx.post(url, content=body, headers=headers, timeout=10)
        assert answer.content == b"" or answer.status_code != 202
        return answer.status_code

    def close(self) -> None:
        """Let go of the database."""
        self._relay.close()
        self._database.close()


@pytest.mark.parametrize("seed", range(2))
def test_T5_events_repeated_and_reordered_run_every_task_once(
    alone: Any, faulty: Any, tmp_path: Path, seed: int
) -> None:
    chance = random.Random(seed)
    paths = [tmp_path / f"task-{number}" for number in range(TASKS)]
    step = faulty.count.with_options(max_workers=3)
    runs = [step.spawn(4, 0.02, str(path)) for path in paths]
    courier = Courier(alone.path)
    try:
        answers: Counter[int] = Counter()
        while any(run.state == "running" for run in runs):
            rows, workers = courier.rows(), courier.workers()
            for row in chance.sample(rows, k=min(5, len(rows))):  # old and new ones, in any order
                for url in chance.choices(workers, k=2) if workers else []:
                    answers[courier.send(row, url)] += 1
        assert [run.result(60)["sum"] for run in runs] == [6] * TASKS
        for row in courier.rows():  # the whole of it once more, long after
            for url in courier.workers():
                answers[courier.send(row, url)] += 1
        assert answers[202] > 0 and set(answers) <= {202, 503}, answers
    finally:
        courier.close()
    for run, path in zip(runs, paths, strict=True):
        assert [one.state for one in run.tasks[0].attempts] == ["succeeded"]
        lines = [line.split()[:2] for line in path.read_text().splitlines()]
        assert lines == [["1", str(step)] for step in range(4)], "nothing ran twice"


def test_T4_events_that_never_arrive_delay_and_lose_nothing(alone: Any, faulty: Any) -> None:
    """The relay finds nobody: every row is taken back before it can be delivered, and the workers ask by themselves."""
    faulty.add.remote(1)
    with sqlite3.connect(alone.path / "state.db", timeout=30) as database:
        database.execute(
            "CREATE TRIGGER lose AFTER INSERT ON outbox WHEN NEW.function IS NOT NULL "
            "BEGIN UPDATE outbox SET due_ns = NULL, delivered_ns = 1 WHERE id = NEW.id; END"
        )
    runs = [faulty.add.spawn(number) for number in range(4)]
    assert [run.result(60) for run in runs] == [1 + number for number in range(4)]
    fresh = faulty.add.with_options(name="never-told")
    assert fresh.remote(41) == 42
    for run in runs:
        assert [one.state for one in tl.runs.get(run.id).tasks[0].attempts] == ["succeeded"]
