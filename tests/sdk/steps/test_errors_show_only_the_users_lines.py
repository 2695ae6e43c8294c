from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

SCRIPT = """
import sys
import trainlet as tl

handle = open(__file__)

@tl.step
def load(rows: int, *, limit: int = 3) -> int:
    read = rows
    return len(handle.read())

@tl.step
def count() -> int:
    return 1

@tl.pipeline
def flow():
    print(f"{count()}")

if sys.argv[1] == "option":
    @tl.step(gpu="A10O")
    def wrong(): ...
elif sys.argv[1] == "arguments":
    load.remote(1, 2)
elif sys.argv[1] == "value":
    load.remote(1)
else:
    flow.run()
"""


def errors_of(folder: Path, what: str, **environment: str) -> list[str]:
    script = folder / "mine.py"
    script.write_text(textwrap.dedent(SCRIPT))
    done = subprocess.run(
        [sys.executable, script.name, what],
        cwd=folder,
        env={**os.environ, "TRAINLET_HOME": str(folder / "home"), **environment},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    return done.stderr.splitlines()


@pytest.mark.parametrize(
    ("what", "says", "own_frames"),
    [
        ("option", "mine.py:21: @tl.step on wrong: gpu='A10O'", 1),
        ("arguments", "mine.py:24: load() takes 1 positional argument and got 2. It is load(rows, *, limit=3)", 1),
        (
            "value",
            "mine.py:10: load() uses 'handle', which is an open file and cannot travel; open it inside load()",
            1,
        ),
        ("future", "mine.py:18: count is used in an f-string", 2),
    ],
)
def test_an_error_shows_the_persons_lines_and_none_of_trainlet(
    tmp_path: Path, what: str, says: str, own_frames: int
) -> None:
    lines = errors_of(tmp_path, what)
    frames = [line for line in lines if line.lstrip().startswith("File ")]
    assert says in lines[-1]
    assert len(frames) == own_frames, lines
    assert all("mine.py" in frame for frame in frames)


def test_trainlets_own_frames_can_be_seen(tmp_path: Path) -> None:
    lines = errors_of(tmp_path, "arguments", TRAINLET_DEBUG="1")
    assert any("signatures.py" in line for line in lines)
