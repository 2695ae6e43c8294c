"""A rolling upgrade under load: replicas, the database's schema and the workers' Revision change while tasks run.

On PostgreSQL, which is what several replicas share. The new version is this one with a column more: what an old replica must
bear is that the tables are not as it made them.
"""

from __future__ import annotations

import os
import threading
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from imitation.clusters import ImitationCluster

pytestmark = [
    pytest.mark.timeout(600),
    pytest.mark.skipif(not os.environ.get("TRAINLET_TEST_POSTGRES"), reason="TRAINLET_TEST_POSTGRES names no server"),
    pytest.mark.parametrize("database_url", ["postgres"], indirect=True),
]


@pytest.fixture
def cluster(tmp_path: Path, database_url: str) -> Iterator[ImitationCluster]:
    """A cluster whose API has two replicas; a real one has an upgrade of its own."""
    found = ImitationCluster(tmp_path, database=database_url, replicas=2)
    yield found
    found.close()


class Load:
    """Somebody who runs short tasks, one after another, until told to stop."""

    def __init__(self, training: Any) -> None:
        self._training = training
        self._enough = threading.Event()
        self.keys: list[str] = []
        self._ended = ThreadPoolExecutor(max_workers=1).submit(self._work)

    def go_on(self) -> None:
        """Wait until two more tasks are done; fails with the error of one that is not."""
        wanted = len(self.keys) + 2
        self._training.eventually(lambda: len(self.keys) >= wanted or self._ended.done(), 120, "two more tasks")
        assert not self._ended.done(), self._ended.result()

    def end(self) -> list[str]:
        """Start no more; returns the keys of all."""
        self._enough.set()
        self._ended.result(120)
        return self.keys

    def _work(self) -> None:
        while not self._enough.is_set():
            key = self._training.start(0.3)
            self._training.result(key, timeout_s=120)
            self.keys.append(key)


def migrate(database: str) -> None:
    """Do what a newer version's migration would: a column more in tables that are in use."""
    engine = sa.create_engine(database)
    for table in ("tasks", "attempts", "outbox"):
        with engine.begin() as conn:
            conn.exec_driver_sql(f"ALTER TABLE {table} ADD COLUMN of_the_next_version text")
    engine.dispose()


def steps_of(training: Any, key: str) -> Counter[str]:
    """Return how often the log has each step's line."""
    run = training.client.get_task(key).run_id
    return Counter(line.text for line in training.client.logs(run) if line.text.startswith("step "))


def test_T3_a_rolling_upgrade_under_load_loses_nothing_and_does_nothing_twice(
    training: Any, cluster: ImitationCluster, database_url: str
) -> None:
    training.deploy()
    long = training.start(600)
    pod = training.pod_of(long)
    load = Load(training)
    load.go_on()
    for number, _ in enumerate(cluster.roll()):
        load.go_on()
        if number == 0:
            migrate(database_url)
            cluster.redeploy("held")
            load.go_on()
    load.go_on()
    keys = load.end()
    views = [training.client.get_task(key) for key in keys]
    ends = [one.state for view in views for one in view.attempts]
    assert set(ends) <= {"succeeded", "preempted"}, "a pod may be scaled away at the moment of a claim, never lost"
    assert ends.count("succeeded") == len(keys)
    pods = {pod for view in views for pod in view.output["pods"]}
    assert {one.rpartition("-")[0] for one in pods} == set(cluster.revisions("held")), "old and new workers"
    for key in keys:
        assert steps_of(training, key) == Counter({f"step {number}": 1 for number in range(3)})
    assert training.state(long) == "running" and training.pod_of(long) == pod
    training.client.cancel_task(long)
    view = training.wait(long, "canceled")
    assert [one.epoch for one in view.attempts] == [1], "it was on its pod all the time"
    told = steps_of(training, long)
    assert set(told.values()) == {1} and len(told) == max(int(line.split()[1]) for line in told) + 1
    rows = [row for key in (long, *keys) for row in training.client.usage(task=key).rows]
    seconds = Counter((row.device, second) for row in rows for second in range(row.start_s, row.end_s))
    assert set(seconds.values()) == {1}, "no second of a device is billed twice"
    assert "Traceback" not in cluster.api_log()
