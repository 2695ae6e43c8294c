from __future__ import annotations

import ast
from pathlib import Path
from typing import Any

import pytest

BASIC = """
from __future__ import annotations
import math
import json
from collections import Counter as Tally
import helpers

RATE = 0.5
NAMES = ["a", "b"]
UNUSED = open(__file__)
TABLE = {"x": (1, 2), "y": None}

class Model:
    scale = 3
    def fit(self, x: float) -> float:
        return square(x) * self.scale

def square(x):
    return x * x

def unused():
    return UNUSED

def train(x: float, names=NAMES) -> float:
    counted = Tally(names)
    return Model().fit(x) + RATE + len(counted) + math.floor(1.5) + TABLE["x"][1] + helpers.offset()

print("a side effect of the script")
"""
HELPERS = "from deeper import ten\ndef offset():\n    return ten()\n"
DEEPER = "def ten():\n    return 10\n"


def written(said: dict[str, Any], name: str = "step_training.py") -> str:
    assert "error" not in said, said
    text: str = said["files"][name]
    return text


def test_it_runs_where_only_the_bundle_can_be_imported(script: Any, call: Any) -> None:
    script.build(BASIC, "train", helpers=HELPERS, deeper=DEEPER)
    assert call(script.data.read_bytes(), 2.0) == 12 + 0.5 + 2 + 1 + 2 + 10


def test_only_what_is_used_is_written_in_readable_order(script: Any) -> None:
    said = script.build(BASIC, "train", helpers=HELPERS, deeper=DEEPER)
    text = written(said)
    assert set(said["files"]) == {"step_training.py", "helpers.py", "deeper.py", "trainlet.json"}
    for absent in ("unused", "UNUSED", "__main__", "json", "side effect"):
        assert absent not in text
    assert text.startswith("from __future__ import annotations\n")
    assert text.index("class Model") < text.index("def square") < text.index("def train")
    ast.parse(text)


def test_the_same_content_has_the_same_digest_on_every_machine(tmp_path: Path, script: Any) -> None:
    first = script.build(BASIC, "train", helpers=HELPERS, deeper=DEEPER)
    other = type(script)(tmp_path / "elsewhere" / "far")
    assert other.build(BASIC, "train", helpers=HELPERS, deeper=DEEPER)["digest"] == first["digest"]
    assert script.data.read_bytes() == other.data.read_bytes()


def test_a_changed_helper_constant_or_local_module_changes_the_digest(script: Any) -> None:
    digests = {
        script.build(BASIC, "train", helpers=HELPERS, deeper=DEEPER)["digest"],
        script.build(BASIC.replace("x * x", "x * x * 1"), "train")["digest"],
        script.build(BASIC.replace("RATE = 0.5", "RATE = 0.6"), "train")["digest"],
        script.build(BASIC, "train", deeper=DEEPER.replace("10", "11"))["digest"],
    }
    assert len(digests) == 4


def test_what_the_step_does_not_use_does_not_change_the_digest(script: Any) -> None:
    first = script.build(BASIC, "train", helpers=HELPERS, deeper=DEEPER)["digest"]
    assert script.build(BASIC + "\ndef more():\n    return 1\n", "train")["digest"] == first


def test_installed_packages_are_named_and_not_shipped(script: Any, call: Any) -> None:
    said = script.build(
        "import numpy as np\nimport trainlet as tl\n\n@tl.step\ndef train(n: int) -> int:\n"
        "    return int(np.arange(n).sum())\n",
        "train",
    )
    assert said["imports"] == ["numpy", "trainlet.pipelines"]
    assert set(said["files"]) == {"step_training.py", "trainlet.json"}
    assert call(script.data.read_bytes(), 4, site=True) == 6


