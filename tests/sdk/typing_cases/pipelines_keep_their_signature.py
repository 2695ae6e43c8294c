"""Read by mypy, never run: pipelines, loops and conditions are typed as the plain code that they look like."""

from typing import assert_type

import trainlet as tl


@tl.step
def parts(n: int) -> list[int]:
    return [n]


@tl.step
def score(part: int, lr: float = 0.1) -> float:
    return lr


@tl.step
def best(scores: list[float]) -> float:
    return max(scores)


@tl.step
def deploy(accuracy: float) -> None:
    return None


@tl.pipeline
def inner(n: int) -> float:
    return best(tl.each(parts(n), score, max_parallel=2))


@tl.pipeline(name="outer")
def outer(n: int = 1) -> float:
    accuracy = inner(n)
    with tl.when(accuracy > 0.5):
        tl.future(deploy(accuracy)).after(accuracy)
    with tl.on_exit():
        assert_type(tl.run_status()["state"], str)
    return accuracy


assert_type(inner(1), float)
assert_type(tl.each([1], score), list[float])
inner("one")  # type: ignore[arg-type]
tl.each(["a"], score)  # type: ignore[arg-type]
tl.pipeline(nam="x")  # type: ignore[call-overload]
