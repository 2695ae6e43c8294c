"""The start of a run by its trigger: its id follows from the trigger and the events, so no event can start it twice.

The run is created here, in the transaction that takes the events off the queue; the platform sees to it that a process
drives it (`trainlet_functions.drivers`).
"""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa

from trainlet.core import codecs, traces, wire
from trainlet.core.errors import UserError
from trainlet.core.events import Event
from trainlet.core.models import canonical_json, sha256_hex
from trainlet.core.protocols import ObjectStore
from trainlet.core.specs import dns_label
from trainlet.core.triggers import CHAIN, PART_LABEL, WHOLE_LABEL, KubeflowStart, Schedule, Subscription
from trainlet_functions.billing import spending
from trainlet_functions.state import runs
from trainlet_functions.state.database import Transaction, loads
from trainlet_functions.triggers import intake, mappings, tables

TRIGGER_LABEL = "trainlet.dev/trigger"
EVENTS_LABEL = "trainlet.dev/events"
EVENT_LABEL = "trainlet.dev/event"
_TABLE, _MATCHES, _EVENTS, _FIRINGS = tables.triggers, tables.matches, tables.events, tables.firings
_UNLIMITED = 2**62  # a long list of parameters stays inline: the store is not written to inside of a transaction


def held(tx: Transaction, project: str, name: str, limit: int) -> list[sa.Row[Any]]:
    """Return the events that wait for a trigger, the first ones first, with their matches."""
    waiting = (_MATCHES.c.project == project) & (_MATCHES.c.trigger == name) & (_MATCHES.c.state == "held")
    joined = _MATCHES.join(_EVENTS, _EVENTS.c.number == _MATCHES.c.event)
    columns = (_MATCHES.c.id.label("match"), _MATCHES.c.event, _MATCHES.c.replay, _MATCHES.c.matched_ns, _EVENTS)
    return tx.all(sa.select(*columns).select_from(joined).where(waiting).order_by(_MATCHES.c.id).limit(limit))


def fire(
    tx: Transaction,
    trigger: sa.Row[Any],
    spec: Subscription | Schedule,
    rows: list[sa.Row[Any]],
    *,
    budget_nano: int | None = None,
) -> int:
    """Create the run of some waiting events and take them off the queue; returns 1, or 0 when no event would do.

    An event whose parameters cannot be made is skipped with the reason; it can be replayed once that is mended.
    """
    good: list[tuple[sa.Row[Any], Event, dict[str, Any]]] = []
    for row in rows:
        event = intake.stored(row)
        try:
            good.append((row, event, values(spec, event)))
        except UserError as error:
            _take(tx, trigger, [row], state="skipped", reason=str(error)[:1000])
    if not good:
        return 0
    ids = [[row.source, row.id, row.replay] for row, _, _ in good]
    run_id = run_key(trigger.project, trigger.name, spec.program.pipeline, ids)
    events = [event for _, event, _ in good]
    labels = {TRIGGER_LABEL: trigger.name, EVENTS_LABEL: str(len(good)), EVENT_LABEL: _named(good[0][0])}
    caller = next((one for one in (traces.parse(_traceparent(event)) for event in events) if one is not None), None)
    if caller is not None:
        labels[traces.LABEL] = str(caller)
    body = wire.RunCreate(
        pipeline=spec.program.pipeline,
        graph=spec.program.graph,
        params=parameters(spec, [found for _, _, found in good]),
        budget_nano=budget_nano,
        labels=labels,
    )
    runs.create(tx, trigger.project, run_id, body)
    about = {"run_id": run_id, "project": trigger.project, "trigger": trigger.name, "started_ns": tx.now_ns}
    start = None
    if spec.kubeflow is not None:
        start = KubeflowStart(**spec.kubeflow.model_dump(), parameters=list(spec.params)).model_dump_json()
    tx.insert(_FIRINGS, **about, kubeflow=start, chain=",".join([*_longest_chain(events), trigger.name]))
    _take(tx, trigger, [row for row, _, _ in good], state="started", run_id=run_id, started_ns=tx.now_ns)
    return 1


