"""What a person reads of an exception in their step: their frames, the place in their file, what to do next.

The exception itself never leaves the child, so it need not be possible to pickle it.
"""

from __future__ import annotations

import traceback
from collections.abc import Sequence
from pathlib import Path

from trainlet.core import errors
from trainlet.core.wire import ErrorInfo

MAX_CAUSES = 8
MAX_CHARS = 16_000
_OURS = tuple(f"{Path(file).parents[1]}/" for file in (errors.__file__, __file__))


def describe(error: BaseException, bundle_dir: str) -> ErrorInfo:
    """Turn an exception into words."""
    root = bundle_dir.rstrip("/") + "/"
    frames = list(traceback.extract_tb(error.__traceback__))
    own = [index for index, frame in enumerate(frames) if frame.filename.startswith(root)]
    try:
        last = traceback.format_exception_only(type(error), error)
        message = str(error)
    except Exception:  # noqa: BLE001 - a user's __str__ may raise anything
        message = f"<{type(error).__name__} whose text cannot be shown>"
        last = [f"{type(error).__name__}: {message}\n"]
    on_purpose = isinstance(error, errors.TrainletError)
    blameless = on_purpose or isinstance(error, RecursionError)  # a stack runs out in whichever frame comes last
    told = ""
    if own or not on_purpose:
        summary = traceback.StackSummary.from_list([_relative(one, root) for one in _shown(frames, own, blameless)])
        told = "".join([*_before(error), "Traceback (most recent call last):\n", *summary.format(), *last])
    if isinstance(error, SystemExit):
        message = f"the step called sys.exit({error.code!r})"
    user = isinstance(error, errors.UserError) or not isinstance(error, errors.PlatformError)
    return ErrorInfo(
        kind="memory" if isinstance(error, MemoryError) else "user" if user else "platform",
        type=type(error).__name__,
        message=message[:4000],
        where=f"{frames[own[-1]].filename.removeprefix(root)}:{frames[own[-1]].lineno}" if own else "",
        traceback=_bounded(told),
        hint=_hint(error),
    )


def _shown(
    frames: Sequence[traceback.FrameSummary], own: Sequence[int], blameless: bool
) -> list[traceback.FrameSummary]:
    """Return the frames from the user's first on, without trainlet's between; behind their last, only if it is its fault."""
    if not own:
        return list(frames)
    return [
        frame
        for index, frame in enumerate(frames)
        if index >= own[0] and (not frame.filename.startswith(_OURS) or (index > own[-1] and not blameless))
    ]


def _hint(error: BaseException) -> str:
    if isinstance(error, ModuleNotFoundError) and error.name:
        missing = error.name.partition(".")[0]
        return f"The worker has no module {missing!r}: add the package that brings it to packages=[...] of the step."
    return ""


def _bounded(told: str) -> str:
    """Cut whole lines out of the middle of a traceback that is too long."""
    if len(told) <= MAX_CHARS:
        return told
    head, _, _ = told[: MAX_CHARS // 4].rpartition("\n")
    _, _, tail = told[-(MAX_CHARS * 3 // 4) :].partition("\n")
    return f"{head}\n  ...\n{tail}"


def _before(error: BaseException) -> list[str]:
    """Return what led to an exception, in one paragraph each, the first cause first."""
    lines: list[str] = []
    seen = {id(error)}
    while True:
        cause = error.__cause__
        word = "caused"
        if cause is None and not error.__suppress_context__:
            cause, word = error.__context__, "was being handled when there came"
        if cause is None or id(cause) in seen or len(seen) > MAX_CAUSES:
            return lines
        seen.add(id(cause))
        try:
            text = "".join(traceback.format_exception_only(cause))
        except Exception:  # noqa: BLE001 - a user's __str__ may raise anything
            text = f"{type(cause).__name__}\n"
        lines.insert(0, f"{text}{word}:\n")
        error = cause


def _relative(frame: traceback.FrameSummary, root: str) -> traceback.FrameSummary:
    """Show a bundle's file by its name inside the bundle: the folder means nothing to the user."""
    if not frame.filename.startswith(root):
        return frame
    return traceback.FrameSummary(frame.filename.removeprefix(root), frame.lineno, frame.name, line=frame.line)
