"""What was compiled gives, task by task in processes of their own, what the pipeline gives locally."""

from __future__ import annotations

import contextlib
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from trainlet.client.stores import DirectoryStore
from trainlet.core import bundles

from .conftest import HERE

sys.path.insert(0, str(HERE.parents[1] / "kubeflow"))
from kfp_launcher import Launcher, TaskFailed

pytestmark = pytest.mark.xdist_group("children")


@pytest.fixture
def walk(tmp_path: Path) -> Callable[..., Launcher]:
    """Compile a pipeline of CPU steps, put their bundles into a store, and walk it."""

    def run(pipeline: Any, *, fails: bool = False, **params: Any) -> Launcher:
        store = DirectoryStore(tmp_path / "store")
        for step in pipeline.trace({}).steps.values():
            if hasattr(step, "signature"):
                with contextlib.suppress(FileExistsError):
                    store.create(bundles.bundle_key(step.bundle().digest), step.bundle().data)
        path = pipeline.compile(tmp_path / "pipeline.yaml", {"token_secret": None})
        path_text = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
        environment = {"TRAINLET_STORE": store.url, "TRAINLET_HOME": str(tmp_path / "pod"), "PATH": path_text}
        launcher = Launcher(path, tmp_path / "root", environment)
        with pytest.raises(TaskFailed) if fails else contextlib.nullcontext():
            launcher.run(**params)
        return launcher

    return run


def value(launcher: Launcher, task: str) -> Any:
    return json.loads(launcher.outputs[task]["output"])


def test_numbers_keep_their_kind_through_kfps_doubles(walk: Any, constructs: Any) -> None:
    done = walk(constructs.kinds, layers=[3, 4])
    assert value(done, "describe") == "[2.0, 3, [3, 4], {'a': 1.0}, None, True]"
    assert constructs.kinds.local(layers=[3, 4]) == value(done, "describe")


def test_text_that_looks_like_a_placeholder_arrives_as_it_was_written(walk: Any, constructs: Any) -> None:
    done = walk(constructs.quotes)
    assert value(done, "describe") == constructs.quotes.local()


@pytest.mark.parametrize(
    ("lr", "deep", "entered"),
    [(0.5, False, ["good"]), (-0.5, False, ["bad", "slow"]), (0.2, True, ["good"]), (float(10**9), True, ["good"])],
)
def test_only_the_branches_whose_condition_holds_are_walked(
    lr: float, deep: bool, entered: list[str], walk: Any, constructs: Any
) -> None:
    done = walk(constructs.branches, lr=lr, deep=deep)
    said = [json.loads(one["output"]) for name, one in done.outputs.items() if "describe" in name]
    assert sorted(said) == sorted(entered)


def test_loops_collect_in_the_order_of_their_items(walk: Any, constructs: Any) -> None:
    done = walk(constructs.loops, count=3)
    assert value(done, "total") == constructs.loops.local(count=3) == 6.0
    assert value(done, "describe-3") == "[{'name': 'a', 'text': 'a'}, {'name': 'b', 'text': 'b'}]"
    assert value(done, "describe-4") == "[[4, 5], [5, 6]]"
    said = [json.loads(one["output"]) for name, one in done.outputs.items() if name.endswith("/describe")]
    assert sorted(said) == ["0.1", "2.0"], "a float that is whole stays a float"


def test_the_step_at_the_end_learns_how_the_run_went(walk: Any, constructs: Any) -> None:
    done = walk(constructs.ends)
    assert "'state': 'succeeded', 'error': None" in next(pod.stdout for pod in done.pods if pod.task == "tell")
    failed = walk(constructs.ends_badly, fails=True)
    assert "'state': 'failed'" in next(pod.stdout for pod in failed.pods if pod.task == "tell")
    assert "ZeroDivisionError" in next(pod.stdout for pod in failed.pods if pod.task == "divide")


def test_several_steps_at_the_end_are_one_box_that_learns_how_the_run_went(walk: Any, constructs: Any) -> None:
    done = walk(constructs.ends_with_several, who="you")
    assert [pod.task for pod in done.pods if pod.stdout.startswith("{'state': 'succeeded'")] == ["tell"]
    assert "on-exit/tell" in done.outputs and not any("describe" in name for name in done.outputs)
    failed = walk(constructs.several_badly, fails=True)
    assert value(failed, "on-exit/describe") == "failed"


def test_boxes_pass_files_loops_and_importers_between_each_other(walk: Any, constructs: Any, tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "x.txt").write_text("1234")
    done = walk(constructs.boxes, rates=[1.0, 2.0], uri=str(tmp_path / "data"))
    assert value(done, "describe") == "[12.0, 13.0]"
    assert value(done, "read") == "written by kfp: 4"
    assert done.outputs["twice/halve-2"]["Output"] == 25 / 4
    assert "fan/for-loop-1.1/fan-inner/fan-inner-add-2" in done.outputs, "each box is a sub-DAG of its own"
    assert done.artifacts["importer"]["artifact"]["metadata"] == {"from": "here"}


def test_a_pipeline_inside_another_gives_the_same_as_locally(walk: Any, constructs: Any) -> None:
    done = walk(constructs.nested, value=2.0)
    assert value(done, "add") == constructs.nested.local(value=2.0)


def test_native_components_take_and_give_values_and_files(walk: Any, constructs: Any) -> None:
    done = walk(constructs.mixed, text="a\nb\nc")
    assert value(done, "describe") == "[3, 1.5, 'written by kfp: 9']"
    native = done.artifacts["measure"]["copy"]
    assert native["metadata"] == {"rows": 9.0} or native["metadata"] == {"rows": 9}
