"""Hooks: where senders post to that cannot hold a token of the project. A hook can do one thing: bring in events.

Nothing secret is stored. A secret is derived from the platform's signing key, the hook and a generation; rotating raises
the generation, and the one before stays good for a while. A hook that is removed leaves its generation behind, so that
one made later in its place has another secret.
"""

from __future__ import annotations

import base64
import contextlib
from collections.abc import Mapping, Sequence
from typing import Any

import sqlalchemy as sa

from trainlet.core.clocks import rfc3339
from trainlet.core.durations import nearest
from trainlet.core.errors import AccessError, ConflictError, NotFoundError, UserError
from trainlet.core.events import Event
from trainlet.core.hooks import CLOUDEVENTS, HookCreate, HookSecret, HookView, Scheme
from trainlet_functions.signatures import Signer
from trainlet_functions.state.database import Transaction, dumps, loads
from trainlet_functions.triggers import sns, sources, tables, webhooks
from trainlet_functions.triggers.adapters import ADAPTERS

_TABLE = tables.hooks
_PREFIX = "tlh_"  # tells people and secret scanners what it is
_IN_URL: tuple[Scheme, ...] = ("url", "sns")  # whose secret is the end of the URL
_USED_S = 60.0  # how exact the time of the last use is
_DEFAULTS: Mapping[str, Scheme] = {
    "github": "hmac",
    "mlflow": "mlflow",
    "s3": "bearer",
    "alertmanager": "bearer",
    "kfp": "bearer",
    CLOUDEVENTS: "standard",
}


def create(tx: Transaction, signer: Signer, project: str, asked: HookCreate) -> HookSecret:
    """Make a hook; raises ConflictError when there is one of this adapter and scheme."""
    known = sorted([*ADAPTERS, CLOUDEVENTS])
    if asked.adapter not in known:
        raise UserError(f"There is no adapter {asked.adapter!r}. {nearest(asked.adapter, known)}")
    sources.check_patterns(asked.sources)
    scheme = asked.scheme or _DEFAULTS[asked.adapter]
    if scheme == "sns":
        if asked.adapter != "s3":
            raise UserError(
                f"SNS brings notifications of S3, so the scheme sns is of the adapter s3, not {asked.adapter}."
            )
        sns.check_topics(asked.topics)
    elif asked.topics:
        raise UserError(f"Only the scheme sns has topics, and this hook has {scheme}. Add --scheme sns.")
    row = tx.one(sa.select(_TABLE).where(_this(project, asked.adapter, scheme)))
    if row is not None and row.removed_ns is None:
        raise ConflictError(
            f"Project {project!r} has a hook {asked.adapter} {scheme} already, and its secret was shown once. "
            f"`trainlet hook rotate {asked.adapter} --scheme {scheme}` makes a new one."
        )
    values: dict[str, Any] = {
        "generation": 1 if row is None else row.generation + 1,
        "sources": dumps({"sources": asked.sources, "topics": asked.topics} if asked.topics else asked.sources),
        "created_ns": tx.now_ns,
        "previous_until_ns": None,
        "removed_ns": None,
        "used_ns": None,
    }
    if row is None:
        tx.insert(_TABLE, project=project, adapter=asked.adapter, scheme=scheme, **values)
    else:
        tx.run(_TABLE.update().where(_this(project, asked.adapter, scheme)).values(values))
    return _shown(tx, signer, project, asked.adapter, scheme)


def rotate(tx: Transaction, signer: Signer, project: str, adapter: str, scheme: str, grace_s: float) -> HookSecret:
    """Give a hook a new secret; the one before is good for a while yet, and none before that."""
    row = _row(tx, project, adapter, scheme)
    until_ns = tx.now_ns + round(grace_s * 1e9)
    values = {"generation": row.generation + 1, "previous_until_ns": until_ns if grace_s else None}
    tx.run(_TABLE.update().where(_this(project, adapter, scheme)).values(values))
    return _shown(tx, signer, project, adapter, scheme)


def list_(tx: Transaction, project: str) -> list[HookView]:
    """Return the hooks of a project."""
    mine = (_TABLE.c.project == project) & _TABLE.c.removed_ns.is_(None)
    return [_view(tx, row) for row in tx.all(sa.select(_TABLE).where(mine).order_by(_TABLE.c.adapter, _TABLE.c.scheme))]


def remove(tx: Transaction, project: str, adapter: str, scheme: str) -> None:
    """Remove a hook: what its senders send is refused from now on."""
    _row(tx, project, adapter, scheme)
    tx.run(_TABLE.update().where(_this(project, adapter, scheme)).values(removed_ns=tx.now_ns))


