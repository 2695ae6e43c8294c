"""The database: SQLite by default, PostgreSQL when the API has several replicas; the same code on both.

Writes are serial: SQLite by nature (`BEGIN IMMEDIATE` behind a process lock, so that nobody polls for the file lock),
PostgreSQL by one advisory lock per transaction. State changes are small, so what this costs in parallelism it returns in
having no deadlocks and one order of events.
"""

from __future__ import annotations

import contextlib
import functools
import json
import sqlite3
import threading
import time
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import sqlalchemy as sa
import stamina
from sqlalchemy.dialects import sqlite
from sqlalchemy.dialects.postgresql import ARRAY
from sqlalchemy.engine import Connection, Engine

from trainlet.core.clocks import Clock, SystemClock
from trainlet.core.errors import PlatformError, UserError
from trainlet.core.settings import Limits
from trainlet.core.specs import FunctionSpec
from trainlet_functions.billing import pricefiles
from trainlet_functions.billing.book import Book
from trainlet_functions.billing.prices import PriceList

_ADVISORY_LOCK = 0x7472_6169_6E  # "train"
_POLL_S = 0.5  # how late another replica's change may be noticed


@dataclass(frozen=True, slots=True)
class Capacity:
    """What admission may hand out. `owns_devices`: the API assigns devices of this machine (the local pool).

    `cpu_slots` bounds CPU tasks that run at once; None where the cluster decides.
    """

    owns_devices: bool = True
    cpu_slots: int | None = 8


@dataclass(frozen=True, slots=True)
class Many:
    """A statement that is executed for many rows, and the names of its parameters in the order of a row's values."""

    statement: sa.Insert | sa.Update
    names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Transaction:
    """An open transaction and the moment it happens at."""

    conn: Connection
    now_ns: int
    limits: Limits = field(default_factory=Limits)
    capacity: Capacity = field(default_factory=Capacity)
    book: Book = field(default_factory=lambda: Book(pricefiles.load()))
    specs: dict[tuple[str, str, str], FunctionSpec] = field(default_factory=dict)  # versions never change

    @property
    def prices(self) -> PriceList:
        """Return the price versions that apply; ask once per task, it is a query."""
        return self.book.current(self.conn)

    def one(self, statement: Any) -> sa.Row[Any] | None:
        """Return the only row, or None."""
        return self.conn.execute(statement).one_or_none()

    def all(self, statement: Any) -> list[sa.Row[Any]]:
        """Return all rows."""
        return list(self.conn.execute(statement).all())

    def insert(self, table: sa.Table, **values: Any) -> None:
        """Insert a row. Values travel as parameters, so the statement is compiled once."""
        self.conn.execute(_insert_into(table), values)

    def many(self, many: Many, rows: Sequence[tuple[Any, ...]]) -> None:
        """Execute a statement for each row. To SQLite the rows go as they are: a dict for each costs more than its work."""
        if not rows:
            return
        if self.conn.dialect.name == "sqlite":
            text, places = _positional(many)
            self.conn.exec_driver_sql(text, [tuple([row[place] for place in places]) for row in rows])
        else:
            self.conn.execute(many.statement, [dict(zip(many.names, row, strict=True)) for row in rows])

    def named(
        self, statement: sa.Select[Any], column: sa.Column[str], names: Collection[str], **parameters: Any
    ) -> list[Any]:
        """Return the rows of a statement whose column is one of the names; they are one parameter, however many."""
        sqlite = self.conn.dialect.name == "sqlite"
        listed = json.dumps(sorted(names)) if sqlite else sorted(names)
        return list(self.conn.execute(_of_names(statement, column, sqlite), {**parameters, "names": listed}).all())

    def run(self, statement: Any, parameters: Any = None) -> int:
        """Execute a statement and return how many rows it touched."""
        return int(self.conn.execute(statement, parameters).rowcount)


@functools.cache
def _positional(many: Many) -> tuple[str, tuple[int, ...]]:
    """Return SQLite's text of a statement, and the places in a row of the values that it wants, in its order."""
    compiled = many.statement.compile(dialect=sqlite.dialect(), column_keys=list(many.names))
    return str(compiled), tuple(many.names.index(name) for name in compiled.positiontup or ())


@functools.cache
def _of_names(statement: sa.Select[Any], column: sa.Column[str], sqlite: bool) -> sa.Select[Any]:
    if sqlite:
        return statement.where(column.in_(sa.text("SELECT value FROM json_each(:names)")))
    return statement.where(column == sa.any_(sa.bindparam("names", type_=ARRAY(sa.Text))))


@functools.cache
def _insert_into(table: sa.Table) -> sa.Insert:
    return table.insert()


