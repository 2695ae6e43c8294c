"""Tracebacks for the person whose code it is: from their first line on, without what trainlet did before it."""

from __future__ import annotations

import sysconfig
import traceback
from pathlib import Path

import trainlet
import trainlet_pipelines

_OTHERS = (
    *(str(Path(path or "").parent) for path in (trainlet.__file__, trainlet_pipelines.__file__)),
    *(sysconfig.get_path(name) for name in ("stdlib", "purelib", "platlib")),
    "<frozen ",
)


def own_frames(error: BaseException) -> list[traceback.FrameSummary]:
    """Return the frames from the first one in a file of the person; none when it never got there."""
    frames = list(traceback.extract_tb(error.__traceback__))
    for index, frame in enumerate(frames):
        if not frame.filename.startswith(_OTHERS):
            return frames[index:]
    return []


def is_own(error: BaseException) -> bool:
    """Say whether the error comes from the person's code."""
    return isinstance(error, SyntaxError) or bool(own_frames(error))


def text_of(error: BaseException) -> str:
    """Return the traceback from the person's first line on."""
    frames = own_frames(error)
    lines: list[str] = []
    if frames:
        lines += ["Traceback (most recent call last):\n", *traceback.StackSummary.from_list(frames).format()]
    return "".join([*lines, *traceback.format_exception_only(type(error), error)]).rstrip()
