"""Where in the user's code something was written, for messages: `train.py:12`.

Only the path and the line are told; nothing of trainlet's own frames.
"""

from __future__ import annotations

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
    return "" if code is None else _place(code.co_filename, code.co_firstlineno)


def folder_of(function: Callable[..., Any]) -> Path | None:
    """Return the folder of the file that defines a function; None for code that has no file."""
    code = getattr(function, "__code__", None)
    path = Path(code.co_filename) if code is not None else None
    return path.parent if path is not None and path.is_file() else None


def caller() -> str:
    """Return the line of user code that is running now, as `file:line`."""
    frame = sys._getframe(1)
    while frame.f_back is not None and _is_internal(frame.f_code.co_filename):
        frame = frame.f_back
    return _place(frame.f_code.co_filename, frame.f_lineno)


def _is_internal(filename: str) -> bool:
    if filename.startswith(_STANDARD_LIBRARY):
        return "site-packages" not in filename
    return filename.startswith((_OWN, "<frozen"))


def _place(filename: str, line: int) -> str:
    path = Path(filename)
    if not filename.startswith("<"):
        try:
            path = path.relative_to(Path.cwd())
        except ValueError:
            path = Path(path.name) if "ipykernel" in filename else path
    return f"{path}:{line}"
