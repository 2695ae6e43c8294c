"""Runs graphs that tests build by hand."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from trainlet.core import graphs
from trainlet_pipelines.runner import Executor, Result, Runner
from trainlet_pipelines.values import PlainSpace

sys.path.insert(0, str(Path(__file__).parent))  # for runner_parts, which the tests of this folder share


@pytest.fixture
def walk() -> Callable[..., Result]:
    """Run a graph of these parts with an executor."""

    def run(
        parts: list[graphs.Node | graphs.Scope],
        executor: Executor,
        outputs: dict[str, Any] | None = None,
        params: dict[str, Any] | None = None,
    ) -> Result:
        graph = graphs.Graph(
            name="g",
            nodes=tuple(part for part in parts if isinstance(part, graphs.Node)),
            scopes=tuple(part for part in parts if isinstance(part, graphs.Scope)),
            outputs=outputs or {},
        )
        return Runner(graph, params or {}, PlainSpace(), executor).run()

    return run
