"""What every test shares: nothing reads or writes the person's own trainlet home."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def isolated_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Point TRAINLET_HOME at a fresh folder and drop settings of the person who runs the tests."""
    for name in (
        "TRAINLET_API",
        "TRAINLET_TOKEN",
        "TRAINLET_PROJECT",
        "TRAINLET_DATABASE_URL",
        "TRAINLET_VIRTUAL_GPUS",
    ):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TRAINLET_HOME", str(tmp_path / "home"))
