"""The triggers of a project: registered by `trainlet deploy`, listed, paused, resumed and removed."""

from __future__ import annotations

import functools
from typing import Any

import sqlalchemy as sa

from trainlet.core import graphs
from trainlet.core.clocks import rfc3339
from trainlet.core.durations import nearest
from trainlet.core.errors import ConflictError, NotFoundError, UserError
from trainlet.core.events import from_json
from trainlet.core.triggers import Schedule, Subscription, TriggerView, Watch
from trainlet_functions.state import functions
from trainlet_functions.state.database import Transaction, plain
from trainlet_functions.triggers import filters, firing, flow, mappings, matching, tables, ticks, watches

MAX_TRIGGERS = 10_000  # of one project
_TABLE, _MATCHES, _FIRINGS = tables.triggers, tables.matches, tables.firings


def put(tx: Transaction, project: str, name: str, spec: Subscription | Schedule) -> TriggerView:
    """Register a trigger, or replace its definition; what waits for it goes on waiting under the new one.

    Raises UserError for what could never work: a filter that does not match its own example, a parameter that the
    pipeline does not have, a schedule without a next moment, a function that is not registered.
    """
    check(tx, project, name, spec)
    kind = "event" if isinstance(spec, Subscription) else "schedule"
    digest = spec.digest()
    found = _find(tx, project, name)
    if found is not None and found.kind != kind:
        raise ConflictError(f"{name!r} is {_article(found.kind)} already. Give this one another name=.")
    if found is not None and found.digest == digest:
        return get(tx, project, name)
    values: dict[str, Any] = {
        "pipeline": spec.program.pipeline,
        "spec": spec.model_dump_json(),
        "digest": digest,
        "updated_ns": tx.now_ns,
        "tick_ns": ticks.next_ns(spec, tx.now_ns) if isinstance(spec, Schedule) else None,
        "poll_ns": tx.now_ns if isinstance(spec, Subscription) and spec.poll is not None else None,
    }
    if found is None:
        count = sa.select(sa.func.count()).select_from(_TABLE).where(_TABLE.c.project == project)
        if int(tx.conn.execute(count).scalar_one()) >= MAX_TRIGGERS:
            raise UserError(f"Project {project!r} has {MAX_TRIGGERS} triggers already. Remove some first.")
        base = {"project": project, "name": name, "kind": kind, "state": "active", "reason": ""}
        tx.insert(_TABLE, **base, **values, created_ns=tx.now_ns, waiting=0, failures=0)
    else:
        fresh = {"failures": 0, "rest_until_ns": None, "due_ns": tx.now_ns if found.waiting else None}
        tx.run(_TABLE.update().where(_this(project, name)).values({**values, **fresh}))
    matching.changed(tx, project)
    return get(tx, project, name)


def check(tx: Transaction, project: str, name: str, spec: Subscription | Schedule) -> None:
    """Raise UserError for a definition that could never start a run."""
    graph = _graph(spec)
    for node in graph.nodes:
        functions.spec(tx, project, node.function, node.digest)
    known = [*graph.parameters, *graph.required]
    for parameter in spec.params:
        if parameter not in known:
            hint = nearest(parameter, known) if known else "It has none."
            raise UserError(f"{name}: pipeline {graph.name!r} has no parameter {parameter!r}. {hint}")
    missing = [one for one in graph.required if one not in spec.params and one not in spec.program.params]
    if missing:
        raise UserError(f"{name}: pipeline {graph.name!r} needs {', '.join(missing)}. Map it with params={{...}}.")
    try:
        mappings.check(spec.params, spec.places if isinstance(spec, Subscription) else ())
    except UserError as error:
        raise UserError(f"{name}: {error}") from None
    if isinstance(spec, Schedule):
        ticks.next_ns(spec, tx.now_ns)
        return
    compiled = filters.compile(spec.filters)
    if compiled.index_keys() == []:
        raise UserError(f"{name}: no event can pass the filters: they ask for several types or sources at once.")
    if spec.example is not None:
        example = from_json(spec.example, f"{name}: the example")
        if not compiled.matches(example):
            raise UserError(f"{name}: the filter does not match its own example. `trainlet trigger test` shows why.")
        firing.values(spec, example)


def _graph(spec: Subscription | Schedule) -> graphs.Graph:
    try:
        return graphs.Graph.model_validate(spec.program.graph)
    except ValueError as error:
        raise UserError(f"The program is no graph of a pipeline: {error}") from error


def get(tx: Transaction, project: str, name: str, kind: str | None = None) -> TriggerView:
    """Return a trigger with what waits and runs; raises NotFoundError with the names that there are."""
    return _view(tx, row(tx, project, name, kind), detailed=True)


def row(tx: Transaction, project: str, name: str, kind: str | None = None) -> sa.Row[Any]:
    """Return the row of a trigger; raises NotFoundError."""
    found = _find(tx, project, name)
    if found is not None and kind in (None, found.kind):
        return found
    names = [one.name for one in tx.all(_all(project, kind).with_only_columns(_TABLE.c.name).limit(1000))]
    hint = nearest(name, names) if names else "It has none; `trainlet deploy FILE` registers those of a file."
    what = {"event": "subscription", "schedule": "schedule", None: "trigger"}[kind]
    raise NotFoundError(f"Project {project!r} has no {what} {name!r}. {hint}")


