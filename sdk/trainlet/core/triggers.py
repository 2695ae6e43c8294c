"""What starts runs by itself, as data: subscriptions to events, schedules, and what the training API says of them.

A `Subscription` and a `Schedule` hold the whole program that they start (a graph with its fixed parameters), so that an
event can only ever choose values for parameters that its author mapped: never code, images or budgets (invariant S1).
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, StringConstraints

from trainlet.core.models import Duration, Int64, Reply, Request, Value, canonical_json, sha256_hex
from trainlet.core.specs import Name

Concurrency = Literal["allow", "forbid", "replace", "queue"]
CatchUp = Literal["all", "latest", "none"]
TriggerKind = Literal["event", "schedule"]
MatchState = Literal["held", "started", "skipped"]
ParameterName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z_][A-Za-z0-9_]{0,199}$")]

SCHEDULE_DUE = "dev.trainlet.schedule.due"
"""The type of the event that a schedule's own moments are recorded as."""
OBJECT_CREATED = "dev.trainlet.object.created"
"""The type of the events that a polled source gives: an object that was not there before, or is another one now."""
CHAIN = "trainletchain"
"""The extension attribute that names the triggers, joined by commas, that led to an event; the loop guard reads it."""
MAX_WAITING = 100_000
"""How many events may wait for one trigger before the intake refuses more, unacknowledged."""


class Rate(Value):
    """At most `count` runs in any `per_s` seconds."""

    count: int = Field(ge=1, le=1_000_000)
    per_s: Duration = Field(gt=0)


class Allowance(Value):
    """What the runs of a trigger may cost together in each period of `per_s` seconds (of UTC, from 1970 on)."""

    nano: Int64 = Field(gt=0)
    per_s: Duration = Field(gt=0)


class Breaker(Value):
    """After `failures` runs in a row that failed, nothing starts for `rest_s`; then one run is the trial."""

    failures: int = Field(default=3, ge=1, le=1000)
    rest_s: Duration = Field(default=600.0, gt=0)


class Flow(Value):
    """When matched events become a run. What does not start now is held with a reason, and is never lost.

    `window_s` is counted from the first event that waits, `debounce_s` from the last; a run gets at most `max_batch`
    events. `max_repeats` is how often this trigger may be in the chain of causes of an event that it answers.
    """

    window_s: Duration | None = Field(default=None, gt=0)
    max_batch: int = Field(default=1, ge=1, le=10_000)
    debounce_s: Duration | None = Field(default=None, gt=0)
    rate: Rate | None = None
    concurrency: Concurrency = "allow"
    jitter_s: Duration | None = Field(default=None, gt=0)
    breaker: Breaker | None = Breaker()
    max_repeats: int = Field(default=0, ge=0, le=100)
    budget: Allowance | None = None
    run_budget_nano: Int64 | None = Field(default=None, gt=0)


class Program(Value):
    """What is started: a traced pipeline, and parameters that are the same each time (encoded)."""

    pipeline: str
    graph: dict[str, Any]
    params: dict[str, Any] = {}


class Kubeflow(Value):
    """A pipeline of Kubeflow Pipelines that is started instead of the program's graph; without a version the newest."""

    pipeline: str = Field(min_length=1, max_length=200)
    version: str | None = Field(default=None, min_length=1, max_length=200)
    experiment: str | None = Field(default=None, min_length=1, max_length=200)
    service_account: Name | None = None


class KubeflowStart(Kubeflow):
    """How one run is started there: `parameters` are those of the run that the pipeline gets; `refused` says why it is not."""

    parameters: list[str] = []
    namespace: str | None = None
    refused: str = ""


class Parameter(Value):
    """How a parameter of the pipeline comes out of an event.

    `path` is a JSONPath (`$.data.uri`) or a JSON Pointer (`/data/uri`) into the event in its JSON form; without one the
    parameter is always `default`. `json_schema` is what one value must fit. `many`: a list, with the values of each event.
    """

    path: str | None = Field(default=None, max_length=1000)
    default: Any = None
    has_default: bool = False
    many: bool = False
    json_schema: dict[str, Any] = {}