class Database:
    """An engine, the clock that stamps its transactions, and a signal that something changed."""

    def __init__(
        self,
        url: str,
        clock: Clock | None = None,
        *,
        limits: Limits | None = None,
        capacity: Capacity | None = None,
        prices: PriceList | None = None,
    ) -> None:
        self.clock = clock or SystemClock()
        self.limits = limits or Limits()
        self.capacity = capacity or Capacity()
        self.book = Book(prices or pricefiles.load())
        self.sqlite = url.startswith("sqlite")
        self.engine = _sqlite_engine(url) if self.sqlite else sa.create_engine(url, pool_size=20, max_overflow=100)
        self._writer = threading.Lock()
        self._changed = threading.Condition()
        self.change_count = 0
        self.trouble = ""
        """Why the last write failed; empty when it did not."""
        self.failed_ns = 0
        """When a write failed last, by the wall clock."""
        self._specs: dict[tuple[str, str, str], FunctionSpec] = {}

    @contextlib.contextmanager
    def write(self) -> Iterator[Transaction]:
        """Open a transaction that may change things; it commits when the block ends without an error."""
        with self._serial(), self._errors(writes=True), self.engine.connect() as plain:
            conn = plain.execution_options(trainlet_write=True)
            with conn.begin():
                if not self.sqlite:
                    conn.execute(sa.text(f"SELECT pg_advisory_xact_lock({_ADVISORY_LOCK})"))
                before = self._rows_changed(conn)
                yield self._transaction(conn)
                changed = not self.sqlite or self._rows_changed(conn) != before
        self.trouble = ""
        if changed:
            with self._changed:
                self.change_count += 1
                self._changed.notify_all()

    @contextlib.contextmanager
    def read(self) -> Iterator[Transaction]:
        """Open a transaction that sees one moment and changes nothing."""
        with self._errors(), self.engine.connect() as plain:
            conn = plain if self.sqlite else plain.execution_options(isolation_level="REPEATABLE READ")
            with conn.begin():
                yield self._transaction(conn)

    def wait_for_change(self, seen: int, timeout_s: float) -> int:
        """Block until a transaction of this process committed after `seen`, or a while passed; return the new count.

        Another replica's changes wake nobody here, so callers look again at least every half second.
        """
        with self._changed:
            if self.change_count == seen:
                self._changed.wait(timeout_s if self.sqlite else min(timeout_s, _POLL_S))
            return self.change_count

    def migrate(self) -> None:
        """Bring the schema to this version; safe when several replicas start at once."""
        from alembic import command
        from alembic.config import Config

        config = Config()
        config.set_main_option("script_location", str(Path(__file__).parent / "migrations"))
        with self._writer, self._errors(), self.engine.connect() as plain:
            conn = plain.execution_options(trainlet_write=True)
            with conn.begin():
                if not self.sqlite:
                    conn.execute(sa.text(f"SELECT pg_advisory_xact_lock({_ADVISORY_LOCK})"))
                config.attributes["connection"] = conn
                command.upgrade(config, "head")

    def close(self) -> None:
        """Close all connections."""
        self.engine.dispose()

    def _serial(self) -> contextlib.AbstractContextManager[object]:
        return self._writer if self.sqlite else contextlib.nullcontext()

    def _rows_changed(self, conn: Connection) -> int:
        """Return how many rows this connection has changed so far (SQLite only)."""
        return int(getattr(conn.connection.dbapi_connection, "total_changes", 0))

    def _transaction(self, conn: Connection) -> Transaction:
        return Transaction(conn, self.clock.wall_ns(), self.limits, self.capacity, self.book, self._specs)

    @contextlib.contextmanager
    def _errors(self, *, writes: bool = False) -> Iterator[None]:
        try:
            yield
        except sa.exc.OperationalError as error:
            if writes:
                self.trouble, self.failed_ns = f"The database cannot be written: {error.orig}.", self.clock.wall_ns()
            raise PlatformError(
                f"The database {self.engine.url.render_as_string(hide_password=True)} failed: {error.orig}. "
                "Nothing was changed; the call may be repeated."
            ) from error


def _is_busy(error: Exception) -> bool:
    return isinstance(error, sqlite3.OperationalError) and error.sqlite_errorcode & 0xFF == sqlite3.SQLITE_BUSY


def _sqlite_engine(url: str) -> Engine:
    engine = sa.create_engine(
        url, pool_size=20, max_overflow=200, connect_args={"timeout": 30, "check_same_thread": False}
    )

    @sa.event.listens_for(engine, "connect")
    def configure(connection: Any, _record: Any) -> None:
        connection.isolation_level = None  # we say BEGIN ourselves
        for pragma in ("synchronous=FULL", "busy_timeout=30000", "foreign_keys=ON"):
            connection.execute(f"PRAGMA {pragma}")
        # Of several first connections to a new file, SQLite refuses all but one at once, whatever busy_timeout says.
        for attempt in stamina.retry_context(on=_is_busy, attempts=None, timeout=30.0, wait_initial=0.01, wait_max=0.2):
            with attempt:
                connection.execute("PRAGMA journal_mode=WAL")

    @sa.event.listens_for(engine, "begin")
    def begin(conn: Connection) -> None:
        write = conn.get_execution_options().get("trainlet_write")
        conn.exec_driver_sql("BEGIN IMMEDIATE" if write else "BEGIN")

    return engine


def dumps(value: Any, *, sort_keys: bool = False) -> str:
    """Return compact JSON text for a column; raises UserError for what JSON or UTF-8 cannot say (NaN, half a pair)."""
    try:
        text = json.dumps(value, separators=(",", ":"), ensure_ascii=False, allow_nan=False, sort_keys=sort_keys)
    except (TypeError, ValueError) as error:
        raise UserError(f"A value is not JSON ({error}). Send it as trainlet.core.codecs encodes it.") from error
    if text.isascii():
        return text
    try:
        text.encode()
    except UnicodeEncodeError:
        return json.dumps(value, separators=(",", ":"), allow_nan=False, sort_keys=sort_keys)
    return text


def plain(text: str, limit: int = 1000) -> str:
    """Return text that every database can store: no NUL, no half of a surrogate pair, not endless."""
    return text[:limit].replace("\0", "").encode("utf-8", "replace").decode()


def loads(text: str | None) -> Any:
    """Return the JSON of a column, None for NULL."""
    return None if text is None else json.loads(text)


def wait_until(database: Database, deadline_s: float) -> Iterator[int]:
    """Yield now and after every change until the deadline (monotonic seconds) has passed; for long polls."""
    while True:
        seen = database.change_count
        yield seen
        left = deadline_s - time.monotonic()
        if left <= 0:
            return
        database.wait_for_change(seen, left)
