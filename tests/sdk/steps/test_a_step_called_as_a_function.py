from __future__ import annotations

import pickle

import pytest

import trainlet as tl


@tl.step
def double(x: int, by: int = 2) -> int:
    """Multiply."""
    return x * by


@tl.step(gpu="A100:2")
def train(lr: float, *, ctx: tl.Context) -> tuple[float, str, int]:
    ctx.checkpoint.register(state={})
    assert ctx.checkpoint.restore() is None
    ctx.metrics(1, loss=0.5)
    ctx.progress(1, 2)
    ctx.checkpoint.step(1, metrics={"loss": 0.5})
    assert not ctx.should_stop
    return lr, ctx.gpus[0].sku, len(ctx.gpus)


@tl.step
def outer() -> tuple[str, str]:
    inner: str = whoami()  # type: ignore[call-arg]
    return tl.context().task, inner


@tl.step
def whoami(ctx: tl.Context) -> str:
    return ctx.task


def test_it_runs_the_plain_function() -> None:
    assert double(3) == 6
    assert double(x=3, by=5) == 15
    assert double.__wrapped__(3) == 6  # type: ignore[attr-defined]
    assert double.__name__ == "double"  # type: ignore[attr-defined]
    assert double.__doc__ == "Multiply."


def test_wrong_arguments_raise_what_python_raises() -> None:
    with pytest.raises(TypeError, match="unexpected keyword"):
        double(3, bye=2)  # type: ignore[call-arg]


def test_the_context_is_filled_in_with_virtual_devices() -> None:
    assert train(0.1) == (0.1, "A100-80GB", 2)  # type: ignore[call-arg]


def test_a_context_that_the_caller_gives_is_used() -> None:
    from trainlet.core import detached, specs

    mine = detached.context("mine", specs.Resources())
    assert whoami(ctx=mine) == "plain-call.mine"
    assert whoami(mine) == "plain-call.mine"


def test_a_step_inside_a_step_shares_its_context() -> None:
    from trainlet.core import contexts, detached, specs

    token = contexts.activate(detached.context("around", specs.Resources()))
    try:
        assert outer() == ("plain-call.around", "plain-call.around")
    finally:
        contexts.deactivate(token)
    with pytest.raises(tl.UserError, match="no running step"):
        tl.context()


def test_the_context_of_a_plain_call_ends_with_it() -> None:
    assert whoami() == "plain-call.whoami"  # type: ignore[call-arg]
    with pytest.raises(tl.UserError, match="no running step"):
        tl.context()


def test_a_context_annotation_that_is_a_name_unknown_at_runtime_still_counts() -> None:
    namespace: dict[str, object] = {"tl": tl}
    source = "from __future__ import annotations\ndef late(x: Missing, ctx: tl.Context): return x\n"
    exec(source, namespace)
    assert tl.step(namespace["late"]).signature.context == "ctx"  # type: ignore[call-overload]


def test_a_step_can_be_given_to_a_process_pool() -> None:
    assert pickle.loads(pickle.dumps(double)) is double
