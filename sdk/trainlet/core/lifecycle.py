"""What the platform tells of itself, as data: the types of its CloudEvents, and what is in each.

`docs/events.md` lists them and `docs/events.schema.json` has their JSON Schemas; both are made of these models.
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from trainlet.core.models import Reply

PREFIX = "dev.trainlet."
TASK = "dev.trainlet.task."
RUN = "dev.trainlet.run."
BUDGET = "dev.trainlet.budget."
CHECKPOINT = "dev.trainlet.checkpoint.committed"
BEST = "dev.trainlet.checkpoint.best"
SINK_TEST = "dev.trainlet.sink.test"


class TaskChanged(Reply):
    """A task entered a state."""

    task: str = Field(description="The key of the task, unique on the platform")
    run: str
    node: str = Field(description="The step in the run's graph")
    state: Literal["queued", "dispatched", "running", "succeeded", "failed", "canceled"]
    reason: str = Field(description="Why, in words")
    epoch: int = Field(description="The number of the attempt; 0 before the first")


class RunChanged(Reply):
    """A run started, went on after it had ended, or ended."""

    run: str
    pipeline: str
    state: Literal["running", "succeeded", "failed", "canceled"]
    reason: str = Field(description="Why, in words")
    tags: dict[str, str] = {}
    outputs: dict[str, Any] = Field(default={}, description="Results that are plain JSON, by name")
    cost_nano: int | None = Field(default=None, description="What it has cost so far, in billionths of the currency")
    currency: str | None = None
    trigger: str | None = Field(default=None, description="The trigger that started it")


class CheckpointCommitted(Reply):
    """A checkpoint is in the store; of type `dev.trainlet.checkpoint.best` when it is the best one so far."""

    task: str
    run: str
    node: str
    epoch: int
    step: int
    reason: str
    best: bool
    metrics: dict[str, float] = {}
    size_bytes: int
    committed_at: str


class BudgetReached(Reply):
    """A percentage of a budget was spent (`warned`), or all of it (`spent`)."""

    budget: str
    covers: str = Field(description="The project that it is for")
    percent: int
    run: str = Field(description="The run whose own budget it is; empty for one of a project")


class SinkTest(Reply):
    """What `trainlet sink test` sends."""

    sink: str


MODELS: dict[str, tuple[str, type[Reply]]] = {
    **{
        f"{TASK}{state}": ("the task", TaskChanged)
        for state in ("queued", "dispatched", "running", "succeeded", "failed", "canceled")
    },
    **{f"{RUN}{state}": ("the run", RunChanged) for state in ("started", "resumed", "succeeded", "failed", "canceled")},
    CHECKPOINT: ("the task", CheckpointCommitted),
    BEST: ("the task", CheckpointCommitted),
    **{f"{BUDGET}{what}": ("the budget", BudgetReached) for what in ("warned", "spent")},
    SINK_TEST: ("the sink", SinkTest),
}
"""Each type with what its subject is, and the model of its data."""


def schemas() -> dict[str, Any]:
    """Return the JSON Schema of each type's data."""
    found: dict[str, Any] = {"$schema": "https://json-schema.org/draft/2020-12/schema", "types": {}, "$defs": {}}
    for kind, (_, model) in MODELS.items():
        found["$defs"][model.__name__] = model.model_json_schema(mode="serialization")
        found["types"][kind] = {"$ref": f"#/$defs/{model.__name__}"}
    return found
