"""The messages of the training API, as pydantic models: one definition for server, client and worker.

Times are RFC 3339 UTC strings in replies (`2026-01-31T12:00:00.123Z`) and nanoseconds or seconds, named so, elsewhere.
Encoded values (`trainlet.core.codecs`) are plain JSON and appear as `Any`.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, StringConstraints, model_validator

from trainlet.core.models import Duration, Int64, Natural, Reply, Request, Value
from trainlet.core.samples import DeviceSample, DeviceUse
from trainlet.core.specs import FunctionSpec, Key, Name, Sha256
from trainlet.core.tags import Tags

PROTOCOL = 1
"""Raised by one when an old peer can no longer understand a new one; peers talk when their numbers are equal."""
PROTOCOL_HEADER = "Trainlet-Protocol"
WARNING_HEADER = "Trainlet-Warning"  # what is wrong with the API while it answers

TaskState = Literal["queued", "dispatched", "running", "succeeded", "failed", "canceled"]
RunState = Literal["running", "succeeded", "failed", "canceled"]
AttemptState = Literal["running", "succeeded", "failed", "preempted", "lost", "canceled"]
ErrorKind = Literal["user", "platform", "timeout", "memory", "budget", "canceled", "lost"]
TERMINAL: frozenset[str] = frozenset({"succeeded", "failed", "canceled"})

Project = Annotated[str, StringConstraints(pattern=r"^[a-z0-9]([a-z0-9-]{0,38}[a-z0-9])?$")]
"""A tenant: also a part of its namespace's name."""
Rate = Literal["standard", "spot", "committed"]


class Problem(Reply):
    """RFC 9457 `application/problem+json`; `type` is `urn:trainlet:problem:<slug>`, `hint` says what to do next."""

    type: str = "about:blank"
    title: str = ""
    status: int = 500
    detail: str = ""
    hint: str = ""


class ErrorInfo(Value):
    """Why an attempt or task failed: what happened, where in the user's code, what to do next."""

    kind: ErrorKind
    type: str = ""
    message: str = ""
    where: str = ""
    traceback: str = ""
    hint: str = ""


class Device(Value):
    """A GPU or MIG slice. `virtual` devices exist only in the books, and every record says so."""

    uuid: str
    sku: str
    index: Int64 | None = None
    memory_bytes: Int64 | None = None
    virtual: bool = False


# -- service ---------------------------------------------------------------------------------------------------------


class ServiceInfo(Reply):
    """`GET /v1`: what this API is and where its store is."""

    version: str
    protocol: int
    project: str
    store_url: str
    embedded: bool = False
    pid: int | None = None
    python: str = ""
    packages: dict[str, str] = {}
    devices: list[Device] = []


class TokenCreate(Request):
    """`POST /v1/tokens`: a token for a project.

    `admin` may do everything in every project; `events` may bring events in and nothing else.
    """

    project: Project
    label: str = Field(min_length=1, max_length=100)
    admin: bool = False
    events: bool = False
    expires_s: Duration | None = Field(default=None, gt=0)


class Token(Reply):
    """A new token: this is the only time that it is shown."""

    token: str
    project: str
    label: str


# -- functions -------------------------------------------------------------------------------------------------------


class Deployment(Reply):
    """How a function's pods are doing on a cluster.

    `reason` says why it is not ready, or why a pod that is wanted does not run. `failed`: it will not become ready by
    itself. `cold_start` is how long the newest pod took that became ready, in seconds by phase; it may be gone by now.
    """

    ready: bool
    failed: bool = False
    reason: str = ""
    revision: str = ""
    pods: int = 0
    ready_pods: int = 0
    cold_start: dict[str, float] = {}


class FunctionView(Reply):
    """A function. `revisions` is how many of its workers serve which Revision: after a change old ones may still be busy."""

    name: Name
    digest: Sha256
    spec: FunctionSpec
    created_at: str
    workers: int = 0
    busy: int = 0
    revisions: dict[str, int] = {}
    deployment: Deployment | None = None


class Invoke(Request):
    """`POST /v1/functions/{name}:invoke`; `Prefer: wait=N` waits up to N seconds for the result."""

    args: dict[str, Any] = {}
    digest: Sha256 | None = None
    labels: Tags = {}


# -- dispatchers, runs, tasks ----------------------------------------------------------------------------------------


class DispatcherLease(Request):
    """Who waits. Renewed with `POST /v1/dispatchers/{id}:heartbeat`; when it expires, its tasks checkpoint and stop."""

    id: Key
    lease_s: float = Field(default=60.0, ge=1, le=3600)


class RunCreate(Request):
    """`PUT /v1/runs/{id}`."""

    pipeline: str
    graph: dict[str, Any] | None = None
    params: dict[str, Any] = {}
    dispatcher: DispatcherLease | None = None
    budget_nano: Natural | None = None
    labels: Tags = {}


class RunFinish(Request):
    """`POST /v1/runs/{id}:finish`, by the dispatcher, when the graph is done."""

    state: Literal["succeeded", "failed", "canceled"]
    outputs: dict[str, Any] = {}
    error: ErrorInfo | None = None
    reason: str = ""


