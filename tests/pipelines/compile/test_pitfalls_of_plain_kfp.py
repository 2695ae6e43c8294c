"""What kfp's own components drop or refuse in words that do not help: here it works in a pod, or one line says what to do.

Each source is a module as somebody would write it. Those that work are compiled, and each task is started as KFP's
launcher does, with nothing but its bundle; the result is the one that `.local()` gives.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import re
import sys
from pathlib import Path
from typing import Any

import pytest

import trainlet as tl
from trainlet.client.stores import DirectoryStore
from trainlet.core import bundles

from .conftest import HERE

sys.path.insert(0, str(HERE.parents[1] / "kubeflow"))
from kfp_launcher import Launcher

ADD = """
@tl.step
def add(x: int, y: int = 1) -> int:
    return x + y
"""

WORKS: dict[str, tuple[str, Any]] = {
    "a closure variable": (
        """
def made(n):
    @tl.step
    def add(x: int) -> int:
        return x + n
    return add
add = made(3)
@tl.pipeline
def p() -> int:
    return add(1)
""",
        4,
    ),
    "a global, a sibling, and a default that names a global": (
        """
FACTOR, START = 100, 5
def scaled(x):
    return x * FACTOR
@tl.step
def add(x: int, start: int = START) -> int:
    return scaled(x) + start
@tl.pipeline
def p() -> int:
    return add(2)
""",
        205,
    ),
    "a decorator under the step's": (
        """
import functools
def hundredfold(function):
    @functools.wraps(function)
    def inner(*args, **kwargs):
        return 100 * function(*args, **kwargs)
    return inner
@tl.step
@hundredfold
def add(x: int) -> int:
    return x + 1
@tl.pipeline
def p() -> int:
    return add(1)
""",
        200,
    ),
    "annotations that are strings, unions with None, and a parameter that is left out": (
        """
@tl.step
def add(x: "int | None", y: int | None = None, z: "float" = 0.5) -> "float":
    return (x or 40) + (y or 2) + z
@tl.pipeline
def p(x: int | None = None) -> float:
    return add(x)
""",
        42.5,
    ),
    "dataclasses, Literal, Union, Any and bytes": (
        """
import dataclasses
from typing import Any, Literal, Union
@dataclasses.dataclass
class Setup:
    mode: str
    sizes: list[int]
@tl.step
def made(mode: Literal["a", "b"], size: Union[int, str], more: Any) -> Setup:
    return Setup(mode, [int(size), *more])
@tl.step
def text(setup: Setup) -> bytes:
    return f"{setup.mode}{sum(setup.sizes)}".encode()
@tl.step
def length(data: bytes) -> int:
    return len(data) + data.count(b"6")
@tl.pipeline
def p(mode: str = "a") -> int:
    return length(text(made(mode, "3", [1, 2])))
""",
        3,
    ),
    "a whole number in a list stays whole, an index is a value": (
        """
@tl.step
def pair() -> list[int]:
    return [1, 2]
@tl.step
def letters(count: int, of: list[int]) -> str:
    return "x" * count + "y" * sum(of)
@tl.pipeline
def p(of: list[int] = [1, 1]) -> str:
    return letters(pair()[1], of)
""",
        "xxyy",
    ),
}

REFUSED: dict[str, tuple[str, str]] = {
    "async def": (
        "@tl.step\nasync def add(x: int) -> int:\n    return x\n",
        r"pitfall\.py:2: add is `async def`\. Write `def add\(\.\.\.\)` and call asyncio\.run\(\.\.\.\) inside it\.",
    ),
    "a generator": ("@tl.step\ndef add(x: int):\n    yield x\n", r"add is a generator .*`return` the list\."),
    "a lambda": ("add = tl.step(lambda x: x)\n", r"@tl\.step is on a lambda\. Write it as a `def` with a name\."),
    "a method": (
        "class M:\n    @tl.step\n    def add(self, x: int) -> int:\n        return x\n",
        r"M\.add is a method: its object cannot travel\. Write a function outside of the class",
    ),
    "a bound method": (
        "class M:\n    def add(self, x: int) -> int:\n        return x\nadd = tl.step(M().add)\n",
        r"@tl\.step is on the bound method M\.add\. Write a plain function",
    ),
    "*args": (
        "@tl.step\ndef add(*xs: int) -> int:\n    return 1\n",
        r"add\(\*xs\): arguments travel by name\. Write `xs: list",
    ),
    "a step through exec": (
        """
