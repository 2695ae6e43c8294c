"""What KFP cannot do, and what can never work, is one clear sentence before anything runs."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import trainlet as tl
from trainlet_pipelines.kubeflow import checks


@tl.step
def text() -> str:
    return "a"


@tl.step
def number(value: int) -> int:
    return value


@tl.step
def ratio(value: float) -> float:
    return value


@tl.step
def model() -> tl.Model:
    return tl.Model()


@tl.step
def dataset(data: tl.Dataset) -> None: ...


@tl.step
def anything(value: object) -> object:
    return value


def refusal(pipeline: Any, tmp_path: Path) -> str:
    with pytest.raises(tl.UserError) as error:
        pipeline.compile(tmp_path / "p.yaml")
    return str(error.value)


def test_results_that_do_not_fit_are_named_with_both_annotations(tmp_path: Path) -> None:
    @tl.pipeline
    def wrong() -> None:
        number(text())

    @tl.pipeline
    def files() -> None:
        dataset(model())

    assert "number(value=...) takes int, but text is str" in refusal(wrong, tmp_path)
    assert "takes tl.Dataset, but model is tl.Model" in refusal(files, tmp_path)


def test_an_int_fits_a_float_and_what_is_not_annotated_fits_all(tmp_path: Path) -> None:
    @tl.pipeline
    def fine() -> None:
        ratio(number(1))
        number(anything(text()))

    fine.compile(tmp_path / "p.yaml")


def test_an_exit_block_with_nothing_in_it_says_so(tmp_path: Path) -> None:
    @tl.pipeline
    def ends() -> None:
        with tl.on_exit():
            pass
        model()

    assert "tl.on_exit holds nothing" in refusal(ends, tmp_path)


def test_pipelines_that_feed_each_other_step_by_step_are_laid_open(ir: Any) -> None:
    @tl.pipeline
    def pair() -> list:
        return [anything(1), anything(2)]

    @tl.pipeline
    def crossed() -> None:
        first, second = pair()
        other = tl.future(anything(first))
        tl.future(second).after(other)

    tasks = ir(crossed)["root"]["dag"]["tasks"]
    assert set(tasks) == {"pair-anything", "pair-anything-2", "anything"}
    assert tasks["pair-anything-2"]["dependentTasks"] == ["anything"]


def test_what_an_importer_cannot_take_is_said_where_it_is_called(tmp_path: Path) -> None:
    from kfp import dsl

    @tl.pipeline
    def number() -> None:
        anything(tl.from_kfp(dsl.importer)(artifact_uri=3))

    @tl.pipeline
    def kind() -> None:
        anything(tl.from_kfp(dsl.importer)(artifact_uri="s3://a", artifact_class=int))

    @tl.pipeline
    def late() -> None:
        anything(tl.from_kfp(dsl.importer)(artifact_uri="s3://a", metadata={"a": text()}))

    @tl.pipeline
    def far(uri: str = "s3://bucket/data") -> None:
        dataset(tl.from_kfp(dsl.importer)(artifact_uri=uri))

    assert "artifact_uri=3 is no address" in refusal(number, tmp_path)
    assert "is no artifact, such as tl.Dataset" in refusal(kind, tmp_path)
    assert "holds JSON values only" in refusal(late, tmp_path)
    far.compile(tmp_path / "p.yaml")
    with pytest.raises(tl.UserError, match="imported by Kubeflow Pipelines only"):
        far.local()
    (tmp_path / "data").write_text("a")
    far.local(uri=str(tmp_path / "data"))


def test_a_constant_that_is_too_long_for_linux_says_how_long_it_is(tmp_path: Path) -> None:
    @tl.pipeline
    def big() -> None:
        anything(["x" * 200_000])

    assert "take 200" in refusal(big, tmp_path) and "at most 131072" in refusal(big, tmp_path)


def test_a_constant_that_is_no_json_says_so(tmp_path: Path) -> None:
    @tl.pipeline
    def strange() -> None:
        anything(b"bytes")

    assert "holds a bytes as a constant, which is not JSON" in refusal(strange, tmp_path)


def test_native_components_say_what_they_take_and_give(constructs: Any, tmp_path: Path) -> None:
    scan, count = tl.from_kfp(constructs.scan), tl.from_kfp(constructs.count_rows)

    @tl.pipeline
    def unnamed() -> None:
        anything(scan(data=constructs.prepare()))

    @tl.pipeline
    def misspelt() -> None:
        anything(scan(data=constructs.prepare())["fond"])

    @tl.pipeline
    def typed() -> None:
        count(text=number(1))

    assert "has 2 outputs, and none is named" in refusal(unnamed, tmp_path)
    assert "has no output 'fond'. Write result[\"...\"] with one of: found, cleaned" in refusal(misspelt, tmp_path)
    assert "count-rows(text=...) takes str, but number is int" in refusal(typed, tmp_path)


@pytest.mark.parametrize(
    ("arguments", "words"), [({"txt": "a"}, "has no input 'txt'. It has: text, least"), ({}, "misses text")]
)
def test_arguments_of_a_native_component_are_checked_where_it_is_called(
    arguments: dict, words: str, constructs: Any, tmp_path: Path
) -> None:
    @tl.pipeline
    def called() -> None:
        tl.from_kfp(constructs.count_rows)(**arguments)

    assert words in refusal(called, tmp_path)


def test_only_a_component_of_kfp_is_taken_for_one() -> None:
    with pytest.raises(tl.UserError, match=r"tl\.from_kfp needs a KFP component"):
        tl.from_kfp(print)


def test_a_native_component_runs_locally_if_it_takes_parameters_only(constructs: Any) -> None:
    @tl.pipeline
    def counted() -> int:
        return tl.from_kfp(constructs.count_rows)(text="a\nb")

    @tl.pipeline
    def scanned() -> None:
        tl.from_kfp(constructs.scan)(data=constructs.prepare())

    assert counted.local() == 2
    with pytest.raises(tl.UserError, match="which only Kubeflow Pipelines runs"):
        scanned.local()


@pytest.mark.parametrize(
    ("target", "words"),
    [
        ({"imag": "dispatch:1"}, "A target has no field 'imag'. Did you mean 'image'"),
        ({"transport_retries": -1}, "The target's transport_retries is -1: Input should be greater"),
        ({"pod_token": True, "token_secret": "mine"}, "pod_token and token_secret are two ways to the same API"),
    ],
)
def test_a_target_that_is_wrong_is_one_sentence(target: dict, words: str, tmp_path: Path) -> None:
    @tl.pipeline
    def fine() -> None:
        number(1)

    with pytest.raises(tl.UserError) as error:
        fine.compile(tmp_path / "p.yaml", target)
    assert words in str(error.value)


def test_without_kfp_the_error_says_how_to_get_it(tmp_path: Path) -> None:
    code = (
        "import sys; sys.modules['kfp'] = None\nimport trainlet as tl\n"
        "@tl.pipeline\ndef p(): pass\n"
        f"try: p.compile({str(tmp_path / 'p.yaml')!r})\nexcept tl.UserError as error: print(error)"
    )
    script = tmp_path / "script.py"
    script.write_text(code)
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, check=True)
    assert "pip install 'trainlet[kfp]'" in done.stdout


def test_a_pipeline_that_is_too_big_for_kubernetes_is_a_problem(tmp_path: Path) -> None:
    @tl.pipeline
    def long() -> None:
        for index in range(5):
            anything(["x" * 100_000, index])

    report = checks.check(long.compile(tmp_path / "p.yaml"))
    assert len(report.tasks) == 5 and report.workflow_bytes > checks.WORKFLOW_BYTES
    assert "Use tl.each for steps that repeat" in report.problems[0]


def test_the_check_says_where_each_task_runs_and_whether_it_is_reused(constructs: Any, tmp_path: Path) -> None:
    report = checks.check(constructs.natives.compile(tmp_path / "p.yaml"))
    does = {task.name: task.does for task in report.tasks}
    assert does["train"] == "waits for the training API" and does["prepare"] == "runs in its pod"
    assert does["count-rows"] == "KFP component"
    deciding = checks.check(constructs.branches.compile(tmp_path / "b.yaml"))
    assert {task.name: task.does for task in deciding.tasks}["when-decides"] == "evaluates a condition"
    assert all(task.cached for task in report.tasks) and not report.problems
