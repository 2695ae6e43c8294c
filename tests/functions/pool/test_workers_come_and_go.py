"""The pool starts what is wanted, tells every end at once, and takes up what an earlier platform left."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from tests.waiting import eventually

from trainlet.core.settings import Limits
from trainlet.core.specs import Entry, FunctionSpec
from trainlet_functions import foundlings
from trainlet_functions.pool import CLEAN_EXIT, MARK, LocalPool

pytestmark = pytest.mark.timeout(60)

SLEEPS = [sys.executable, "-c", "import time; time.sleep(60)"]


class Pools:
    """Pools of one home, and the ends that they told."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.ends: list[tuple[str, str, str]] = []
        self.pools: list[LocalPool] = []

    def open(self) -> LocalPool:
        pool = LocalPool(
            home=self.home,
            api_url="http://127.0.0.1:9",  # nobody is there; its workers wait for somebody
            mint_token=lambda project, function: "token",
            public_key="key",
            store_url=str(self.home / "store"),
            limits=Limits(),
            on_exit=lambda project, worker, folder, reason: self.ends.append((project, worker, reason)),
        )
        self.pools.append(pool)
        return pool

    def pids(self) -> list[int]:
        return [int(path.read_text()) for path in self.home.glob("workers/*/pid")]

    def leave(self, worker: str, pid: int) -> None:
        """Leave what a platform that was killed would leave."""
        folder = self.home / "workers" / worker
        folder.mkdir(parents=True)
        foundlings.note(folder, worker, "p", "f", pid)


@pytest.fixture
def pools(tmp_path: Path) -> Iterator[Pools]:
    made = Pools(tmp_path)
    yield made
    for pool in made.pools:
        pool.close()


@pytest.fixture
def spec() -> FunctionSpec:
    return FunctionSpec(name="f", bundle="0" * 64, entry=Entry(module="m", qualname="f"))


def marked(worker: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(SLEEPS, env={**os.environ, MARK: worker})


def test_as_many_workers_start_as_are_wanted(pools: Pools, spec: FunctionSpec) -> None:
    pool = pools.open()
    for _ in range(3):
        pool.demand("p", spec, 2)
    eventually(lambda: len(pools.pids()) == 2)
    pool.demand("p", spec, 1)
    pool.close()
    assert len(pools.pids()) == 2
    assert not any(map(psutil.pid_exists, pools.pids()))
    assert len(pools.ends) == 2


def test_a_killed_worker_is_told_at_once_and_replaced(pools: Pools, spec: FunctionSpec) -> None:
    pools.open().demand("p", spec, 1)
    (pid,) = eventually(pools.pids)
    os.kill(pid, signal.SIGKILL)
    ((project, _, reason),) = eventually(lambda: pools.ends, timeout_s=5)
    assert project == "p"
    assert "killed by signal 9" in reason
    eventually(lambda: len(pools.pids()) == 2)


def test_workers_that_end_right_after_their_start_come_back_slower_and_slower(
    pools: Pools, spec: FunctionSpec, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PORT", "not a number")
    began = time.monotonic()
    pools.open().demand("p", spec, 1)
    eventually(lambda: len(pools.ends) == 3)
    assert time.monotonic() - began > 3.0, "1 s after the first, 2 s after the second"
    assert "worker.log" in pools.ends[0][2]


def test_a_worker_that_died_with_its_platform_is_recorded_once(pools: Pools) -> None:
    dead = marked("gone")
    dead.kill()
    dead.wait()
    pools.leave("gone", dead.pid)
    pools.open()
    assert [end[:2] for end in pools.ends] == [("p", "gone")]
    pools.open()
    assert len(pools.ends) == 1


def test_the_pid_of_a_dead_worker_may_be_anothers_by_now(pools: Pools) -> None:
    stranger = subprocess.Popen(SLEEPS)
    pools.leave("gone", stranger.pid)
    pools.open().close()
    assert [end[1] for end in pools.ends] == ["gone"]
    assert stranger.poll() is None
    stranger.kill()
    stranger.wait()


def test_a_worker_of_an_earlier_platform_is_counted_and_watched(pools: Pools, spec: FunctionSpec) -> None:
    name = f"left-{uuid.uuid4().hex[:8]}"
    left = marked(name)
    pools.leave(name, left.pid)
    pool = pools.open()
    pool.demand("p", spec, 1)
    assert pools.ends == []
    left.kill()
    left.wait()
    assert eventually(lambda: pools.ends)[0][1] == name
    eventually(lambda: len(pools.pids()) == 2)
    assert all(reason != CLEAN_EXIT for _, _, reason in pools.ends), "nobody knows how it ended: its log stays"


def test_an_end_that_could_not_be_recorded_is_recorded_by_the_next_platform(pools: Pools, tmp_path: Path) -> None:
    dead = marked("gone")
    dead.kill()
    dead.wait()
    pools.leave("gone", dead.pid)
    recorded = pools.ends

    class Broken(list[Any]):
        def append(self, _: Any) -> None:
            raise OSError("the database is locked")

    pools.ends = Broken()
    pools.open()
    pools.ends = recorded
    pools.open()
    assert [end[1] for end in pools.ends] == ["gone"]
    assert not (tmp_path / "workers" / "gone" / foundlings.NAME).exists()


def test_what_says_nothing_about_a_worker_is_no_worker(pools: Pools) -> None:
    for name, text in (("empty", ""), ("cut", '{"worker":'), ("odd", json.dumps([1]))):
        folder = pools.home / "workers" / name
        folder.mkdir(parents=True)
        (folder / foundlings.NAME).write_text(text)
    pools.open()
    assert pools.ends == []
