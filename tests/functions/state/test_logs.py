"""Log lines: appended by offset, read by sequence, the same before and after they moved to the store."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from trainlet.client.stores import open_store
from trainlet.core import wire
from trainlet.core.errors import PlatformError
from trainlet_functions.state import attempts, logs, schema
from trainlet_functions.state.problems import LinesMissing
from trainlet_functions.state.supervisor import Supervisor


def send(world: Any, key: str, offset: int, *texts: str, epoch: int = 1, rank: int = 0) -> int:
    body = wire.LogsRequest(rank=rank, offset=offset, lines=[(1_767_225_600_000, "stdout", text) for text in texts])
    with world.database.write() as tx:
        return logs.append(tx, attempts.authenticate(tx, key, epoch, world.tokens[key, epoch]), body)


def texts(world: Any, **options: Any) -> list[str]:
    with world.database.read() as tx:
        return [line.text for line in logs.read(tx, "run", **options)]


def test_lines_come_in_order_with_a_dense_sequence(world):
    world.running("run.a")
    world.running("run.b")
    assert send(world, "run.a", 0, "a0", "a1") == 2
    send(world, "run.b", 0, "b0")
    send(world, "run.a", 2, "a2")
    with world.database.read() as tx:
        lines = logs.read(tx, "run")
    assert [(line.seq, line.text) for line in lines] == [(1, "a0"), (2, "a1"), (3, "b0"), (4, "a2")]
    assert lines[0].at == "2026-01-01T00:00:00.000Z"
    assert texts(world, task="run.a") == ["a0", "a1", "a2"]


def test_T7_lines_that_come_again_are_shown_once(world):
    world.running("run.a")
    send(world, "run.a", 0, "0", "1", "2")
    assert send(world, "run.a", 0, "0", "1", "2") == 3
    assert send(world, "run.a", 1, "1", "2", "3") == 4
    assert texts(world) == ["0", "1", "2", "3"]


def test_T7_a_gap_is_refused_with_the_offset_to_send_from(world):
    world.running("run.a")
    send(world, "run.a", 0, "0")
    with pytest.raises(LinesMissing) as caught:
        send(world, "run.a", 5, "5")
    assert caught.value.expected == 1
    assert texts(world) == ["0"]


def test_ranks_and_epochs_count_their_own_offsets(world):
    world.running("run.a")
    send(world, "run.a", 0, "rank 0")
    send(world, "run.a", 0, "rank 1", rank=1)
    world.finish("run.a", 1, "preempted")
    world.claim("run.a", 2)
    send(world, "run.a", 0, "again", epoch=2)
    assert texts(world) == ["rank 0", "rank 1", "again"]


@pytest.mark.parametrize("limit", [1, 3, 7, 1000])
def test_pages_of_any_size_show_every_line_once(world, limit):
    world.running("run.a")
    for start in range(0, 50, 5):
        send(world, "run.a", start, *[str(number) for number in range(start, start + 5)])
    seen, after = [], 0
    while True:
        with world.database.read() as tx:
            page = logs.read(tx, "run", after=after, limit=limit)
        if not page:
            break
        assert len(page) <= limit
        seen += [line.text for line in page]
        after = page[-1].seq
    assert seen == [str(number) for number in range(50)]


def test_T7_after_the_end_the_lines_move_to_the_store_and_read_the_same(world, tmp_path: Path, monkeypatch):
    monkeypatch.setattr(logs, "_ARCHIVE_LINES", 20)
    store = open_store(f"file://{tmp_path / 'store'}")
    keeper = Supervisor(world.database, store)
    world.running("run.a")
    for start in range(0, 50, 5):
        send(world, "run.a", start, *[f"line {number} \N{SNOWMAN}" for number in range(start, start + 5)])
    world.finish("run.a")
    before = texts(world)
    keeper.tick()
    assert texts(world) == before  # late lines may still come
    world.clock.advance(60)
    keeper.tick()
    assert texts(world) == []
    assert texts(world, store=store) == before
    assert texts(world, store=store, after=37, limit=4) == before[37:41]
    assert texts(world, store=store, task="run.a", after=48) == before[48:]
    assert texts(world, store=store, task="run.b") == []
    keys = [info.key for info in store.list("logs/run/")]
    assert keys and gzip.decompress(store.get(keys[0])).startswith(b'{"seq":1,')
    with world.database.read() as tx:
        assert logs.to_archive(tx) == []


def test_T7_a_crash_between_upload_and_commit_loses_and_doubles_nothing(world, tmp_path: Path, monkeypatch):
    store = open_store(f"file://{tmp_path / 'store'}")
    world.running("run.a")
    send(world, "run.a", 0, "0", "1")
    world.finish("run.a")
    with monkeypatch.context() as broken, pytest.raises(RuntimeError):
        broken.setattr(schema, "log_archives", None)
        broken.setattr(world.database, "write", lambda: (_ for _ in ()).throw(RuntimeError("power cut")))
        logs.archive(world.database, store, "run")
    assert texts(world, store=store) == ["0", "1"]
    assert logs.archive(world.database, store, "run") == 2
    assert texts(world, store=store) == ["0", "1"]


def test_T7_an_archive_of_the_time_after_a_backup_does_not_hide_the_lines_after_its_restore(world, tmp_path: Path):
    store = open_store(f"file://{tmp_path / 'store'}")
    world.running("run.a")
    send(world, "run.a", 0, "before", "lost")
    world.finish("run.a")
    with world.database.read() as tx:
        (row,) = tx.all(sa.select(schema.logs))
    logs.archive(world.database, store, "run")
    with world.database.write() as tx:  # the database is put back to before the archive, and other lines come
        tx.run(schema.log_archives.delete())
        tx.insert(schema.logs, **{**row._mapping, "lines": row.lines.replace("lost", "anew")})
    logs.archive(world.database, store, "run")
    assert texts(world, store=store) == ["before", "anew"]


def test_a_store_that_is_down_keeps_the_lines_in_the_database(world):
    class Down:
        url = "file:///nowhere"

        def create(self, key: str, data: bytes) -> None:
            raise PlatformError("no space left")

    world.running("run.a")
    send(world, "run.a", 0, "0")
    world.finish("run.a")
    world.clock.advance(60)
    assert Supervisor(world.database, Down()).tick()
    assert texts(world) == ["0"]
    world.clock.advance(60)
    with world.database.read() as tx:
        assert logs.to_archive(tx) == ["run"]


def test_a_flood_costs_rows_by_request_and_not_by_line(world):
    world.running("run.a")
    send(world, "run.a", 0, *["x" * 80] * 20_000)
    with world.database.read() as tx:
        assert tx.conn.execute(sa.select(sa.func.count()).select_from(schema.logs)).scalar_one() == 1
        assert len(logs.read(tx, "run", after=19_990)) == 10
