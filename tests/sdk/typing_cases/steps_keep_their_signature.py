"""Read by mypy, never run: a decorated function keeps its parameters and its result."""

from dataclasses import dataclass
from typing import assert_type

import trainlet as tl


@dataclass
class Score:
    loss: float


@tl.step
def bare(x: int, *, name: str = "a") -> Score:
    return Score(float(x))


@tl.step(
    gpu=["H100", "A100:2"], retries=tl.Retries(3), timeout="2h", checkpoint=tl.Checkpoint(every="30m"), ranks="gpu"
)
def with_options(data: tl.Dataset, lr: float, *, ctx: tl.Context = tl.INJECTED) -> tl.Model:
    return tl.Model()


assert_type(bare(1), Score)
assert_type(bare.remote(1, name="b"), Score)
assert_type(bare.map([1, 2], max_parallel=2), list[Score])
assert_type(bare.with_options(gpu="H100")(2), Score)
assert_type(with_options(tl.Dataset(), 0.1), tl.Model)

bare("one")  # type: ignore[arg-type]
bare()  # type: ignore[call-arg]
bare(1, nam="b")  # type: ignore[call-arg]
bare.remote("one")  # type: ignore[arg-type]
bare.spawn("one")  # type: ignore[arg-type]
bare.with_options(gpu=2)  # type: ignore[arg-type]
wrong = bare(1).los  # type: ignore[attr-defined]
tl.step(retires=3)  # type: ignore[call-overload]
tl.step(gpu=2)  # type: ignore[call-overload]
tl.Checkpoint(on_improve=("loss", "mim"))  # type: ignore[arg-type]