def admit(
    tx: Transaction,
    signer: Signer,
    project: str,
    adapter: str,
    headers: Mapping[str, str],
    body: bytes,
    *,
    given: str | None = None,
) -> Scheme:
    """Return the scheme by which a request shows that it comes from a hook's sender; raises webhooks.Refused.

    `given` is the secret in the URL. A hook that is not there refuses like one whose secret is another.
    """
    if given is not None:
        return _by_url(tx, signer, project, adapter, given)
    scheme = webhooks.scheme_of(headers)
    row, secrets = _good(tx, signer, project, adapter, scheme)
    webhooks.check(scheme, secrets, headers, body, tx.now_ns / 1e9)
    if row is None:
        raise webhooks.Refused("there is no such hook")
    return scheme


def _by_url(tx: Transaction, signer: Signer, project: str, adapter: str, given: str) -> Scheme:
    """Return which of the schemes that have their secret in the URL this one is of; raises webhooks.Refused."""
    for scheme in _IN_URL:
        row, secrets = _good(tx, signer, project, adapter, scheme)
        with contextlib.suppress(webhooks.Refused):
            webhooks.check_given(secrets, given)
            if row is not None:
                return scheme
    raise webhooks.Refused("the secret in the URL is not the hook's")


def topics(tx: Transaction, project: str, adapter: str) -> list[str]:
    """Return the topics whose messages the hook of the scheme sns takes; none when it was removed meanwhile."""
    row = _there(tx, project, adapter, "sns")
    return [] if row is None else _bounds(row)[1]


def _bounds(row: sa.Row[Any]) -> tuple[list[str], list[str]]:
    """Return the sources and the topics that a hook is bound to."""
    told = loads(row.sources)
    return (told, []) if isinstance(told, list) else (told["sources"], told["topics"])


def _good(
    tx: Transaction, signer: Signer, project: str, adapter: str, scheme: Scheme
) -> tuple[sa.Row[Any] | None, list[str]]:
    """Return a hook with its secrets that are good now; one that is not there has a secret that nobody has."""
    row = _there(tx, project, adapter, scheme)
    generations = [0] if row is None else webhooks.generations(row, tx.now_ns)
    return row, [_secret(signer, project, adapter, scheme, generation) for generation in generations]


def used(tx: Transaction, project: str, adapter: str, scheme: Scheme, events: Sequence[Event]) -> None:
    """Note that a hook brought events; raises AccessError for one whose source it may not bring."""
    row = _row(tx, project, adapter, scheme)
    allowed, _ = _bounds(row)
    for event in events if allowed else ():
        if not sources.fits(event.source, allowed):
            raise AccessError(
                f"The hook {adapter} {scheme} takes events of {', '.join(allowed)} only, not of {event.source!r}."
            )
    if row.used_ns is None or tx.now_ns - row.used_ns > _USED_S * 1e9:
        tx.run(_TABLE.update().where(_this(project, adapter, scheme)).values(used_ns=tx.now_ns))


def _secret(signer: Signer, project: str, adapter: str, scheme: str, generation: int) -> str:
    raw = signer.derive("hook", project, adapter, scheme, generation)
    if scheme == "standard":
        return webhooks.STANDARD_PREFIX + base64.b64encode(raw).decode()
    return _PREFIX + base64.urlsafe_b64encode(raw).decode().rstrip("=")


def _shown(tx: Transaction, signer: Signer, project: str, adapter: str, scheme: str) -> HookSecret:
    row = _row(tx, project, adapter, scheme)
    secret, view = _secret(signer, project, adapter, scheme, row.generation), _view(tx, row)
    return HookSecret(hook=view, secret=secret, path=f"{view.path}/{secret}" if scheme in _IN_URL else view.path)


def _row(tx: Transaction, project: str, adapter: str, scheme: str) -> sa.Row[Any]:
    row = _there(tx, project, adapter, scheme)
    if row is None:
        known = ", ".join(f"{one.adapter} {one.scheme}" for one in list_(tx, project)) or "none"
        raise NotFoundError(f"Project {project!r} has no hook {adapter} {scheme}. It has: {known}.")
    return row


def _there(tx: Transaction, project: str, adapter: str, scheme: str) -> sa.Row[Any] | None:
    """Return a hook that was not removed."""
    return tx.one(sa.select(_TABLE).where(_this(project, adapter, scheme) & _TABLE.c.removed_ns.is_(None)))


def _this(project: str, adapter: str, scheme: str) -> sa.ColumnElement[bool]:
    return (_TABLE.c.project == project) & (_TABLE.c.adapter == adapter) & (_TABLE.c.scheme == scheme)


def _view(tx: Transaction, row: sa.Row[Any]) -> HookView:
    until_ns = row.previous_until_ns
    return HookView(
        adapter=row.adapter,
        scheme=row.scheme,
        path=f"/v1/projects/{row.project}/hooks/{row.adapter}",
        generation=row.generation,
        sources=_bounds(row)[0],
        topics=_bounds(row)[1],
        created_at=rfc3339(row.created_ns),
        previous_until=None if until_ns is None or until_ns <= tx.now_ns else rfc3339(until_ns),
        last_used_at=None if row.used_ns is None else rfc3339(row.used_ns),
    )
