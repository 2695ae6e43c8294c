"""Leases of whoever waits: renewed while somebody is there; when one expires, its tasks checkpoint and stop."""

from __future__ import annotations

import sqlalchemy as sa

from trainlet.core.wire import DispatcherLease
from trainlet_functions.state import schema
from trainlet_functions.state.database import Transaction

_TABLE = schema.dispatchers
_RENEW = _TABLE.update().where(
    (_TABLE.c.project == sa.bindparam("in_project")) & (_TABLE.c.id == sa.bindparam("this_id"))
)


def renew(tx: Transaction, project: str, lease: DispatcherLease) -> None:
    """Extend a dispatcher's lease, or create it."""
    expires_ns = tx.now_ns + round(lease.lease_s * 1e9)
    if not tx.run(_RENEW, {"in_project": project, "this_id": lease.id, "expires_ns": expires_ns}):
        tx.insert(_TABLE, project=project, id=lease.id, expires_ns=expires_ns)