class Cancel(Request):
    reason: str = "cancelled by the user"


class Resume(Request):
    """`POST /v1/runs/{id}:resume`: failed and cancelled tasks go back to `queued` and go on from their checkpoint."""

    dispatcher: DispatcherLease | None = None
    budget_nano: Natural | None = None


class RunView(Reply):
    id: Key
    project: str
    pipeline: str
    state: RunState
    reason: str = ""
    created_at: str
    finished_at: str | None = None
    params: dict[str, Any] = {}
    outputs: dict[str, Any] = {}
    error: ErrorInfo | None = None
    budget_nano: int | None = None
    labels: dict[str, str] = {}
    graph: dict[str, Any] | None = None
    task_counts: dict[str, int] = {}


class TaskCreate(Request):
    """`PUT /v1/tasks/{key}`: create, or attach to the task that the same body created before.

    Everything but `dispatcher` is compared on attach: another body under the same key is a 409. `digest` pins the
    version of the function. The run is created on the fly when `run_id` is new (pipeline name = `node`).
    """

    run_id: Key
    node: str
    function: Name
    digest: Sha256
    args: dict[str, Any] = {}
    dispatcher: DispatcherLease | None = None
    labels: Tags = {}


class AttemptView(Reply):
    epoch: int
    state: AttemptState
    worker: str = ""
    devices: list[Device] = []
    claimed_at: str
    started_at: str | None = None
    finished_at: str | None = None
    resumed_from_step: int | None = None
    reason: str = ""
    error: ErrorInfo | None = None


class TaskView(Reply):
    """A task. `version` grows with every change inside its run; `reason` says in words why it is in this state."""

    key: Key
    project: str
    run_id: Key
    node: str
    function: Name
    digest: Sha256
    state: TaskState
    reason: str = ""
    epoch: int = 0
    version: int = 0
    created_at: str
    updated_at: str
    finished_at: str | None = None
    output: Any = None
    error: ErrorInfo | None = None
    progress: dict[str, Any] | None = None
    metrics: dict[str, float] = {}
    labels: dict[str, str] = {}
    attempts: list[AttemptView] = []
    checkpoints: list[CheckpointNote] = []


class Changes(Reply):
    """`GET /v1/runs/{id}/changes?after=N&wait=20`: the tasks that changed after cursor N, long-polled."""

    cursor: int
    run: RunView
    tasks: list[TaskView]


class TimelineEntry(Reply):
    at: str
    epoch: int = 0
    state: str
    reason: str = ""
    actor: str = ""


class MetricHistory(Reply):
    """Points of each metric of a task: (seconds since the task was created, value), a few hundred at most."""

    metrics: dict[str, list[tuple[float, float]]] = {}


class LogLine(Reply):
    """One line. `seq` is dense and grows within a run; it is the SSE event id."""

    seq: int
    task: Key
    node: str = ""
    epoch: int
    rank: int = 0
    stream: Literal["stdout", "stderr", "system"] = "stdout"
    at: str
    text: str


class Page(Reply):
    """A page of a listing: pass `next` back as `?cursor=`; None: that was all."""

    items: list[Any]
    next: str | None = None


# -- attempts: what workers say --------------------------------------------------------------------------------------


class ClaimRequest(Request):
    """`POST /v1/attempts/{task}/{epoch}:claim` and `/v1/functions/{name}:claim-next`.

    `nonce` names this claim: the same worker and nonce again, after a lost reply, gets the same attempt. What is before
    its first dot, if there is one, names the worker's process: another one tells that the earlier one has died. `url` is
    where the worker takes events; `devices` are those it found itself (Knative), else the API assigns them. `event_token`
    is the identity that came with the event, where senders have one: the API has it reviewed before it decides. `revision`
    is the one of the Service that the worker belongs to.
    """

    worker: Key
    nonce: Key
    url: str | None = None
    devices: list[Device] | None = None
    event_token: str | None = Field(default=None, max_length=16_384)
    revision: str | None = Field(default=None, max_length=253)


class ClaimReply(Reply):
    task: TaskView
    spec: FunctionSpec
    args: dict[str, Any]
    epoch: int
    token: str
    devices: list[Device]
    lease_s: float
    heartbeat_s: float
    wall_anchor_ns: int
    store_url: str
    tags: dict[str, str] = {}


class CheckpointNote(Value):
    """One committed checkpoint, as the worker reports it; the truth is the log in the store. `best`: none was better."""

    step: Int64
    epoch: Int64
    reason: str = "periodic"
    size_bytes: Int64 = 0
    committed_at: str = ""
    metrics: dict[str, float] = {}
    best: bool = False


class CheckpointLinks(Value):
    """Signed URLs that read one checkpoint: its manifest, whose blake3 is `digest`, and each pack by its key."""

    step: int
    valid_s: int
    digest: str
    manifest: str
    packs: dict[str, str]


