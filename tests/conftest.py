"""What every test shares: nothing reads or writes the person's own trainlet home, and databases to choose from.

Databases are SQLite, and PostgreSQL when TRAINLET_TEST_POSTGRES names a server.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import sqlalchemy as sa

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
    name = "trainlet_test_" + os.environ.get("PYTEST_XDIST_WORKER", "main")
    server = sa.create_engine(POSTGRES, isolation_level="AUTOCOMMIT")
    with server.connect() as conn:
        conn.exec_driver_sql(f"DROP DATABASE IF EXISTS {name} WITH (FORCE)")
        conn.exec_driver_sql(f"CREATE DATABASE {name}")
    server.dispose()
    return sa.make_url(POSTGRES).set(database=name).render_as_string(hide_password=False)


_SERVER = pytest.mark.skipif(not POSTGRES, reason="TRAINLET_TEST_POSTGRES names no server")


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=_SERVER)])
def database_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Return the url of an empty database."""
    return f"sqlite:///{tmp_path / 'state.db'}" if request.param == "sqlite" else fresh_postgres()
