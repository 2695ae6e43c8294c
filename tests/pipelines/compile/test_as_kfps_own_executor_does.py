"""A CPU step and a plain kfp component of the same body, both started as KFP's launcher does, hand over the same.

The plain one runs kfp's own executor. kfp reads no annotations that are strings.
"""

import contextlib
import sys
from pathlib import Path
from typing import Any

import pytest
from kfp import compiler, dsl

import trainlet as tl
from trainlet.client.stores import DirectoryStore
from trainlet.core import bundles

from .conftest import HERE

sys.path.insert(0, str(HERE.parents[1] / "kubeflow"))
from kfp_launcher import Launcher, TaskFailed

GIVEN = {
    "i": 3,
    "f": 2.0,
    "b": True,
    "s": 'two "lines"\nand \u00fc',
    "xs": [1, 2.5, "x", [2]],
    "d": {"a": 1, "b": [{}]},
}


@dsl.component(base_image="python:3.11", install_kfp_package=False)
def plain_numbers(i: int, f: float, b: bool, metrics: dsl.Output[dsl.Metrics]) -> float:
    metrics.log_metric("loss", 0.5)
    metrics.log_metric("rows", 3)
    return i * f if b else 0.0


@tl.step
def numbers(i: int, f: float, b: bool, *, ctx: tl.Context = tl.INJECTED) -> float:
    ctx.metrics(1, loss=0.5, rows=3)
    return i * f if b else 0.0


@dsl.component(base_image="python:3.11", install_kfp_package=False)
def plain_count(i: int, b: bool) -> int:
    return i + int(b)


@tl.step
def count(i: int, b: bool) -> int:
    return i + int(b)


@dsl.component(base_image="python:3.11", install_kfp_package=False)
def plain_text(s: str) -> str:
    return s * 2


@tl.step
def text(s: str) -> str:
    return s * 2


@dsl.component(base_image="python:3.11", install_kfp_package=False)
def plain_both(xs: list, d: dict) -> dict:
    return {"xs": xs, "d": d, "empty": []}


@tl.step
def both(xs: list, d: dict) -> dict:
    return {"xs": xs, "d": d, "empty": []}


@dsl.component(base_image="python:3.11", install_kfp_package=False)
def plain_copy(data: dsl.Input[dsl.Dataset], output: dsl.Output[dsl.Dataset], times: int = 2):
    from pathlib import Path

    Path(output.path).write_text(Path(data.path).read_text() * times)
    output.metadata["times"] = times
    output.metadata["from"] = data.metadata["origin"]


@tl.step
def copy(data: tl.Dataset, times: int = 2) -> tl.Dataset:
    (file := Path("copy.txt")).write_text(data.path.read_text() * times)
    return tl.Dataset.from_path(file, **{"times": times, "from": data.metadata["origin"]})


@dsl.component(base_image="python:3.11", install_kfp_package=False)
def plain_fails(i: int) -> int:
    return i // 0


@tl.step
def fails(i: int) -> int:
    return i // 0


@pytest.fixture
def run(tmp_path: Path) -> Any:
    """Compile one task and start it as the launcher does; returns the launcher."""
    store = DirectoryStore(tmp_path / "store")
    environment = {
        "TRAINLET_STORE": store.url,
        "TRAINLET_HOME": str(tmp_path / "pod"),
        "PATH": f"{Path(sys.executable).parent}:/usr/bin:/bin",
    }

    def started(component: Any, data: Path | None = None, **values: Any) -> Launcher:
        if isinstance(component, tl.Step):
            with contextlib.suppress(FileExistsError):
                store.create(bundles.bundle_key(component.bundle().digest), component.bundle().data)
            component = component.as_component({"token_secret": None})

        @dsl.pipeline(name="one")
        def one():
            if data is not None:
                about = {"origin": "a person"}
                values["data"] = dsl.importer(str(data), dsl.Dataset, metadata=about).output
            component(**values).set_display_name("it")

        path = tmp_path / f"{len(list(tmp_path.iterdir()))}.yaml"
        compiler.Compiler().compile(one, str(path))
        launcher = Launcher(path, tmp_path / path.stem, environment)
        launcher.run()
        return launcher

    return started


def handed(launcher: Launcher) -> tuple[Any, dict[str, Any]]:
    """Return the one parameter and the artifacts' metadata and content, without what only trainlet adds."""
    task = launcher.pods[0].task
    (parameter,) = launcher.outputs[task].values() or [None]
    artifacts = {
        name: (one["metadata"], Path(one["uri"]).read_text() if Path(one["uri"]).exists() else None)
        for name, one in launcher.artifacts[task].items()
        if name in ("metrics", "output")
    }
    for metadata, _ in artifacts.values():
        for ours in ("digest", "size_bytes", "trainlet"):
            metadata.pop(ours, None)
    return parameter, artifacts


@pytest.mark.parametrize(
    ("step", "plain", "names"),
    [
        (numbers, plain_numbers, "ifb"),
        (count, plain_count, "ib"),
        (text, plain_text, "s"),
        (both, plain_both, ["xs", "d"]),
    ],
    ids=["numbers", "count", "text", "both"],
)
def test_parameters_of_every_type_come_and_go_as_kfps_own_do(step: Any, plain: Any, names: Any, run: Any) -> None:
    given = {name: GIVEN[name] for name in names}
    ours, theirs = handed(run(step, **given)), handed(run(plain, **given))
    assert ours == theirs
    assert type(ours[0]) is type(theirs[0])


def test_a_file_and_its_metadata_come_and_go_as_kfps_own_do(run: Any, tmp_path: Path) -> None:
    (data := tmp_path / "data.txt").write_text("row\n")
    ours, theirs = run(copy, data, times=3), run(plain_copy, data, times=3)
    for launcher in (ours, theirs):
        metadata, content = handed_file(launcher)
        assert (metadata, content) == ({"times": 3, "from": "a person"}, "row\n" * 3)


def handed_file(launcher: Launcher) -> tuple[dict[str, Any], str]:
    one = launcher.artifacts[launcher.pods[0].task]["output"]
    kept = {name: value for name, value in one["metadata"].items() if name in ("times", "from")}
    return kept, Path(one["uri"]).read_text()


def test_a_failure_is_an_exit_code_and_hands_over_nothing(run: Any) -> None:
    for component in (fails, plain_fails):
        with pytest.raises(TaskFailed, match="ZeroDivisionError") as error:
            run(component, i=1)
        assert "exit 1" in str(error.value)
