from __future__ import annotations

import importlib.util
from collections.abc import Callable
from pathlib import Path

import pytest

from trainlet.core.errors import UserError
from trainlet.core.wire import ErrorInfo
from trainlet_functions.child import failures

CODE = """
import trainlet as tl

@tl.step
def again(n):
    return again(n + 1)

@tl.step
def wrong_option(n):
    return tl.step(gpu="A10O")(again)

@tl.step
def missing(n):
    import no_such_module.part

@tl.step
def long_text(n):
    raise ValueError("\\n".join(f"line {i}" for i in range(5000)))
"""

Told = Callable[[str], ErrorInfo]


@pytest.fixture
def told(tmp_path: Path) -> Told:
    """Call a step of a bundle's module and return what is told of its failure."""
    path = tmp_path / "mine.py"
    path.write_text(CODE)
    spec = importlib.util.spec_from_file_location("mine", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)

    def fail(name: str) -> ErrorInfo:
        with pytest.raises(Exception) as caught:
            getattr(module, name)(1)
        return failures.describe(caught.value, str(tmp_path))

    return fail


def test_endless_recursion_fits_a_screen_and_shows_no_frame_of_trainlet(told: Told) -> None:
    def deeper(frames: int) -> ErrorInfo:
        return deeper(frames - 1) if frames else told("again")

    for frames in range(8):  # the stack runs out in the user's code, or in what trainlet does for a call of it
        info = deeper(frames)
        assert info.where == "mine.py:6" and info.type == "RecursionError"
        assert "more times]" in info.traceback
        assert "steps.py" not in info.traceback and "tracing.py" not in info.traceback
        assert len(info.traceback.splitlines()) < 40


def test_an_error_that_trainlet_raises_on_purpose_ends_at_the_users_line(told: Told) -> None:
    info = told("wrong_option")
    assert info.where == "mine.py:10"
    assert info.traceback.splitlines()[-2].strip() == 'return tl.step(gpu="A10O")(again)'


def test_an_error_that_no_line_of_the_user_raised_needs_no_traceback(tmp_path: Path) -> None:
    info = failures.describe(UserError("the result cannot travel"), str(tmp_path))
    assert (info.message, info.traceback, info.where) == ("the result cannot travel", "", "")


def test_a_module_that_the_worker_lacks_is_named_with_the_option_that_brings_it(told: Told) -> None:
    assert told("missing").hint == (
        "The worker has no module 'no_such_module': add the package that brings it to packages=[...] of the step."
    )


def test_a_traceback_that_is_too_long_loses_whole_lines_of_its_middle(told: Told) -> None:
    lines = told("long_text").traceback.splitlines()
    assert lines[0] == "Traceback (most recent call last):" and lines[-1] == "line 4999"
    assert "  ..." in lines and sum(map(len, lines)) < failures.MAX_CHARS
