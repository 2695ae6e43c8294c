"""Where a person's code enters trainlet: an error that trainlet raises on purpose shows their lines, not how it was found.

Such an error's message says what, where and what to do; frames of trainlet itself would only push it off the screen.
TRAINLET_DEBUG=1 keeps them. Every other exception is somebody's fault, and keeps all of its frames.
"""

from __future__ import annotations

import functools
import os
import types
from collections.abc import Callable
from typing import Any, TypeVar, cast

from trainlet import locations
from trainlet.core.errors import TrainletError

_OURS = ("trainlet", "trainlet_pipelines", "trainlet_functions")
_Entered = TypeVar("_Entered", bound=Callable[..., Any])


def boundary(function: _Entered) -> _Entered:
    """Let errors of trainlet leave this function without the frames of trainlet."""

    @functools.wraps(function)
    def enter(*args: Any, **kwargs: Any) -> Any:
        try:
            return function(*args, **kwargs)
        except TrainletError as error:
            if not os.environ.get("TRAINLET_DEBUG"):
                error.__traceback__ = _of_others(error.__traceback__)
            raise

    return cast(_Entered, enter)


def _of_others(first: types.TracebackType | None) -> types.TracebackType | None:
    """Return the traceback without trainlet's frames: what is left is code that trainlet called, such as a pipeline's."""
    kept: list[types.TracebackType] = []
    while first is not None:
        frame = first.tb_frame
        ours = str(frame.f_globals.get("__name__")).partition(".")[0] in _OURS
        if not ours and not locations.is_internal(frame.f_code.co_filename):
            kept.append(first)
        first = first.tb_next
    shown: types.TracebackType | None = None
    for one in reversed(kept):
        shown = types.TracebackType(shown, one.tb_frame, one.tb_lasti, one.tb_lineno)
    return shown
