from __future__ import annotations

import linecache
import sys
import types
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from trainlet import bundles

Cell = Callable[[str], dict[str, Any]]


@pytest.fixture
def cell(monkeypatch: pytest.MonkeyPatch) -> Iterator[Cell]:
    """Run source as a notebook does: in `__main__`, each cell under a name of its own in linecache."""
    main = types.ModuleType("__main__")
    monkeypatch.setitem(sys.modules, "__main__", main)
    names: list[str] = []

    def run(source: str) -> dict[str, Any]:
        name = f"<ipython-input-{len(names)}-trainlet>"
        names.append(name)
        linecache.cache[name] = (len(source), None, source.splitlines(True), name)
        exec(compile(source, name, "exec"), main.__dict__)
        return main.__dict__

    yield run
    for name in names:
        linecache.cache.pop(name, None)


def test_a_cell_travels_with_helpers_of_other_cells(cell: Cell, call: Any) -> None:
    cell("import math\nSCALE = 2\n")
    cell("def helper(x):\n    return math.sqrt(x) * SCALE\n")
    bundle = bundles.build(cell("def train(x):\n    return helper(x)\n")["train"])
    assert bundle.entry.module == "step_notebook"
    assert call(bundle.data, 9) == 6.0


def test_a_helper_that_is_defined_again_is_shipped_as_it_is_now(cell: Cell, call: Any) -> None:
    cell("def helper():\n    return 1\n")
    train = cell("def train():\n    return helper()\n")["train"]
    before = bundles.build(train)
    cell("def helper():\n    return 2\n")
    after = bundles.build(train)
    assert (call(before.data), call(after.data)) == (1, 2)


def test_a_constant_that_is_set_again_is_shipped_as_it_is_now(cell: Cell, call: Any) -> None:
    cell("RATE = 1\n")
    train = cell("def train():\n    return RATE\n")["train"]
    bundles.build(train)
    cell("RATE = 5\n")
    assert call(bundles.build(train).data) == 5


def test_two_cells_keep_a_default_that_needs_an_earlier_definition(cell: Cell, call: Any) -> None:
    cell("\n\n\n\n\ndef base():\n    return 4\n")
    train = cell("def train(x=base()):\n    return x\n")["train"]
    assert call(bundles.build(train).data) == 4
