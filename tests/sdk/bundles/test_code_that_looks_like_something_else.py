from __future__ import annotations

from typing import Any

import pytest

CASES = {
    "a local variable with the name of a global that cannot travel": (
        "data = open(__file__)\ndef train():\n    data = 3\n    return data\n",
        3,
    ),
    "a parameter with the name of a global that cannot travel": (
        "data = object()\ndef train(data=2):\n    return data\n",
        2,
    ),
    "a loop variable of a comprehension": (
        "f = open(__file__)\ndef train():\n    return sum(f for f in [1, 2])\n",
        3,
    ),
    "a submodule that is imported by its dotted name": (
        "import xml.etree.ElementTree\ndef train():\n    return xml.etree.ElementTree.fromstring('<a/>').tag\n",
        "a",
    ),
    "an enum of the script": (
        "import enum\nclass Mode(enum.Enum):\n    A = 1\nMODE = Mode.A\ndef train():\n    return MODE.value\n",
        1,
    ),
    "an import inside of the function": (
        "def train():\n    import lazy_local\n    return lazy_local.X\n",
        8,
    ),
    "a keyword and an attribute with the name of a global": (
        "size = object()\ndef inner(size=1):\n    return size\n\ndef train():\n    return inner(size=4)\n",
        4,
    ),
    "a function under another name": (
        "def one():\n    return 1\nother = one\ndef train():\n    return other()\n",
        1,
    ),
    "a nested function with a variable of its own": (
        "def train():\n    total = 2\n    def inner():\n        return total\n    return inner()\n",
        2,
    ),
    "a constant that a class body uses": (
        "WIDTH = 6\nclass Net:\n    width = WIDTH\ndef train():\n    return Net.width\n",
        6,
    ),
    "a method that uses a helper": (
        "def helper():\n    return 9\nclass Net:\n    @property\n    def x(self):\n        return helper()\n"
        "def train():\n    return Net().x\n",
        9,
    ),
    "a name of the library imported from": (
        "from os.path import join as j\nfrom math import pi, inf\ndef train():\n    return j('a', str(pi < inf))\n",
        "a/True",
    ),
    "a base class defined before in lines": (
        "class Base:\n    x = 1\nclass Net(Base):\n    def y(self):\n        return super().__init__() or self.x\n"
        "def train():\n    return Net().y()\n",
        1,
    ),
    "a docstring and a string that look like main": (
        "def train():\n    'if __name__ == \"__main__\": no'\n    return 1\n",
        1,
    ),
    "a string of several lines in a function inside of another": (
        'def make():\n    def train():\n        """Say\n        more."""\n'
        '        a = """a\n        b"""\n        return [a, f"""{a!r}\n    c""", ("d"\n            "e")]\n'
        "    return train\ntrain = make()\n",
        ["a\n        b", "'a\\n        b'\n    c", "de"],
    ),
    "a string that reaches the margin in a function that is indented": (
        "if True:\n    def train():\n        return '''x\ny'''\n",
        "x\ny",
    ),
    "a generic constant inside a tuple of floats": (
        "LIMITS = (float('inf'), -1.5, {'a': [1]})\ndef train():\n    return LIMITS[1] + LIMITS[2]['a'][0]\n",
        -0.5,
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_it_travels(script: Any, call: Any, case: str) -> None:
    source, result = CASES[case]
    said = script.build(source, "train", lazy_local="X = 8\n")
    assert "error" not in said, said
    assert call(script.data.read_bytes()) == result
