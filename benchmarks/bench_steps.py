"""The steps and pipelines that the measurements run."""

from __future__ import annotations

import time

import trainlet as tl


@tl.step
def noop(value: int) -> int:
    """Return what it is given."""
    return value


@tl.pipeline
def chain() -> int:
    """Twenty tasks, each waiting for the one before."""
    value = 0
    for _ in range(20):
        value = noop(value)
    return value


@tl.pipeline
def short() -> int:
    """Four such tasks, where each takes a process of its own."""
    value = 0
    for _ in range(4):
        value = noop(value)
    return value


@tl.step(gpu="A100")
def started() -> float:
    """Return the wall time of its first line after the import of a package that a step is likely to need."""
    import numpy

    assert numpy.zeros(1) == 0
    return time.time()


@tl.step(gpu="A100")
def chatty(lines: int) -> int:
    """Print many lines of 100 characters."""
    text = "x" * 99
    for _ in range(lines):
        print(text)
    return lines


@tl.step(gpu="A100:2")
def hold(seconds: float) -> list[float]:
    """Hold its devices for a while; returns when it began and ended."""
    begin = time.time()
    time.sleep(seconds)
    return [begin, time.time()]


@tl.pipeline
def holding(seconds: float) -> list[float]:
    """Hold two devices for a while, as one task."""
    return hold(seconds)


@tl.step
def nap(seconds: float) -> None:
    """Say so and keep the worker busy for a while."""
    print("napping", flush=True)
    time.sleep(seconds)