space = {"tl": tl, "__name__": "elsewhere"}
exec("@tl.step\\ndef add(x: int) -> int:\\n    return x", space)
@tl.pipeline
def p():
    space["add"](1)
p.compile(path)
""",
        r"The source of 'add' cannot be read .*not through exec or on the prompt\.",
    ),
    "a decorator above the step's": (
        """
def doubled(function):
    return lambda *args: 2 * function(*args)
@doubled
@tl.step
def add(x: int) -> int:
    return x
@tl.pipeline
def p():
    return add(1)
p.compile(path)
""",
        r"pitfall\.py:3: add is used in arithmetic \(\*\), but it has no value until the run\.",
    ),
    "an if on a parameter": (
        f"{ADD}\n@tl.pipeline\ndef p(n: int = 5):\n    return add(1) if n > 3 else add(2)\np.compile(path)\n",
        r"n > 3 is used as a truth value .*Use `with tl\.when\(condition\):`",
    ),
    "an if on a result": (
        f"{ADD}\n@tl.pipeline\ndef p():\n    if add(1) == 2:\n        add(2)\np.compile(path)\n",
        r"add == 2 is used as a truth value .*Use `with tl\.when\(condition\):`",
    ),
    "and between parameters": (
        f"{ADD}\n@tl.pipeline\ndef p(a: bool, b: bool):\n    with tl.when(a and b):\n        add(2)\np.compile(path)\n",
        r"a is used as a truth value .*`&`, `\|`, `~`",
    ),
    "range of a parameter": (
        f"{ADD}\n@tl.pipeline\ndef p(n: int = 5):\n    for one in range(n):\n        add(one)\np.compile(path)\n",
        r"n is used as an index or in range\(\), but it has no value until the run\. Use tl\.each",
    ),
    "a loop over a parameter": (
        f"{ADD}\n@tl.pipeline\ndef p(xs: list[int]):\n    for one in xs:\n        add(one)\np.compile(path)\n",
        r"xs is looped over or unpacked, but it has no value until the run\. Use tl\.each",
    ),
    "arithmetic with a parameter": (
        f"{ADD}\n@tl.pipeline\ndef p(n: int = 5):\n    add(n + 1)\np.compile(path)\n",
        r"n is used in arithmetic \(\+\), but it has no value until the run\. Pass it to a step",
    ),
    "a parameter in an f-string": (
        f"{ADD}\n@tl.pipeline\ndef p(n: int = 5):\n    add(f'run-{{n}}')\np.compile(path)\n",
        r"n is used in an f-string or str\.format, but it has no value until the run\. Pass it to a step",
    ),
    "a constant that is no JSON": (
        f"{ADD}\n@tl.pipeline\ndef p():\n    add((1, 2))\np.compile(path)\n",
        r"Pipeline 'p' holds a tuple as a constant, which is not JSON\. To compile it, return that value from a step\.",
    ),
}


def written(source: str, folder: Path) -> Path:
    path = folder / "pitfall.py"
    path.write_text(f"import trainlet as tl\n{source.lstrip()}")
    return path


@pytest.mark.parametrize("name", WORKS)
def test_it_works_in_a_pod_as_it_does_here(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source, expected = WORKS[name]
    written(source, tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    sys.modules.pop("pitfall", None)
    pipeline = importlib.import_module("pitfall").p
    assert pipeline.local() == expected
    store = DirectoryStore(tmp_path / "store")
    for step in pipeline.trace({}).steps.values():
        with contextlib.suppress(FileExistsError):
            store.create(bundles.bundle_key(step.bundle().digest), step.bundle().data)
    environment = {"TRAINLET_STORE": store.url, "TRAINLET_HOME": str(tmp_path / "pod")}
    run = Launcher(pipeline.compile(tmp_path / "p.yaml", {"token_secret": None}), tmp_path / "root", environment)
    run.run()
    assert json.loads(run.outputs[run.pods[-1].task]["output"]) == expected


@pytest.mark.parametrize("name", REFUSED)
def test_it_is_refused_before_anything_runs_and_says_what_to_write(name: str, tmp_path: Path) -> None:
    source, said = REFUSED[name]
    code = compile(written(source, tmp_path).read_text(), str(tmp_path / "pitfall.py"), "exec")
    with pytest.raises(tl.UserError) as error:
        exec(code, {"__name__": "pitfall", "path": tmp_path / "p.yaml"})
    assert re.search(said, str(error.value)), str(error.value)
    assert not (tmp_path / "p.yaml").exists()
