"""Estimates: what a pipeline would cost, before anything runs.

Only the length of a task is a guess, and an estimate says whose: the person's, or that of tasks that ran before. What a
length costs is no guess: it is rated like the lease it would be, at the prices that hold at that time.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from trainlet.core import ranges
from trainlet.core.models import Reply, Request, Value
from trainlet.core.specs import GpuRequest, Name
from trainlet.core.wire import Rate

MOST_S = 10 * 366 * 86_400
Seconds = Annotated[int, Field(ge=0, le=MOST_S)]
Basis = Literal["given", "history", "unknown", "free"]


class EstimateStep(Request):
    """One step: its devices (in the order of preference), and how often it runs (`tasks` None: not known before).

    `phases` are how long one task takes, such as `[["setup", 5], ["run", 3600]]`; without them the median of the last
    tasks of `function` is taken. `most_s` is the longest that its timeout and retries allow.
    """

    node: str = Field(min_length=1, max_length=200)
    function: Name | None = None
    gpus: tuple[GpuRequest, ...] = Field(default=(), max_length=20)
    tasks: int | None = Field(default=1, ge=0, le=1_000_000)
    phases: tuple[tuple[str, Seconds], ...] = Field(default=(), max_length=20)
    most_s: Seconds | None = None


class EstimateRequest(Request):
    """`POST /v1/estimates`: steps that would start at `start_s` (now), on devices at this rate."""

    steps: tuple[EstimateStep, ...] = Field(max_length=10_000)
    start_s: int | None = Field(default=None, ge=ranges.EARLIEST_S, le=ranges.LATEST_S)
    rate: Rate = "standard"


class PricedGpu(Value):
    """One of the alternatives of a step: `nano_per_s` is what all its devices cost in a second of `run` at the start."""

    sku: str
    count: int
    nano_per_s: int | None


class EstimateRow(Reply):
    """What one step would cost in nano-units: one task of `seconds` times `tasks`; None where it is not known.

    `basis` says where the seconds come from; `seen` is the number of tasks of the past they are the median of. With
    `each`, how many tasks there will be is not known, and the row is one of them.
    """

    node: str
    gpus: tuple[PricedGpu, ...] = ()
    tasks: int
    each: bool = False
    seconds: int | None = None
    gpu_seconds: int | None = None
    cost_nano: int | None = None
    most_nano: int | None = None
    basis: Basis
    seen: int = 0


class Estimate(Reply):
    """The rows and their sum: `cost_nano` adds what is known, and `complete` says whether that is all of it."""

    rows: list[EstimateRow]
    cost_nano: int
    most_nano: int | None
    gpu_seconds: int
    complete: bool
    currency: str
    price_version: str
    starts_at: str
    unpriced_skus: list[str] = []
