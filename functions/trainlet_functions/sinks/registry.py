"""Sinks of a project: registered, listed, given new secrets, and removed."""

from __future__ import annotations

import base64
from typing import Any
from urllib.parse import urlsplit

import sqlalchemy as sa

from trainlet.core import lifecycle
from trainlet.core.clocks import rfc3339
from trainlet.core.durations import nearest
from trainlet.core.errors import ConflictError, NotFoundError, UserError
from trainlet.core.sinks import SinkCreate, SinkSecret, SinkView
from trainlet.core.specs import dns_label
from trainlet_functions.signatures import Signer
from trainlet_functions.state import schema
from trainlet_functions.state.database import Transaction, dumps, loads
from trainlet_functions.triggers import sources, webhooks

MAX_SINKS = 50
_TABLE, _LETTERS = schema.sinks, schema.letters


def create(tx: Transaction, signer: Signer, project: str, asked: SinkCreate) -> SinkSecret:
    """Register a sink, whose address was checked; raises ConflictError when there is one of this name."""
    name = asked.name or _name_of(asked.url)
    row = _find(tx, project, name)
    if row is not None and row.removed_ns is None:
        raise ConflictError(
            f"Project {project!r} has a sink {name!r} already, to {row.url}. Name this one with --name."
        )
    count = sa.select(sa.func.count()).select_from(_TABLE).where(_mine(project))
    if int(tx.conn.execute(count).scalar_one()) >= MAX_SINKS:
        raise UserError(f"Project {project!r} has {MAX_SINKS} sinks already. Remove some first.")
    values: dict[str, Any] = {
        "url": asked.url,
        "types": dumps([_pattern(one) for one in asked.types]),
        "generation": 1 if row is None else row.generation + 1,
        "previous_until_ns": None,
        "state": "active",
        "reason": "",
        "created_ns": tx.now_ns,
        "failures": 0,
        "rest_until_ns": 0,
        "delivered_ns": None,
        "removed_ns": None,
    }
    if row is None:
        tx.insert(_TABLE, project=project, name=name, **values)
    else:
        tx.run(_TABLE.update().where(this(project, name)).values(values))
    return _shown(tx, signer, project, name)


def rotate(tx: Transaction, signer: Signer, project: str, name: str, grace_s: float) -> SinkSecret:
    """Give a sink a new secret; for a while what is sent is signed with both."""
    found = row(tx, project, name)
    until_ns = tx.now_ns + round(grace_s * 1e9) if grace_s else None
    values = {"generation": found.generation + 1, "previous_until_ns": until_ns}
    tx.run(_TABLE.update().where(this(project, name)).values(values))
    return _shown(tx, signer, project, name)


def remove(tx: Transaction, project: str, name: str) -> None:
    """Remove a sink with what waits for it."""
    row(tx, project, name)
    tx.run(_LETTERS.delete().where((_LETTERS.c.project == project) & (_LETTERS.c.sink == name)))
    tx.run(_TABLE.update().where(this(project, name)).values(removed_ns=tx.now_ns, state="paused"))


def resume(tx: Transaction, project: str, name: str) -> SinkView:
    """Send again at once to a sink that was paused, or that rests after failures."""
    row(tx, project, name)
    values = {"state": "active", "reason": "", "failures": 0, "rest_until_ns": 0}
    tx.run(_TABLE.update().where(this(project, name)).values(values))
    mine = (_LETTERS.c.project == project) & (_LETTERS.c.sink == name) & _LETTERS.c.due_ns.is_not(None)
    tx.run(_LETTERS.update().where(mine).values(due_ns=tx.now_ns))
    return view(tx, row(tx, project, name))


def list_(tx: Transaction, project: str) -> list[SinkView]:
    """Return the sinks of a project by name."""
    return [view(tx, found) for found in tx.all(sa.select(_TABLE).where(_mine(project)).order_by(_TABLE.c.name))]


def row(tx: Transaction, project: str, name: str) -> sa.Row[Any]:
    """Return the row of a sink; raises NotFoundError with the names that there are."""
    found = _find(tx, project, name)
    if found is None or found.removed_ns is not None:
        names = [one.name for one in tx.all(sa.select(_TABLE.c.name).where(_mine(project)))]
        hint = nearest(name, names) if names else "It has none; `trainlet sink add URL` adds one."
        raise NotFoundError(f"Project {project!r} has no sink {name!r}. {hint}")
    return found


def wants(types: list[str], kind: str) -> bool:
    """Say whether a sink with these types wants events of this one."""
    return not types or sources.fits(kind, types)


def secrets(tx: Transaction, signer: Signer, found: sa.Row[Any]) -> list[str]:
    """Return the secrets that sign what goes to a sink now, the newest first."""
    good = webhooks.generations(found, tx.now_ns)
    return [_secret(signer, found.project, found.name, generation) for generation in good]


def this(project: str, name: str) -> sa.ColumnElement[bool]:
    """Return the condition for one sink."""
    return (_TABLE.c.project == project) & (_TABLE.c.name == name)


def view(tx: Transaction, found: sa.Row[Any]) -> SinkView:
    """Return a sink as people see it."""
    mine = (_LETTERS.c.project == found.project) & (_LETTERS.c.sink == found.name)
    number = sa.select(sa.func.count()).select_from(_LETTERS)
    waiting = int(tx.conn.execute(number.where(mine & _LETTERS.c.due_ns.is_not(None))).scalar_one())
    resting = waiting and found.rest_until_ns > tx.now_ns
    return SinkView(
        name=found.name,
        url=found.url,
        types=loads(found.types),
        state=found.state,
        reason=found.reason,
        created_at=rfc3339(found.created_ns),
        last_delivered_at=None if found.delivered_ns is None else rfc3339(found.delivered_ns),
        next_at=rfc3339(found.rest_until_ns) if resting else None,
        waiting=waiting,
        dead=int(tx.conn.execute(number.where(mine & _LETTERS.c.dead_ns.is_not(None))).scalar_one()),
    )


def _pattern(text: str) -> str:
    """Return a pattern in full; raises UserError for one that no event fits."""
    whole = text if text.startswith(lifecycle.PREFIX) or text == "*" else lifecycle.PREFIX + text
    if "*" in whole[:-1]:
        raise UserError(f"{text!r} is no pattern of types: a `*` may only be its last character.")
    if not any(wants([whole], kind) for kind in lifecycle.MODELS):
        known = [kind.removeprefix(lifecycle.PREFIX) for kind in lifecycle.MODELS]
        raise UserError(f"No event of the platform has the type {text!r}. {nearest(text, known)}")
    return whole


def _name_of(url: str) -> str:
    """Return a name for the sink of a URL: its host's, where that has letters."""
    try:
        return dns_label(urlsplit(url).hostname or "")
    except ValueError:
        return "sink"


def _secret(signer: Signer, project: str, name: str, generation: int) -> str:
    return webhooks.STANDARD_PREFIX + base64.b64encode(signer.derive("sink", project, name, generation)).decode()


def _shown(tx: Transaction, signer: Signer, project: str, name: str) -> SinkSecret:
    found = row(tx, project, name)
    return SinkSecret(sink=view(tx, found), secret=_secret(signer, project, name, found.generation))


def _find(tx: Transaction, project: str, name: str) -> sa.Row[Any] | None:
    return tx.one(sa.select(_TABLE).where(this(project, name)))


def _mine(project: str) -> sa.ColumnElement[bool]:
    return (_TABLE.c.project == project) & _TABLE.c.removed_ns.is_(None)
