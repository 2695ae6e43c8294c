"""`cache=True`: what was done with the same code and the same inputs is not done again."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import trainlet as tl

SOURCE = """
from pathlib import Path

import trainlet as tl

SCALE = 2


def note(log, word):
    with open(log, "a") as file:
        file.write(word + " ")


@tl.step
def prepare(source: Path, log: str) -> tl.Dataset:
    note(log, "prepare")
    data = tl.Dataset(rows=1)
    (data.path / "x.txt").write_text(source.read_text().strip())
    return data


@tl.step
def score(data: tl.Dataset, log: str) -> int:
    note(log, "score")
    text = (data.path / "x.txt").read_text()
    if text == "broken":
        raise ValueError("bad data")
    return SCALE * len(text)


@tl.step
def tell(status: dict, log: str) -> None:
    note(log, "tell")


@tl.step
def strange(log: str) -> object:
    note(log, "strange")
    return object()


@tl.pipeline
def scored(source: Path, log: str) -> int:
    with tl.on_exit():
        tell(tl.run_status(), log)
    return score(prepare(source, log), log)


@tl.pipeline
def untravelled(log: str) -> object:
    return strange(log)
"""


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Write the module of the pipeline, with changes, and import it anew."""
    monkeypatch.setenv("TRAINLET_HOME", str(tmp_path / "home"))
    folder = tmp_path / "code"
    folder.mkdir()
    monkeypatch.syspath_prepend(str(folder))

    def written(old: str = "", new: str = "") -> Any:
        sys.modules.pop("cached_pipeline", None)
        importlib.invalidate_caches()
        sys.dont_write_bytecode = True
        (folder / "cached_pipeline.py").write_text(SOURCE.replace(old, new) if old else SOURCE)
        return importlib.import_module("cached_pipeline")

    yield written
    sys.modules.pop("cached_pipeline", None)


@pytest.fixture
def inputs(tmp_path: Path) -> dict[str, Any]:
    (tmp_path / "source.txt").write_text("abc")
    return {"source": tmp_path / "source.txt", "log": str(tmp_path / "log")}


def done(inputs: dict[str, Any]) -> list[str]:
    path = Path(inputs["log"])
    found = path.read_text().split()
    path.unlink()
    return found


def test_equal_code_and_inputs_are_not_done_again_but_the_end_is(
    write: Any, inputs: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    scored = write().scored
    assert scored.local(cache=True, **inputs) == 6
    assert done(inputs) == ["prepare", "score", "tell"]
    assert scored.local(cache=True, **inputs) == 6
    assert done(inputs) == ["tell"]
    assert "trainlet: score is reused from scored-" in capsys.readouterr().err
    assert scored.local(**inputs) == 6
    assert done(inputs) == ["prepare", "score", "tell"], "nothing is reused unless it is asked for"


def test_only_what_follows_from_changed_code_is_done_again(write: Any, inputs: Any) -> None:
    write().scored.local(cache=True, **inputs)
    done(inputs)
    assert write("SCALE = 2", "SCALE = 3").scored.local(cache=True, **inputs) == 9
    assert "score" in done(inputs)


def test_the_content_of_a_file_counts_and_not_its_place(write: Any, inputs: Any, tmp_path: Path) -> None:
    scored = write().scored
    scored.local(cache=True, **inputs)
    done(inputs)
    inputs["source"].write_text("abc ")
    scored.local(cache=True, **inputs)
    assert done(inputs) == ["prepare", "tell"], "another source that prepares to the same data"
    inputs["source"].write_text("abcd")
    assert scored.local(cache=True, **inputs) == 8
    assert done(inputs) == ["prepare", "score", "tell"]


def test_a_run_that_failed_goes_on_from_its_last_good_task(write: Any, inputs: Any) -> None:
    inputs["source"].write_text("broken")
    with pytest.raises(ValueError, match="bad data"):
        write().scored.local(cache=True, **inputs)
    assert done(inputs) == ["prepare", "score", "tell"]
    mended = write('        raise ValueError("bad data")', "        return 1").scored
    assert mended.local(cache=True, isolated=True, **inputs) == 1
    assert done(inputs)[-2:] == ["score", "tell"]


def test_a_result_whose_content_is_gone_is_made_again(write: Any, inputs: Any, tmp_path: Path) -> None:
    scored = write().scored
    scored.local(cache=True, **inputs)
    done(inputs)
    for blob in (tmp_path / "home" / "store" / "trees").rglob("*.json"):
        blob.unlink()
    assert scored.local(cache=True, **inputs) == 6
    assert "prepare" in done(inputs)
    assert scored.local(cache=True, **inputs) == 6
    assert done(inputs) == ["tell"], "the new result took the place of the broken one"


def test_what_cannot_travel_is_done_again_and_said_so(
    write: Any, inputs: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    untravelled = write().untravelled
    for _ in range(2):
        untravelled.local(cache=True, log=inputs["log"])
    assert done(inputs) == ["strange", "strange"]
    assert "the result of strange is not cached: value is a builtins.object" in capsys.readouterr().err


def test_cache_is_no_name_of_a_parameter() -> None:
    with pytest.raises(tl.UserError, match=r"cache= is an option of \.run\(\)"):

        @tl.pipeline
        def wrong(cache: bool) -> None: ...
