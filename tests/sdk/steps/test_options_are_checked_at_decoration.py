from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

import trainlet as tl
from trainlet.core import specs


def plain(x: int) -> int:
    return x + 1


def test_options_are_read_in_each_spelling() -> None:
    made = tl.step(
        gpu="A100:2",
        cpu="500m",
        memory="16Gi",
        retries=3,
        timeout="2h",
        checkpoint=tl.Checkpoint(every="30m", on_improve=("val_loss", "min")),
        ranks="gpu",
        secrets=["hf-token"],
        max_workers=4,
        grace=timedelta(minutes=1),
    )(plain)
    found = made.options
    assert found.resources == specs.Resources(
        gpus=(specs.GpuRequest(sku="A100-80GB", count=2),), cpu=0.5, memory_bytes=16 * 2**30
    )
    assert (found.retries.times, found.timeout_s, found.ranks, found.grace_s) == (3, 7200, 2, 60)
    assert found.checkpoint == specs.CheckpointPolicy(every_s=1800, on_improve=("val_loss", "min"))
    assert (found.secrets, found.max_workers, found.allow_pickle) == (("hf-token",), 4, False)


@pytest.mark.parametrize(
    ("written", "policy"),
    [
        ("10m", specs.CheckpointPolicy(every_s=600)),
        (30, specs.CheckpointPolicy(every_s=30)),
        (True, specs.CheckpointPolicy()),
        (False, None),
    ],
)
def test_a_checkpoint_is_a_time_a_bool_or_an_object(written: Any, policy: Any) -> None:
    assert tl.step(checkpoint=written)(plain).options.checkpoint == policy


def test_a_step_runs_as_a_service_unless_it_says_job() -> None:
    assert tl.step(plain).spec().backend == "service"
    assert tl.step(backend="job")(plain).spec().backend == "job"
    assert tl.step(plain).with_options(backend="job").spec().backend == "job"


def test_retries_are_a_number_or_an_object() -> None:
    assert tl.step(retries=2)(plain).options.retries.times == 2
    slow = tl.step(retries=tl.Retries(5, delay="10s", max_delay="5m"))(plain).options.retries
    assert (slow.times, slow.delay_s, slow.max_delay_s) == (5, 10, 300)


@pytest.mark.parametrize(
    ("given", "hint"),
    [
        ({"retires": 3}, "'retries'"),
        ({"gpus": "A100"}, "'gpu'"),
        ({"gpu": "A1000"}, "'A100"),
        ({"timeout": "2 hous"}, '"2h"'),
        ({"timeout": 0}, "longer than zero"),
        ({"memory": "16gi"}, '"16Gi"'),
        ({"cpu": "many"}, "500m"),
        ({"cpu": 0}, "cpu=0"),
        ({"retries": -1}, "retries=0"),
        ({"retries": 101}, "retries=100"),
        ({"retries": True}, "whole number"),
        ({"retries": 2.5}, "whole number"),
        ({"ranks": "gpu"}, 'gpu="A100:2"'),
        ({"ranks": "gpus"}, '"gpu"'),
        ({"ranks": 0}, "ranks=1"),
        ({"ranks": "gpu", "gpu": ["H100:2", "A100:4"]}, "same count"),
        ({"ranks": 3, "gpu": "A100:2"}, 'ranks="gpu"'),
        ({"checkpoint": "often"}, "checkpoint="),
        ({"checkpoint": object()}, "tl.Checkpoint"),
        ({"packages": "torch==2.4.1"}, 'packages=["torch==2.4.1"]'),
        ({"packages": "missing-requirements.txt"}, "no such file"),
        ({"packages": []}, "does nothing"),
        ({"secrets": []}, "does nothing"),
        ({"secrets": "hf-token"}, 'secrets=["hf-token"]'),
        ({"secrets": ["HF_TOKEN"]}, '"hf-token"'),
        ({"secrets": ["a", "a"]}, "twice"),
        ({"name": "My Step"}, 'name="my-step"'),
        ({"image": ""}, "image="),
        ({"max_workers": 0}, "max_workers=1"),
        ({"max_workers": 5000}, "max_workers=1000"),
        ({"grace": "-1s"}, "grace="),
        ({"allow_pickle": "yes"}, "True or False"),
        ({"backend": "jobs"}, "'job'"),
        ({"backend": "knative"}, "service, job"),
    ],
)
def test_a_wrong_option_is_an_error_that_says_what_is_right(given: dict[str, Any], hint: str) -> None:
    with pytest.raises(tl.UserError) as caught:
        tl.step(**given)(plain)
    assert hint in str(caught.value)
    assert "test_options_are_checked_at_decoration.py" in str(caught.value), "the message says where the step is"


