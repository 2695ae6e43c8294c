"""A step as deployed: what a function needs, and how it may be retried and saved.

A `FunctionSpec` is the whole contract between the person who wrote a step and the worker that runs it. It is immutable
and named by the sha256 of its canonical JSON, so "which code ran" is always answerable.
"""

from __future__ import annotations

import re
from typing import Annotated, Literal

from pydantic import Field, StringConstraints

from trainlet.core.models import Duration, Int64, Value, canonical_json, sha256_hex
from trainlet.core.placements import Nodes
from trainlet.core.tags import Tags

NAME_PATTERN = r"^[a-z]([a-z0-9-]{0,61}[a-z0-9])?$"
KEY_PATTERN = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,199}$"

Name = Annotated[str, StringConstraints(pattern=NAME_PATTERN)]
"""A DNS label: also the name of the function's Knative Service."""
Key = Annotated[str, StringConstraints(pattern=KEY_PATTERN)]
"""A task key or run id; safe in a URL path, a file name and a label."""
Sha256 = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]

Backend = Literal["service", "job"]


class GpuRequest(Value):
    """`count` devices of one SKU, such as 2 x `A100-80GB`."""

    sku: str
    count: int = Field(ge=1, le=1024)


class Resources(Value):
    """What one attempt needs. `gpus` is an ordered list of alternatives; empty means a CPU step."""

    gpus: tuple[GpuRequest, ...] = ()
    cpu: float | None = Field(default=None, gt=0, le=100_000)
    memory_bytes: Int64 | None = Field(default=None, gt=0)


class Retries(Value):
    """How often a failed attempt is repeated, and after which delay (`delay_s * factor**n`, at most `max_delay_s`).

    Preempted and lost attempts are not failures: they are always dispatched again and never counted here.
    """

    times: int = Field(default=0, ge=0, le=100)
    delay_s: Duration = Field(default=1.0, ge=0)
    factor: float = Field(default=2.0, ge=1, le=1000)
    max_delay_s: Duration = Field(default=60.0, ge=0)

    def delay_before(self, retry: int) -> float:
        """Return the seconds to wait before retry number `retry` (1, 2, ...)."""
        return float(min(self.max_delay_s, self.delay_s * self.factor ** min(retry - 1, 64)))


class Keep(Value):
    """Which checkpoints stay: the `last` ones, the `best` by the on_improve metric, one an hour, and pinned ones."""

    last: int = Field(default=3, ge=1, le=1000)
    best: int = Field(default=1, ge=0, le=1000)
    hourly: int = Field(default=0, ge=0, le=1000)
    pins: bool = True


class CheckpointPolicy(Value):
    """When `ctx.checkpoint.step` saves: every so many seconds, on improvement of a metric, and when told to stop.

    `every_s` None: as often as it pays (see docs/checkpoints.md). `keep` says what stays in the store.
    """

    every_s: Duration | None = Field(default=None, gt=0)
    on_improve: tuple[str, Literal["min", "max"]] | None = None
    on_sigterm: bool = True
    keep: Keep = Keep()


class Entry(Value):
    """Where the function is inside its bundle."""

    module: str
    qualname: str


class FunctionSpec(Value):
    """A step as deployed.

    `packages_lock` is the sha256 of `requirements.lock` inside the bundle (None: the worker's own environment).
    `ranks` is the number of child processes; `imports` are the third-party modules a warm worker preloads.
    `grace_s` is the time an attempt has to save its checkpoint when it must stop. `backend` says what makes its workers
    on a cluster: a service that stays warm, or a job for each task. `tags` go on the bill of its tasks. `nodes` are those
    that somebody chose on a cluster; None leaves it to the GPU catalogue.
    """

    name: Name
    bundle: Sha256
    entry: Entry
    resources: Resources = Resources()
    retries: Retries = Retries()
    checkpoint: CheckpointPolicy | None = None
    timeout_s: Duration | None = Field(default=None, gt=0)
    ranks: int = Field(default=1, ge=1, le=1024)
    packages_lock: Sha256 | None = None
    imports: tuple[str, ...] = ()
    secrets: tuple[str, ...] = ()
    image: str | None = None
    python: str = "3.11"
    max_workers: int = Field(default=16, ge=1, le=1000)
    grace_s: Duration = Field(default=30.0, gt=0)
    allow_pickle: bool = False
    backend: Backend = "service"
    tags: Tags = {}
    nodes: Nodes | None = None

    def digest(self) -> str:
        """Return the sha256 (hex) of the canonical JSON of this spec: the function's version.

        A step without tags, or without nodes, keeps the version that it had before there were any.
        """
        without = {name for name in ("tags", "nodes") if not getattr(self, name)}
        return sha256_hex(canonical_json(self.model_dump(mode="json", exclude=without)))


def dns_label(text: str) -> str:
    """Turn any name into a DNS label: lower case, `-` for everything else, at most 63 characters.

    Raises ValueError when nothing usable is left.
    """
    label = re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")
    label = re.sub(r"^[^a-z]+", "", label)[:63].rstrip("-")
    if not label:
        raise ValueError(f"{text!r} holds no letter a-z to make a name of; give one with name=")
    return label
