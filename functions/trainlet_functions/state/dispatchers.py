"""Leases of whoever waits: renewed while somebody is there; when one expires, its tasks checkpoint and stop."""

from __future__ import annotations

from trainlet.core.wire import DispatcherLease
from trainlet_functions.state import schema
from trainlet_functions.state.database import Transaction

_TABLE = schema.dispatchers


def renew(tx: Transaction, project: str, lease: DispatcherLease) -> None:
    """Extend a dispatcher's lease, or create it."""
    expires_ns = tx.now_ns + round(lease.lease_s * 1e9)
    where = (_TABLE.c.project == project) & (_TABLE.c.id == lease.id)
    if not tx.run(_TABLE.update().where(where).values(expires_ns=expires_ns)):
        tx.run(_TABLE.insert().values(project=project, id=lease.id, expires_ns=expires_ns))