class Poll(Value):
    """A place that is looked at every `every_s`: a folder or a prefix of a bucket, as a URL."""

    url: str = Field(max_length=2000)
    every_s: Duration = Field(default=10.0, ge=0.2)


class _Definition(Request):
    """What subscriptions and schedules have in common."""

    program: Program
    kubeflow: Kubeflow | None = None
    params: dict[ParameterName, Parameter] = {}
    flow: Flow = Flow()

    def digest(self) -> str:
        """Return the sha256 (hex) of the whole definition: the trigger's version."""
        return sha256_hex(canonical_json(self.model_dump(mode="json")))


class Subscription(_Definition):
    """`PUT /v1/subscriptions/{name}`. `filters` are Knative's dialects, all of which must hold.

    `places` are URIs; where there are any, an event may name nothing else in a parameter than what lies below one.
    """

    places: list[str] = Field(default=[], max_length=100)
    filters: list[dict[str, Any]] = Field(min_length=1, max_length=100)
    poll: Poll | None = None
    example: dict[str, Any] | None = None


class Schedule(_Definition):
    """`PUT /v1/schedules/{name}`: a cron expression in a time zone, or an interval such as `every 6h`."""

    when: str = Field(min_length=1, max_length=200)
    tz: str = Field(default="UTC", max_length=100)
    catch_up: CatchUp = "latest"


class Watch(Value):
    """What a cluster is told of a trigger, so that its broker and its clock wake the training API.

    `filters` are those of a subscription, as far as a broker can ask them; a schedule has `when` and `tz`.
    """

    name: Name
    filters: list[dict[str, Any]] = []
    when: str | None = None
    tz: str = "UTC"


class TriggerView(Reply):
    """A subscription or schedule as the API has it. `reason` says why it is paused or why events wait."""

    name: Name
    kind: TriggerKind
    pipeline: str
    state: Literal["active", "paused"]
    reason: str = ""
    digest: str
    spec: dict[str, Any] = {}
    created_at: str
    updated_at: str
    waiting: int = 0
    running: list[str] = []
    failures_in_a_row: int = 0
    next_at: str | None = None
    last_started_at: str | None = None
    spent_nano: int | None = None


class Pause(Request):
    """`POST /v1/subscriptions/{name}:pause` and `/v1/schedules/{name}:pause`."""

    reason: str = Field(default="paused by the user", max_length=500)


class Replay(Request):
    """`POST /v1/events/{number}:replay`: give an event once more to a trigger, or to all that it matches now."""

    trigger: Name | None = None


class MatchView(Reply):
    """What one trigger made of one event."""

    trigger: Name
    state: MatchState
    reason: str = ""
    run_id: str | None = None
    run_state: str | None = None
    matched_at: str
    replay: int = 0


PART_LABEL = "trainlet.dev/kubeflow-run"
"""On a run that Kubeflow Pipelines does: the run of what its pods have done here."""
WHOLE_LABEL = "trainlet.dev/run"
"""On such a run of pods: the run that it is a part of."""


class KubeflowRun(Request):
    """`PUT /v1/firings/{run_id}/kubeflow-run`: which run of Kubeflow Pipelines does a triggered run."""

    id: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9-]{0,99}$")


class EventView(Reply):
    """An event as it was taken in; `number` grows, and names it in a URL."""

    number: int
    id: str
    source: str
    type: str
    subject: str | None = None
    received_at: str
    event: dict[str, Any] = {}
    matches: list[MatchView] = []


class Accepted(Reply):
    """The answer to `POST /v1/events`: the ids in the order they came, how many were new, and what they matched."""

    items: list[str]
    new: int
    matched: int
