"""Where in the user's code something was written, for messages: `train.py:12`, or `cell In[3], line 2` of a notebook.

Only the path and the line are told; nothing of trainlet's own frames.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

_OWN = str(Path(__file__).parent) + os.sep
_STANDARD_LIBRARY = str(Path(os.__file__).parent) + os.sep


def of(function: Callable[..., Any]) -> str:
    """Return where a function is defined, as `file:line`; empty when it has no code."""
    code = getattr(function, "__code__", None)
    return "" if code is None else place(code.co_filename, code.co_firstlineno)


def folder_of(function: Callable[..., Any]) -> Path | None:
    """Return the folder of the file that defines a function; None for code that has no file."""
    code = getattr(function, "__code__", None)
    path = Path(code.co_filename) if code is not None else None
    return path.parent if path is not None and path.is_file() else None


def caller() -> str:
    """Return the line of user code that is running now, as `file:line`."""
    running = sys._getframe(1)
    while running.f_back is not None and is_internal(running.f_code.co_filename):
        running = running.f_back
    return place(running.f_code.co_filename, running.f_lineno)


def is_internal(filename: str) -> bool:
    """Say whether a file is trainlet's or the standard library's."""
    if filename.startswith(_STANDARD_LIBRARY):
        return "site-packages" not in filename
    return filename.startswith((_OWN, "<frozen"))


def place(filename: str, line: int) -> str:
    """Return a place as a person knows it: the number of a notebook's cell, or a path from the working directory."""
    cell = _cell(filename)
    if cell is not None:
        return f"cell {cell}, line {line}"
    path = Path(filename)
    if not filename.startswith("<"):
        with contextlib.suppress(ValueError):
            path = path.relative_to(Path.cwd())
    return f"{path}:{line}"


def frame(filename: str, line: int) -> str:
    """Return a place as a traceback writes it."""
    cell = _cell(filename)
    return f'File "{filename}", line {line}' if cell is None else f"Cell {cell}, line {line}"


def _cell(filename: str) -> str | None:
    """Return the name of the notebook cell that IPython compiled under this file name."""
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    name_of = getattr(getattr(shell, "compile", None), "format_code_name", None)
    named = None if name_of is None else name_of(filename)
    return str(named[1]) if named and named[0] == "Cell" else None
