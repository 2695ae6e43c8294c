from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import trainlet as tl

if TYPE_CHECKING:
    from tests.sdk.conftest import Platform


@tl.step
def work(x: Any, lr: float = 0.1) -> Any:
    return x


@tl.pipeline
def digits(x: Any, lr: float = 0.1) -> Any:
    return work([x, work((1, 2))], lr)


def test_run_starts_the_graph_with_the_values_that_wait_to_be_encoded(platform: Platform) -> None:
    run: Any = digits.run(x={1}, budget="2 USD", tags={"team": "vision"})
    (started,) = platform.started
    assert run is started
    assert started.params == {"x": {1}, "$const-1": (1, 2)}
    assert started.graph.parameters == {"lr": 0.1}
    assert started.graph.required == ("x", "$const-1")
    assert (started.budget_nano, started.tags) == (2 * 10**9, {"team": "vision"})
    assert started.steps == {"tests-work": work}
    assert {node.digest for node in started.graph.nodes} == {work.spec().digest()}


def test_local_runs_without_bundling(platform: Platform, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_bundle(step: Any) -> None:
        raise AssertionError("a local run does not bundle")

    monkeypatch.setattr(tl.Step, "bundle", no_bundle)
    platform.answer = 3
    assert digits.local(x=1) == 3
    assert {node.digest for node in platform.started[0].graph.nodes} == {"0" * 64}


def test_an_isolated_local_run_bundles_its_steps(platform: Platform) -> None:
    digits.local(x=1, isolated=True)
    assert platform.started[0].tags == {"isolated": "True"}
    assert {node.digest for node in platform.started[0].graph.nodes} == {work.spec().digest()}


def test_a_wrong_or_missing_parameter_is_an_error_before_anything_starts(platform: Platform) -> None:
    with pytest.raises(tl.UserError, match="Did you mean 'lr'"):
        digits.run(x=1, lrr=0.2)
    with pytest.raises(tl.UserError, match="misses 'x'"):
        digits.local()
    with pytest.raises(tl.UserError, match="budget="):
        digits.run(x=1, budget="free")
    assert platform.started == []


def test_a_step_is_bundled_once_for_all_its_calls(platform: Platform, monkeypatch: pytest.MonkeyPatch) -> None:
    from trainlet import bundles

    built: list[Any] = []
    build = bundles.build

    def counted(function: Any, **more: Any) -> Any:
        built.append(function)
        return build(function, **more)

    monkeypatch.setattr(bundles, "build", counted)

    @tl.pipeline
    def many() -> None:
        for index in range(50):
            work(index)

    many.run()
    assert len(built) == 1


def test_compile_refuses_a_constant_that_is_not_json(platform: Platform, tmp_path: Path) -> None:
    @tl.pipeline
    def raw() -> None:
        work({1, 2})

    with pytest.raises(tl.UserError, match="set as a constant"):
        raw.compile(tmp_path / "raw.yaml")


@pytest.mark.slow
def test_compile_writes_a_kubeflow_pipeline(platform: Platform, tmp_path: Path) -> None:
    pytest.importorskip("kfp")

    @tl.pipeline
    def plain(lr: float = 0.1) -> Any:
        return work(work(1), lr)

    text = Path(plain.compile(tmp_path / "plain.yaml")).read_text()
    assert "trainlet_pipelines.execute" in text
    assert "work-2" in text


def test_a_parameter_named_like_an_option_of_run_is_an_error() -> None:
    def wants(budget: float) -> None:
        return None

    with pytest.raises(tl.UserError, match="Rename the parameter"):
        tl.pipeline(wants)