@pytest.mark.parametrize(
    ("given", "hint"),
    [
        ({"on_sigterm": False}, "never saves"),
        ({"on_improve": "val_loss"}, '("val_loss", "min")'),
        ({"on_improve": ("val_loss", "mim")}, "'min'"),
        ({"on_improve": ("", "min")}, "empty"),
        ({"every": "0s"}, "longer than zero"),
        ({"on_sigterm": "yes"}, "True or False"),
        ({"keep": tl.Keep(best=5)}, "on_improve="),
    ],
)
def test_a_checkpoint_that_contradicts_itself_is_an_error(given: dict[str, Any], hint: str) -> None:
    with pytest.raises(tl.UserError) as caught:
        tl.Checkpoint(**given)
    assert hint in str(caught.value)


@pytest.mark.parametrize("given", [{"times": -1}, {"times": True}, {"factor": 0.5}, {"delay": "2m", "max_delay": "1m"}])
def test_retries_that_contradict_themselves_are_an_error(given: dict[str, Any]) -> None:
    with pytest.raises(tl.UserError, match="Retries"):
        tl.Retries(**given)


def test_packages_are_kept_as_a_list_or_as_the_path_of_a_file(tmp_path: Path) -> None:
    file = tmp_path / "requirements.txt"
    file.write_text("numpy==2.1.0\n")
    assert tl.step(packages=["numpy==2.1.0"])(plain).options.packages == ("numpy==2.1.0",)
    assert tl.step(packages=file)(plain).options.packages == file


def test_a_requirements_file_is_found_beside_the_step(tmp_path: Path) -> None:
    (tmp_path / "requirements.txt").write_text("numpy\n")
    made = tl.step(packages="requirements.txt")(from_file(tmp_path / "module.py"))
    assert made.options.packages == tmp_path / "requirements.txt"


def test_a_requirements_file_that_was_locked_is_not_wanted_inside_a_bundle(tmp_path: Path) -> None:
    (tmp_path / "trainlet.json").write_text("{}")
    (tmp_path / "package").mkdir()
    function = from_file(tmp_path / "package" / "module.py")
    assert tl.step(packages="requirements.txt")(function).options.packages == Path("requirements.txt")


def from_file(path: Path) -> Any:
    """Return the function `late` of a module written to path."""
    path.write_text("def late(x): return x\n")
    namespace: dict[str, Any] = {}
    exec(compile(path.read_text(), str(path), "exec"), namespace)
    return namespace["late"]


def test_positional_options_are_an_error_with_the_corrected_line() -> None:
    with pytest.raises(tl.UserError, match=r'Write @tl.step\(gpu="A100"\)'):
        tl.step("A100")  # type: ignore[call-overload]


def test_with_options_is_a_changed_copy() -> None:
    first = tl.step(gpu="A100", retries=2)(plain)
    second = first.with_options(gpu="H100", name="faster")
    assert (first.options.resources.gpus[0].sku, first.name) == ("A100-80GB", "tests-plain")
    assert (second.options.resources.gpus[0].sku, second.name) == ("H100-80GB", "faster")
    assert second.options.retries.times == 2
    with pytest.raises(tl.UserError, match="'retries'"):
        first.with_options(retires=1)
