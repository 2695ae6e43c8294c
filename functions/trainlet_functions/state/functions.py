"""Functions: steps as deployed, immutable per digest."""

from __future__ import annotations

import base64
import functools
from collections.abc import Mapping
from typing import Any

import sqlalchemy as sa

from trainlet.core import wire
from trainlet.core.errors import NotFoundError
from trainlet.core.specs import FunctionSpec
from trainlet_functions.state import schema, views
from trainlet_functions.state.database import Transaction, dumps, loads

_TABLE = schema.functions


def register(tx: Transaction, project: str, spec: FunctionSpec) -> wire.FunctionView:
    """Store a version of a function; the same version again changes nothing but makes it the newest."""
    digest = spec.digest()
    where = (_TABLE.c.project == project) & (_TABLE.c.name == spec.name) & (_TABLE.c.digest == digest)
    if not tx.run(_TABLE.update().where(where).values(created_ns=tx.now_ns)):
        tx.run(
            _TABLE.insert().values(
                project=project, name=spec.name, digest=digest, spec=spec.model_dump_json(), created_ns=tx.now_ns
            )
        )
    return get(tx, project, spec.name, digest)


def get(tx: Transaction, project: str, name: str, digest: str | None = None) -> wire.FunctionView:
    """Return a version, or the newest; raises NotFoundError with the names that exist."""
    return views.function_view(tx, _row(tx, project, name, digest))


def spec(tx: Transaction, project: str, name: str, digest: str) -> FunctionSpec:
    """Return the spec of one version."""
    found = tx.specs.get((project, name, digest))
    if found is None:
        found = tx.specs[project, name, digest] = _parse(_row(tx, project, name, digest).spec)
    return found


def newest(tx: Transaction, project: str, name: str) -> FunctionSpec:
    """Return the spec that was registered last."""
    return _parse(_row(tx, project, name, None).spec)


def kept(tx: Transaction, *, unused_s: float) -> list[tuple[str, FunctionSpec]]:
    """Return (project, newest spec) of every function that has live tasks or was registered or used lately."""
    since_ns = tx.now_ns - round(unused_s * 1e9)
    tasks = schema.tasks
    used = sa.select(tasks.c.project, tasks.c.function).where(
        tasks.c.state.in_(("queued", "dispatched", "running")) | (tasks.c.updated_ns > since_ns)
    )
    names = {(row.project, row.function) for row in tx.all(used.distinct())}
    fresh = sa.select(_TABLE.c.project, _TABLE.c.name).where(_TABLE.c.created_ns > since_ns)
    names |= {(row.project, row.name) for row in tx.all(fresh.distinct())}
    return [(project, newest(tx, project, name)) for project, name in sorted(names)]


def projects(tx: Transaction) -> list[str]:
    """Return every project that ever registered a function."""
    return [row.project for row in tx.all(sa.select(_TABLE.c.project).distinct().order_by(_TABLE.c.project))]


def note_cold_start(tx: Transaction, project: str, name: str, phases: Mapping[str, float]) -> None:
    """Remember how the newest pod of a function started; the same again writes nothing."""
    table = schema.cold_starts
    where = (table.c.project == project) & (table.c.function == name)
    known = tx.all(sa.select(table.c.phases).where(where))
    if not known:
        tx.insert(table, project=project, function=name, phases=dumps(dict(phases)))
    elif loads(known[0].phases) != phases:
        tx.run(table.update().where(where).values(phases=dumps(dict(phases))))


def cold_starts(tx: Transaction, project: str) -> dict[str, dict[str, float]]:
    """Return how the newest pod of each function of a project started, in seconds by phase."""
    table = schema.cold_starts
    return {row.function: loads(row.phases) for row in tx.all(sa.select(table).where(table.c.project == project))}


@functools.lru_cache(maxsize=1024)
def _parse(text: str) -> FunctionSpec:
    return FunctionSpec.model_validate_json(text)


def _row(tx: Transaction, project: str, name: str, digest: str | None) -> sa.Row[Any]:
    where = (_TABLE.c.project == project) & (_TABLE.c.name == name)
    if digest is not None:
        where &= _TABLE.c.digest == digest
    rows = tx.all(sa.select(_TABLE).where(where).order_by(_TABLE.c.created_ns.desc()).limit(1))
    if not rows:
        known = tx.all(sa.select(_TABLE.c.name).where(_TABLE.c.project == project).distinct().limit(10))
        names = ", ".join(sorted(row.name for row in known)) or "none"
        version = f" at version {digest[:12]}" if digest else ""
        raise NotFoundError(f"Project {project!r} has no function {name!r}{version}. It has: {names}.")
    return rows[0]


def list_(tx: Transaction, project: str, cursor: str | None = None, limit: int = 100) -> wire.Page:
    """Return the newest version of each function, by name."""
    where = _TABLE.c.project == project
    if cursor is not None:
        where &= _TABLE.c.name > _decode(cursor)
    newest = (
        sa.select(_TABLE.c.name, sa.func.max(_TABLE.c.created_ns).label("newest"))
        .where(where)
        .group_by(_TABLE.c.name)
        .order_by(_TABLE.c.name)
        .limit(limit + 1)
    )
    names = [row.name for row in tx.all(newest)]
    items = [get(tx, project, name).model_dump(mode="json") for name in names[:limit]]
    return wire.Page(items=items, next=_encode(names[limit - 1]) if len(names) > limit else None)


def _encode(text: str) -> str:
    return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")


def _decode(cursor: str) -> str:
    try:
        return base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4)).decode()
    except ValueError as error:
        raise NotFoundError(f"The cursor {cursor!r} is not one that a listing gave.") from error
