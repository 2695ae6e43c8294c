"""A KFP server in memory."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "kubeflow"))


@pytest.fixture
def kfp_server() -> Iterator[Any]:
    from fake_kfp import FakeKfp

    made = FakeKfp(token="secret")
    yield made
    made.close()
