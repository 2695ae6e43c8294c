"""Bearer tokens: random, stored only as their sha256, good for one project and the scopes that they name.

Scopes are `client` (what a person does), `events` (bringing events in and nothing else), `worker:<function>` (asking for
work of one function) and `admin`.
"""

from __future__ import annotations

import hashlib
import secrets
from dataclasses import dataclass

import sqlalchemy as sa

from trainlet.core.errors import AccessError
from trainlet_functions.state import schema
from trainlet_functions.state.database import Transaction, dumps, loads


@dataclass(frozen=True, slots=True)
class Identity:
    """Who a token belongs to and what it may do."""

    project: str
    scopes: frozenset[str]
    label: str
    worker: str | None = None  # of a pod: the only worker it may speak as

    def require(self, scope: str) -> None:
        """Raise AccessError unless this identity has the scope (`admin` has all)."""
        if scope not in self.scopes and "admin" not in self.scopes:
            raise AccessError(f"This token ({self.label}) is not good for that: it lacks the scope {scope!r}.")


def token_hash(token: str) -> str:
    """Return what is stored of a token."""
    return hashlib.sha256(token.encode()).hexdigest()


def new_token(prefix: str) -> str:
    """Return a fresh random token; the prefix tells people and secret scanners what it is."""
    return f"{prefix}_{secrets.token_urlsafe(32)}"


def create(tx: Transaction, project: str, scopes: set[str], label: str, *, expires_ns: int | None = None) -> str:
    """Make a token and return it; it cannot be read again."""
    token = new_token("tlw" if any(scope.startswith("worker:") for scope in scopes) else "tl")
    tx.run(
        schema.tokens.insert().values(
            hash=token_hash(token),
            project=project,
            scopes=dumps(sorted(scopes)),
            label=label,
            created_ns=tx.now_ns,
            expires_ns=expires_ns,
        )
    )
    return token


def ensure(tx: Transaction, token: str, project: str, scopes: set[str], label: str) -> None:
    """Make a token that was chosen elsewhere valid; nothing happens when it is."""
    known = tx.one(sa.select(schema.tokens.c.hash).where(schema.tokens.c.hash == token_hash(token)))
    if known is None:
        values = {"hash": token_hash(token), "project": project, "scopes": dumps(sorted(scopes)), "label": label}
        tx.insert(schema.tokens, **values, created_ns=tx.now_ns, expires_ns=None)


def verify(tx: Transaction, token: str) -> Identity:
    """Return who the token belongs to; raises AccessError when it is unknown or expired."""
    row = tx.one(sa.select(schema.tokens).where(schema.tokens.c.hash == token_hash(token)))
    if row is None or (row.expires_ns is not None and row.expires_ns <= tx.now_ns):
        raise AccessError("The token is unknown or expired. Get a new one, and set it as TRAINLET_TOKEN.")
    return Identity(row.project, frozenset(loads(row.scopes)), row.label)