def run_key(project: str, trigger: str, pipeline: str, ids: list[list[Any]]) -> str:
    """Return the id of the run of these events: the same events of the same trigger give the same run."""
    digest = sha256_hex(canonical_json([project, trigger, sorted(ids)]))
    return f"{dns_label(pipeline)[:40].rstrip('-')}-{digest[:12]}"


def values(spec: Subscription | Schedule, event: Event) -> dict[str, Any]:
    """Return what one event gives to each parameter; raises UserError that names the parameter and the path."""
    return mappings.values(spec.params, spec.places if isinstance(spec, Subscription) else (), event)


def parameters(spec: Subscription | Schedule, found: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the encoded parameters of a run for the values of its events."""
    given = {
        name: codecs.encode(value, _NO_STORE, inline_bytes=_UNLIMITED, name=name)
        for name, value in mappings.join(spec.params, found).items()
    }
    return {**spec.program.graph.get("parameters", {}), **spec.program.params, **given}


def open_after(tx: Transaction, project: str, number: int, limit: int = 200) -> list[sa.Row[Any]]:
    """Return the firings after a number whose runs have not ended, the oldest first."""
    mine = (_FIRINGS.c.project == project) & _FIRINGS.c.ended_ns.is_(None) & (_FIRINGS.c.number > number)
    return tx.all(sa.select(_FIRINGS).where(mine).order_by(_FIRINGS.c.number).limit(limit))


def done_by(tx: Transaction, project: str, run_id: str, kubeflow_run: str) -> wire.RunView:
    """Note which run of Kubeflow Pipelines does a triggered run, so that tags, budget and cost go both ways.

    Of two drivers that started it at the same moment one had its run stopped, so the last word holds. Raises UserError for
    a run that no trigger had KFP do.
    """
    ours = runs.row(tx, project, run_id)
    started = tx.one(sa.select(_FIRINGS.c.kubeflow).where(_FIRINGS.c.run_id == run_id))
    if started is None or started.kubeflow is None:
        raise UserError(f"The run {run_id} is none that a trigger has Kubeflow Pipelines do.")
    runs.adopt(tx, ours, f"kfp-{kubeflow_run}", PART_LABEL, WHOLE_LABEL)
    return runs.get(tx, project, run_id)


def part_of(labels: str) -> str | None:
    """Return the run of what the pods of a run in Kubeflow Pipelines have dispatched here, by the run's labels."""
    part: str | None = loads(labels).get(PART_LABEL)
    return part


def cost_nano(tx: Transaction, project: str, run_id: str, labels: str) -> int:
    """Return what a run has cost so far, with what its pods in Kubeflow Pipelines have dispatched here."""
    part = part_of(labels)
    return sum(nano for _, nano in spending.of_runs(tx, project, [run_id, *([part] if part else [])]).values())


def _take(
    tx: Transaction,
    trigger: sa.Row[Any],
    rows: list[sa.Row[Any]],
    *,
    state: str,
    reason: str = "",
    run_id: str | None = None,
    **columns: Any,
) -> None:
    """Take events off the queue of a trigger, and change columns of it."""
    for start in range(0, len(rows), 500):
        these = _MATCHES.c.id.in_([row.match for row in rows[start : start + 500]])
        tx.run(_MATCHES.update().where(these).values(state=state, reason=reason, run_id=run_id))
    this = (_TABLE.c.project == trigger.project) & (_TABLE.c.name == trigger.name)
    tx.run(_TABLE.update().where(this).values(waiting=_TABLE.c.waiting - len(rows), **columns))


def _named(row: sa.Row[Any]) -> str:
    """Return what names the first event of a run on its bill: its id, or its number where a tag cannot hold that."""
    return str(row.id) if len(row.id) <= 256 else str(row.event)


def _traceparent(event: Event) -> str | None:
    found = event.attributes.get(traces.HEADER)
    return found if isinstance(found, str) else None


def _longest_chain(events: list[Event]) -> list[str]:
    """Return the longest chain of causes among the events."""
    chains = [[name for name in str(event.attributes.get(CHAIN, "")).split(",") if name] for event in events]
    return max(chains, key=len, default=[])


class _NoStore:
    """What an event holds is JSON and stays inline; nothing is ever written."""

    def __getattr__(self, name: str) -> Any:
        raise UserError(f"A value of an event needs the store ({name}); events hold JSON only.")


_NO_STORE: ObjectStore = _NoStore()
