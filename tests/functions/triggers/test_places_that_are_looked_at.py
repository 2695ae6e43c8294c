"""A folder that is looked at: what is new there is an event once, and nothing that is unfinished or old is one."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from trainlet.core.errors import AccessError, UserError
from trainlet.core.triggers import Parameter, Poll, Subscription
from trainlet_functions.triggers import places, polling, registry, tables

PROJECT = "default"


@pytest.fixture
def folder(world: Any, tmp_path: Path) -> Path:
    """An empty folder; the world's clock tells the machine's time, as the file system does."""
    world.clock.step_wall((time.time_ns() - world.clock.wall_ns()) / 1e9)
    path = tmp_path / "incoming"
    path.mkdir()
    return path


def subscribe(world: Any, folder: Path) -> None:
    spec = Subscription(
        program=world.program(),
        filters=[{"exact": {"type": "dev.trainlet.object.created", "source": folder.as_uri()}}],
        params={"data": Parameter(path="$.data.key")},
        poll=Poll(url=folder.as_uri(), every_s=1),
    )
    world.do(registry.put, PROJECT, "retrain", spec)


def put(world: Any, path: Path, text: str) -> None:
    """Write a file a moment after now: by its time of change, which is later than the machine's."""
    world.clock.advance(1)
    path.write_text(text)
    os.utime(path, ns=(world.clock.wall_ns(), world.clock.wall_ns()))


def look(world: Any) -> None:
    world.clock.advance(2)
    world.engine.poll()
    world.work()


def test_a_new_file_starts_a_run_and_what_was_there_before_does_not(world: Any, folder: Path) -> None:
    put(world, folder / "old.csv", "old")
    world.clock.advance(1)
    subscribe(world, folder)
    put(world, folder / "new.csv", "new")
    look(world)
    look(world)
    assert world.given() == ["new.csv"]


def test_the_same_content_again_starts_nothing_and_other_content_does(world: Any, folder: Path) -> None:
    subscribe(world, folder)
    for text in ("one", "one", "two"):
        put(world, folder / "a.csv", text)
        look(world)
        look(world)
    (folder / "a.csv").unlink()
    look(world)
    put(world, folder / "a.csv", "two")
    look(world)
    assert world.given() == ["a.csv", "a.csv"]


def test_a_file_that_is_still_changing_and_a_hidden_one_wait(world: Any, folder: Path) -> None:
    subscribe(world, folder)
    put(world, folder / ".b.csv", "hidden")
    put(world, folder / "a.csv", "half")
    world.clock.advance(0.5)
    world.engine.poll()
    world.work()
    assert world.runs() == []
    (folder / ".b.csv").rename(folder / "b.csv")
    look(world)
    look(world)
    assert sorted(world.given()) == ["a.csv", "b.csv"]


def test_T4_a_look_that_dies_in_the_middle_misses_nothing_and_repeats_nothing(
    world: Any, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    subscribe(world, folder)
    for number in range(7):
        put(world, folder / f"{number}.csv", str(number))
    monkeypatch.setattr(polling, "_PART", 2)
    real, calls = polling.intake.take, []

    def dies(*args: Any) -> Any:
        calls.append(args)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return real(*args)

    monkeypatch.setattr(polling.intake, "take", dies)
    world.clock.advance(2)
    with pytest.raises(KeyboardInterrupt):
        world.engine.poll()
    look(world)
    look(world)
    assert sorted(world.given()) == [f"{number}.csv" for number in range(7)]


def test_a_place_that_is_gone_is_told_and_looked_at_again(world: Any, folder: Path) -> None:
    subscribe(world, folder)
    folder.rename(folder.with_name("away"))
    look(world)
    assert "is not there" in world.trigger().reason
    folder.with_name("away").rename(folder)
    put(world, folder / "a.csv", "a")
    look(world)
    look(world)
    assert world.trigger().reason == "" and world.given() == ["a.csv"]


def test_only_named_buckets_are_looked_at_with_the_rights_of_a_shared_api(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRAINLET_POLL_BUCKETS", "raw, other")
    places.check("file:///anywhere", embedded=True)
    places.check("s3://raw/images", embedded=False)
    for url in ("file:///etc", "s3://secret/x"):
        with pytest.raises(AccessError, match="TRAINLET_POLL_BUCKETS"):
            places.check(url, embedded=False)
    with pytest.raises(UserError, match="s3://bucket/prefix"):
        places.check("ftp://x/y", embedded=True)


def test_removing_a_trigger_forgets_what_it_saw(world: Any, folder: Path) -> None:
    subscribe(world, folder)
    look(world)
    world.do(registry.delete, PROJECT, "retrain", "event")
    with world.database.read() as tx:
        assert tx.all(sa.select(tables.polled)) == []
