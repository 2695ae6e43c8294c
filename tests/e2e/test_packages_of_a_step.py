"""A step with packages of its own runs on a worker with exactly these, installed once for all of its attempts."""

from __future__ import annotations

import importlib
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest
from tests import tiny_wheels

pytestmark = [pytest.mark.timeout(300), pytest.mark.xdist_group("around")]

SOURCE = """
import sys
import trainlet as tl

@tl.step(packages=["tinything==1.0"], retries=1)
def version(path: str, *, ctx: tl.Context = tl.INJECTED) -> list[str]:
    import tinything
    with open(path, "a") as file:
        file.write(sys.prefix + "\\n")
    if ctx.attempt == 1:
        raise ValueError("again, please")
    return [tinything.VERSION, tinything.__file__]
"""


def test_a_step_has_its_packages_on_a_worker_and_its_attempts_share_one_environment(
    alone: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tiny_wheels.offer(tmp_path, monkeypatch)
    folder = tmp_path / "mine"
    folder.mkdir()
    (folder / "packed.py").write_text(textwrap.dedent(SOURCE))
    monkeypatch.syspath_prepend(str(folder))
    sys.modules.pop("packed", None)
    prefixes = tmp_path / "prefixes"

    run = importlib.import_module("packed").version.spawn(str(prefixes))
    said, file = run.result(150)

    assert said == "1.0"
    environments = alone.path / "environments"
    assert Path(file).is_relative_to(environments)
    first, second = prefixes.read_text().splitlines()
    assert first == second and Path(first).parent == environments
    folders = [path for path in environments.iterdir() if path.is_dir() and not path.is_symlink()]
    kept = [path for path in folders if path.name != "downloads"]
    assert kept == [Path(first)]
    assert [attempt.state for attempt in run.tasks[0].attempts] == ["failed", "succeeded"]