class LeaseEvent(Request):
    """One metering record of one device, carrying the whole lease: any one of them creates it.

    `id` is `<lease>:<seq>`. `elapsed_ns` is the time held so far by CLOCK_BOOTTIME; `anchor_ns` the wall time of the
    claim, told by the API. `phases` are marks `(phase, elapsed_ns at its start)`, cumulative. The fold takes the
    greatest heartbeat and the smallest close (`trainlet_functions.metering`). A time-sliced device is leased in parts of
    5040: this lease has `share` of them, the first is `part`. `saved_ns` is when the last checkpoint was committed: what
    came after it is lost when the worker is.
    """

    id: str
    kind: Literal["open", "heartbeat", "close"]
    lease: str
    seq: Natural
    task: Key
    epoch: int = Field(ge=1, le=2**31 - 1)
    run_id: Key
    function: Name
    device: Device
    share: int = Field(default=5040, ge=1, le=5040)
    part: int = Field(default=0, ge=0, lt=5040)
    rate: Rate = "standard"
    tags: Tags = {}
    anchor_ns: int  # times that no clock shows are kept aside with their reason, not refused here
    elapsed_ns: int = Field(ge=0)
    saved_ns: int = Field(default=0, ge=0)
    phases: tuple[tuple[str, int], ...] = (("run", 0),)

    @model_validator(mode="after")
    def _inside_the_device(self) -> LeaseEvent:
        if self.part + self.share > 5040:
            raise ValueError(f"parts {self.part} to {self.part + self.share} are more than a device's 5040")
        return self


class HeartbeatRequest(Request):
    """`POST /v1/attempts/{task}/{epoch}:heartbeat`: renews the lease, delivers usage, reports what the child said."""

    worker: Key
    usage: list[LeaseEvent] = Field(default=[], max_length=10_000)
    samples: list[DeviceSample] = Field(default=[], max_length=10_000)
    progress: dict[str, Any] | None = None
    metrics: dict[str, float] = {}
    checkpoints: list[CheckpointNote] = []
    started: bool = False
    resumed_from_step: Int64 | None = None


StopCode = Literal["canceled", "dispatcher_lost", "budget", "timeout", "preempted"]


class HeartbeatReply(Reply):
    """`stop`: commit a checkpoint, end the child, then finish with the outcome that belongs to `code`.

    A refused heartbeat is HTTP 409 `urn:trainlet:problem:fenced`: kill the child at once and write nothing more.
    """

    directive: Literal["continue", "stop"] = "continue"
    code: StopCode | None = None
    reason: str = ""
    lease_s: float = 15.0


class LogsRequest(Request):
    """`POST /v1/attempts/{task}/{epoch}:logs`: lines `offset..offset+len` of one rank. A resend changes nothing.

    Each line is `[unix time in ms, "stdout"|"stderr"|"system", text]`.
    """

    rank: int = Field(default=0, ge=0, lt=1024)
    offset: Natural
    lines: list[tuple[Int64, Literal["stdout", "stderr", "system"], str]] = Field(max_length=20_000)


class LogsReply(Reply):
    next_offset: int


class FinishRequest(Request):
    """`POST /v1/attempts/{task}/{epoch}:finish`. Idempotent; `preempted` makes the API dispatch the next epoch."""

    worker: Key
    outcome: Literal["succeeded", "failed", "preempted", "canceled"]
    output: Any = None
    error: ErrorInfo | None = None
    reason: str = ""
    usage: list[LeaseEvent] = Field(default=[], max_length=10_000)
    samples: list[DeviceSample] = Field(default=[], max_length=10_000)
    progress: dict[str, Any] | None = None
    metrics: dict[str, float] = {}
    checkpoints: list[CheckpointNote] = []


# -- money -----------------------------------------------------------------------------------------------------------


class UsageRow(Reply):
    """Whole seconds on one device by one lease, priced. `cost_nano` is None when the SKU has no price."""

    task: Key
    node: str = ""
    run_id: Key
    epoch: int
    lease: str
    device: str
    sku: str
    virtual: bool
    phase: str
    start_s: int
    end_s: int
    seconds: int
    price_nano: int | None
    cost_nano: int | None
    currency: str = "USD"
    open: bool = False


class UsageReport(Reply):
    """`GET /v1/usage?run=...`: rows and their sums. `unpriced_skus` were used but have no price, so no cost counts them.

    `devices` says how busy each leased device was, as far as anybody saw: it decides nothing of the cost.
    """

    rows: list[UsageRow]
    devices: list[DeviceUse] = []
    gpu_seconds: int
    cost_nano: int
    currency: str = "USD"
    price_version: str = ""
    virtual: bool = False
    unpriced_skus: list[str] = []


class PriceFile(Request):
    """`POST /v1/prices:diff` and `:apply`: a price list as YAML, exactly as a person keeps it."""

    text: str = Field(max_length=1_000_000)
    name: str = Field(default="the price list", max_length=1000)
    retroactive: bool = False


class PriceChange(Reply):
    """A version that is new, and what it changes against the one before it."""

    version: str
    effective_from: str
    changes: list[str]


class PriceChanges(Reply):
    versions: list[PriceChange]
