"""A stand-in for the runner and the bundler: what a step or a pipeline asks of them is recorded."""

from __future__ import annotations

import sys
import types
from dataclasses import dataclass, field
from typing import Any

import pytest

import trainlet
from trainlet.core.graphs import Graph
from trainlet.core.specs import Entry


@dataclass
class Started:
    """One call of `trainlet.runs.start`, and what its run returns."""

    graph: Graph
    params: dict[str, Any]
    steps: dict[str, Any]
    budget_nano: int | None
    tags: dict[str, str] | None
    answer: Any

    def result(self) -> Any:
        return self.answer


@dataclass
class Platform:
    """The recorded calls; `answer` is what the next run returns."""

    answer: Any = None
    started: list[Started] = field(default_factory=list)


@pytest.fixture
def platform(monkeypatch: pytest.MonkeyPatch) -> Platform:
    recorded = Platform()

    def start(
        graph: Graph,
        params: dict[str, Any],
        steps: dict[str, Any],
        *,
        budget_nano: int | None = None,
        tags: dict[str, str] | None = None,
    ) -> Started:
        recorded.started.append(Started(graph, params, steps, budget_nano, tags, recorded.answer))
        return recorded.started[-1]

    def build(function: Any, **_options: Any) -> Any:
        entry = Entry(module=function.__module__, qualname=function.__qualname__)
        return types.SimpleNamespace(digest="ab" * 32, entry=entry, imports=("numpy",), lock=None)

    def local(
        graph: Graph, params: dict[str, Any], steps: dict[str, Any], *, isolated: bool, max_parallel: int | None
    ) -> Any:
        return start(graph, params, steps, tags={"isolated": str(isolated)}).answer

    stands_in = {"runs": {"start": start}, "rehearsals": {"local": local}, "bundles": {"build": build}}
    for name, members in stands_in.items():
        module = types.ModuleType(f"trainlet.{name}")
        module.__dict__.update(members)
        # Not setattr: it would ask the lazy package for the value to restore, and get the stand-in.
        monkeypatch.setitem(vars(trainlet), name, module)
        monkeypatch.setitem(sys.modules, f"trainlet.{name}", module)
    return recorded
