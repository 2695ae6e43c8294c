"""What every test shares: nothing reads or writes the person's own trainlet home, and databases to choose from.

Databases are SQLite, and PostgreSQL when TRAINLET_TEST_POSTGRES names a server.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import os
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import sqlalchemy as sa

from trainlet_functions.state.database import Database

_DATABASE = f"trainlet_test_{os.getpid()}"  # others may test on the same server at the same time
POSTGRES = os.environ.get("TRAINLET_TEST_POSTGRES")


@pytest.fixture(autouse=True)
def isolated_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Point TRAINLET_HOME at a fresh folder and drop settings of the person who runs the tests."""
    for name in (
        "TRAINLET_API",
        "TRAINLET_TOKEN",
        "TRAINLET_TOKEN_FILE",
        "TRAINLET_PROJECT",
        "TRAINLET_DATABASE_URL",
        "TRAINLET_VIRTUAL_GPUS",
    ):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TRAINLET_HOME", str(tmp_path / "home"))


def fresh_postgres() -> str:
    """Return the url of a database with trainlet's tables and no rows: this test process's only one on the server."""
    assert POSTGRES is not None
    _drop_postgres(_DATABASE)
    _make_postgres(_DATABASE, f"TEMPLATE {_postgres_template()} STRATEGY FILE_COPY")
    return _on_server(_DATABASE)


@functools.cache
def _postgres_template() -> str:
    """Return the name of a migrated database, made once a process: a copy takes a tenth of the time of the migrations."""
    name = f"{_DATABASE}_template"
    _make_postgres(name)
    _migrate(_on_server(name))
    return name


def _make_postgres(name: str, options: str = "") -> None:
    atexit.unregister(_drop_all_postgres)
    atexit.register(_drop_all_postgres)
    with _server() as conn:
        conn.exec_driver_sql(f"CREATE DATABASE {name} {options}")


def _drop_postgres(name: str) -> None:
    with _server() as conn:
        conn.exec_driver_sql(f"DROP DATABASE IF EXISTS {name} WITH (FORCE)")


def _drop_all_postgres() -> None:
    for name in (_DATABASE, f"{_DATABASE}_template"):
        _drop_postgres(name)


def _on_server(name: str) -> str:
    return sa.make_url(str(POSTGRES)).set(database=name).render_as_string(hide_password=False)


@contextlib.contextmanager
def _server() -> Iterator[sa.Connection]:
    server = sa.create_engine(str(POSTGRES), isolation_level="AUTOCOMMIT", poolclass=sa.NullPool)
    with server.connect() as conn:
        yield conn
    server.dispose()


def _migrate(url: str) -> None:
    database = Database(url)
    database.migrate()
    database.close()


@functools.cache
def _sqlite_template() -> bytes:
    """Return the file of a migrated database."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "state.db"
        _migrate(f"sqlite:///{path}")
        return path.read_bytes()


_SERVER = pytest.mark.skipif(not POSTGRES, reason="TRAINLET_TEST_POSTGRES names no server")
_either = pytest.fixture(params=["sqlite", pytest.param("postgres", marks=_SERVER)])


@pytest.fixture
def postgres() -> Callable[[], str]:
    """Return what makes a database without rows on the server, for tests that need several one after the other."""
    if not POSTGRES:
        pytest.skip("TRAINLET_TEST_POSTGRES names no server")
    return fresh_postgres


@_either
def database_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Return the url of a database with trainlet's tables and no rows."""
    if request.param == "postgres":
        return fresh_postgres()
    (tmp_path / "state.db").write_bytes(_sqlite_template())
    return f"sqlite:///{tmp_path / 'state.db'}"


@_either
def empty_database_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Return the url of a database without tables."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'state.db'}"
    _drop_postgres(_DATABASE)
    _make_postgres(_DATABASE)
    return _on_server(_DATABASE)