def list_(tx: Transaction, project: str, kind: str | None, after: str | None, limit: int) -> list[TriggerView]:
    """Return triggers by name."""
    chosen = _all(project, kind)
    if after is not None:
        chosen = chosen.where(_TABLE.c.name > after)
    return [_view(tx, one) for one in tx.all(chosen.limit(limit))]


def pause(tx: Transaction, project: str, name: str, reason: str) -> TriggerView:
    """Start nothing more until it is resumed; events are still taken in and wait."""
    found = row(tx, project, name)
    values = {"state": "paused", "reason": plain(reason), "updated_ns": tx.now_ns}
    tx.run(_TABLE.update().where(_this(project, found.name)).values(values))
    return get(tx, project, name)


def resume(tx: Transaction, project: str, name: str) -> TriggerView:
    """Go on: what waited starts, and a breaker that had opened is closed."""
    row(tx, project, name)
    fresh = {"failures": 0, "rest_until_ns": None, "due_ns": tx.now_ns}
    values = {"state": "active", "reason": "", "updated_ns": tx.now_ns, **fresh}
    tx.run(_TABLE.update().where(_this(project, name)).values(values))
    return get(tx, project, name)


def explain(tx: Transaction, project: str, name: str, reason: str) -> None:
    """Say at a trigger what happened to something that it waited for."""
    tx.run(_TABLE.update().where(_this(project, name)).values(reason=plain(reason)[:1000]))


def delete(tx: Transaction, project: str, name: str, kind: str) -> None:
    """Remove a trigger. What waited for it is kept as skipped, with the reason; its runs go on."""
    row(tx, project, name, kind)
    held = (_MATCHES.c.project == project) & (_MATCHES.c.trigger == name) & (_MATCHES.c.state == "held")
    tx.run(_MATCHES.update().where(held).values(state="skipped", reason="its trigger was removed"))
    seen = tables.polled
    tx.run(seen.delete().where((seen.c.project == project) & (seen.c.trigger == name)))
    tx.run(_TABLE.delete().where(_this(project, name)))
    matching.changed(tx, project)


def watched(tx: Transaction) -> list[tuple[str, Watch]]:
    """Return (project, what a cluster is told) of every trigger that it is told something of."""
    columns = sa.select(_TABLE.c.project, _TABLE.c.name, _TABLE.c.kind, _TABLE.c.spec)
    rows = tx.all(columns.order_by(_TABLE.c.project, _TABLE.c.name))
    found = [(row.project, _watch(row.name, row.kind, row.spec)) for row in rows]
    return [(project, watch) for project, watch in found if watch is not None]


@functools.lru_cache(maxsize=4096)
def _watch(name: str, kind: str, spec: str) -> Watch | None:
    return watches.watch(name, (Subscription if kind == "event" else Schedule).model_validate_json(spec))


def active(tx: Transaction) -> bool:
    """Say whether anything may start by itself: a platform with triggers does not stop when nobody uses it."""
    return tx.conn.execute(sa.select(_TABLE.c.name).where(_TABLE.c.state == "active").limit(1)).first() is not None


def _find(tx: Transaction, project: str, name: str) -> sa.Row[Any] | None:
    return tx.one(sa.select(_TABLE).where(_this(project, name)))


def _this(project: str, name: str) -> sa.ColumnElement[bool]:
    return (_TABLE.c.project == project) & (_TABLE.c.name == name)


def _all(project: str, kind: str | None) -> sa.Select[Any]:
    where = _TABLE.c.project == project
    return sa.select(_TABLE).where(where if kind is None else where & (_TABLE.c.kind == kind)).order_by(_TABLE.c.name)


def _article(kind: str) -> str:
    return "a subscription to events" if kind == "event" else "a schedule"


def _view(tx: Transaction, found: sa.Row[Any], *, detailed: bool = False) -> TriggerView:
    spec = flow.spec_of(found) if detailed else None
    next_ns = found.tick_ns if found.kind == "schedule" else found.due_ns
    mine = (_FIRINGS.c.project == found.project) & (_FIRINGS.c.trigger == found.name)
    spent = sa.select(sa.func.sum(_FIRINGS.c.cost_nano)).where(mine)
    return TriggerView(
        name=found.name,
        kind=found.kind,
        pipeline=found.pipeline,
        state=found.state,
        reason=found.reason,
        digest=found.digest,
        spec=spec.model_dump(mode="json", exclude={"program"}) if spec is not None else {},
        created_at=rfc3339(found.created_ns),
        updated_at=rfc3339(found.updated_ns),
        waiting=found.waiting,
        running=flow.open_runs(tx, found.project, found.name),
        failures_in_a_row=found.failures,
        next_at=None if next_ns is None else rfc3339(next_ns),
        last_started_at=None if found.started_ns is None else rfc3339(found.started_ns),
        spent_nano=tx.conn.execute(spent).scalar() if detailed else None,
    )