def test_a_decorated_step_keeps_its_decorator_and_what_the_decorator_uses(script: Any, call: Any) -> None:
    source = """
import functools
import trainlet as tl

TIMES = 3

def repeated(function):
    @functools.wraps(function)
    def inner(*args, **kwargs):
        return [function(*args, **kwargs) for _ in range(TIMES)]
    return inner

@repeated
def one(x):
    return x

@tl.step(gpu="A100", retries=2)
def train(x: int) -> list[int]:
    return one(x)
"""
    text = written(script.build(source, "train"))
    assert '@tl.step(gpu="A100", retries=2)' in text
    assert call(script.data.read_bytes(), 7, site=True) == [7, 7, 7]


def test_a_closure_over_simple_constants_is_written_as_constants(script: Any, call: Any) -> None:
    source = """
def make(rate, names):
    def train(x):
        return x * rate + len(names)
    return train

chosen = make(0.25, ("a", "b"))
"""
    text = written(script.build(source, "chosen"))
    assert "rate = 0.25" in text
    assert call(script.data.read_bytes(), 8) == 4.0


def test_helpers_that_call_each_other_are_written_once(script: Any, call: Any) -> None:
    source = """
def even(n):
    return True if n == 0 else odd(n - 1)

def odd(n):
    return False if n == 0 else even(n - 1)

def train(n):
    return even(n)
"""
    assert written(script.build(source, "train")).count("def odd") == 1
    assert call(script.data.read_bytes(), 5) is False


def test_a_base_class_and_a_dataclass_travel_with_the_class_that_uses_them(script: Any, call: Any) -> None:
    source = """
from dataclasses import dataclass, field

LIMIT = 4

class Base:
    def total(self):
        return sum(self.values)

@dataclass
class Batch(Base):
    values: list = field(default_factory=lambda: list(range(LIMIT)))

def train():
    return Batch().total()
"""
    script.build(source, "train")
    assert call(script.data.read_bytes()) == 6


@pytest.mark.parametrize(
    ("definition", "kind"),
    [
        ("thing = open(__file__)", "open file"),
        ("import numpy\nthing = numpy.zeros(3)", "ndarray"),
        ("class Own: pass\nthing = Own()", "Own"),
        ("thing = lambda: 1", "lambda"),
        ("thing = [1, object()]", "list"),
        ("class Own:\n    def go(self): pass\nthing = Own().go", "method"),
        ("import threading\nthing = threading.Lock()", "lock"),
    ],
    ids=["file", "array", "instance", "lambda", "list", "bound-method", "lock"],
)
def test_what_cannot_travel_is_named_with_its_line_and_the_fix(script: Any, definition: str, kind: str) -> None:
    said = script.build(f"{definition}\n\ndef train():\n    x = 1\n    return thing, x\n", "train")
    assert "error" in said, said["files"]
    assert "'thing'" in said["error"] and kind in said["error"]
    assert f"training.py:{script.line('return thing')}:" in said["error"]
    assert "argument" in said["error"] or "def" in said["error"]


def test_a_closure_over_an_instance_is_an_error(script: Any) -> None:
    said = script.build(
        "def make(held):\n    def train():\n        return held\n    return train\nt = make([{1: object()}])\n", "t"
    )
    assert "'held'" in said["error"]


def test_a_function_without_readable_source_is_an_error(script: Any) -> None:
    said = script.build(
        "space = {'__name__': '__main__'}\nexec('def train(): return 1', space)\ntrain = space['train']\n", "train"
    )
    assert "cannot be read" in said["error"]


def test_the_lines_of_what_is_shipped_are_known_in_the_script(script: Any) -> None:
    source = """
    import math
    LIMIT = 3

    class Shape:
        sides = 4

    def helper(x):
        return math.sqrt(x) * LIMIT

    def train(x):
        area = Shape.sides
        return helper(x) + area
    """
    said = script.build(source, "train")
    shipped = said["files"]["step_training.py"].splitlines()
    for text in ("sides = 4", "return math.sqrt(x) * LIMIT", "area = Shape.sides", "return helper(x) + area"):
        line = next(number for number, one in enumerate(shipped, 1) if text in one)
        assert said["origins"][str(line)] == f"training.py:{script.line(text)}"
    assert "1" not in said["origins"]  # an import, which is written anew
