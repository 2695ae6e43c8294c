"""What every test shares: nothing reads or writes the person's own trainlet home, and databases to choose from.

Databases are SQLite, and PostgreSQL when TRAINLET_TEST_POSTGRES names a server.
"""

from __future__ import annotations

import atexit
import contextlib
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import sqlalchemy as sa

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
    """Empty this test process's own database on the server and return its url."""
    assert POSTGRES is not None
    _drop_postgres()
    with _server() as conn:
        conn.exec_driver_sql(f"CREATE DATABASE {_DATABASE}")
    atexit.unregister(_drop_postgres)
    atexit.register(_drop_postgres)
    return sa.make_url(POSTGRES).set(database=_DATABASE).render_as_string(hide_password=False)


def _drop_postgres() -> None:
    with _server() as conn:
        conn.exec_driver_sql(f"DROP DATABASE IF EXISTS {_DATABASE} WITH (FORCE)")


@contextlib.contextmanager
def _server() -> Iterator[sa.Connection]:
    server = sa.create_engine(str(POSTGRES), isolation_level="AUTOCOMMIT", poolclass=sa.NullPool)
    with server.connect() as conn:
        yield conn
    server.dispose()


_SERVER = pytest.mark.skipif(not POSTGRES, reason="TRAINLET_TEST_POSTGRES names no server")


@pytest.fixture
def postgres() -> Callable[[], str]:
    """Return what makes an empty database on the server, for tests that need several one after the other."""
    if not POSTGRES:
        pytest.skip("TRAINLET_TEST_POSTGRES names no server")
    return fresh_postgres


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=_SERVER)])
def database_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Return the url of an empty database."""
    return f"sqlite:///{tmp_path / 'state.db'}" if request.param == "sqlite" else fresh_postgres()
