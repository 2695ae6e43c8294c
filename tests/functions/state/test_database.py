"""The database itself: transactions, leaders, migrations, and what happens when it is broken."""

from __future__ import annotations

import contextlib
import sqlite3
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import sqlalchemy as sa

from trainlet.core import errors
from trainlet.core.clocks import ManualClock
from trainlet_functions.state import schema, supervisor, tasks, tokens
from trainlet_functions.state.database import Database


def test_a_transaction_that_fails_leaves_nothing_behind(world):
    with pytest.raises(RuntimeError), world.database.write() as tx:
        tasks.create(tx, "default", "run.step", world.body())
        raise RuntimeError("power cut")
    with world.database.read() as tx:
        for table in (schema.tasks, schema.runs, schema.outbox, schema.timeline):
            assert tx.all(sa.select(table)) == []


def test_a_waiting_reader_wakes_when_something_changed(world):
    seen = world.database.change_count
    writer = threading.Timer(0.05, lambda: world.create("run.step"))
    writer.start()
    assert world.database.wait_for_change(seen, 10) > seen
    writer.join()


def test_a_write_that_changes_nothing_wakes_nobody(tmp_path: Path):
    database = Database(f"sqlite:///{tmp_path / 'state.db'}", ManualClock())
    database.migrate()
    seen = database.change_count
    with database.write() as tx:
        tx.all(sa.select(schema.tasks))
    assert database.change_count == seen
    database.close()


def test_migrating_at_once_and_again_makes_the_tables_once(empty_database_url: str):
    databases = [Database(empty_database_url, ManualClock()) for _ in range(3)]
    threads = [threading.Thread(target=database.migrate) for database in databases]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    with databases[0].read() as tx:
        assert tx.all(sa.select(schema.tasks)) == []
        assert len(tx.all(sa.text("SELECT version_num FROM alembic_version"))) == 1
    for database in databases:
        database.close()


def test_many_may_open_a_new_database_at_once(tmp_path: Path):
    for turn in range(25):  # each turn is a race that SQLite loses one time in ten
        databases = [Database(f"sqlite:///{tmp_path / f'{turn}.db'}", ManualClock()) for _ in range(8)]
        start = threading.Barrier(len(databases))

        def connect(database: Database, start: threading.Barrier = start) -> None:
            start.wait()
            database.engine.connect().close()

        with ThreadPoolExecutor(len(databases)) as pool:
            list(pool.map(connect, databases))
        for database in databases:
            database.close()


def test_the_migrations_make_exactly_the_tables_of_the_code(world):
    from alembic.autogenerate import compare_metadata
    from alembic.migration import MigrationContext

    with world.database.read() as tx:
        assert compare_metadata(MigrationContext.configure(tx.conn), schema.metadata) == []


def test_the_migrations_make_the_same_statements_as_the_code(tmp_path: Path):
    """What a comparison of columns does not see: partial indexes, tables without row ids."""
    database = Database(f"sqlite:///{tmp_path / 'state.db'}", ManualClock())
    database.migrate()
    made = sa.create_engine("sqlite://")
    with made.begin() as conn, database.read() as tx:
        schema.metadata.create_all(conn)
        assert statements(tx.conn) == statements(conn)
    made.dispose()
    database.close()


def statements(conn: sa.Connection) -> dict[str, str]:
    """Return what made each table and index."""
    rows = conn.exec_driver_sql(
        "SELECT name, sql FROM sqlite_master WHERE sql IS NOT NULL AND name != 'alembic_version'"
    )
    return {name: " ".join(sql.split()) for name, sql in rows}


def test_only_one_of_several_replicas_acts_until_it_is_gone(world):
    one, two = supervisor.Supervisor(world.database), supervisor.Supervisor(world.database)
    assert (one.tick(), two.tick(), one.tick()) == (True, False, True)
    world.clock.advance(supervisor.LEADER_S - 1)
    assert (one.tick(), two.tick()) == (True, False)
    world.clock.advance(supervisor.LEADER_S + 1)
    assert (two.tick(), one.tick()) == (True, False)
    world.do(supervisor.abdicate, two.name)
    assert one.tick()


def test_of_replicas_that_race_one_leads_and_every_duty_is_done_once(world, database_url):
    replicas = 6
    with contextlib.ExitStack() as stack:
        theirs = [Database(database_url, world.clock, capacity=world.database.capacity) for _ in range(replicas)]
        for one in theirs:
            stack.callback(one.close)
        pool = stack.enter_context(ThreadPoolExecutor(replicas))
        for turn in range(3):
            key = f"run.lost{turn}"
            world.running(key)
            world.clock.advance(world.database.limits.lease_s + supervisor.LEADER_S + 1)  # nobody leads any more
            barrier = threading.Barrier(replicas)
            racing = [supervisor.Supervisor(one) for one in theirs]

            def race(one: supervisor.Supervisor, barrier: threading.Barrier = barrier) -> bool:
                barrier.wait(60)
                return one.tick()

            assert sorted(pool.map(race, racing)) == [False] * (replicas - 1) + [True]
            assert [one.leading for one in racing].count(True) == 1
            with world.database.read() as tx:
                told = tx.all(sa.select(schema.timeline).where(schema.timeline.c.task == key).order_by("id"))
                wakes = sa.select(schema.outbox).where(schema.outbox.c.task == key, schema.outbox.c.epoch == 2)
                wake_ups = tx.all(wakes.where(schema.outbox.c.function.is_not(None)))
            assert [(line.epoch, line.state) for line in told][-2:] == [(1, "queued"), (2, "dispatched")]
            assert [line.state for line in told].count("queued") == 2, "created, and given up once"
            assert len(wake_ups) == 1
            world.claim(key, 2, nonce=f"again{turn}")
            world.finish(key, 2)


def test_a_database_that_is_locked_says_so_and_changes_nothing(tmp_path: Path):
    path = tmp_path / "state.db"
    database = Database(f"sqlite:///{path}", ManualClock())
    database.migrate()

    @sa.event.listens_for(database.engine, "checkout")
    def hurry(connection: sqlite3.Connection, *_: object) -> None:
        connection.execute("PRAGMA busy_timeout=50")

    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(errors.PlatformError, match=r"locked.*may be repeated"), database.write():
        pass
    other.execute("ROLLBACK")
    other.close()
    with database.write() as tx:
        tokens.create(tx, "default", {"client"}, "test")
    database.close()


def test_a_token_is_stored_hashed_and_ends_when_it_expires(world):
    token = world.do(tokens.create, "default", {"client"}, "laptop", expires_ns=world.clock.wall_ns() + 10**9)
    with world.database.read() as tx:
        assert token not in str(tx.all(sa.select(schema.tokens)))
        who = tokens.verify(tx, token)
    assert (who.project, who.label) == ("default", "laptop")
    who.require("client")
    with pytest.raises(errors.AccessError, match="lacks the scope"):
        who.require("admin")
    world.clock.advance(2)
    with pytest.raises(errors.AccessError, match="unknown or expired"):
        world.do(tokens.verify, token)
