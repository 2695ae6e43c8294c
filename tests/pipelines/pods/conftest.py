"""Executor inputs as KFP writes them, and a store."""

from __future__ import annotations

from pathlib import Path

import pytest

from trainlet.client.stores import DirectoryStore


@pytest.fixture
def store(tmp_path: Path) -> DirectoryStore:
    return DirectoryStore(tmp_path / "store")
