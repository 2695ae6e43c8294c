"""The ledger as the platform writes it: usage comes in, is counted as spent, and is held against every limit.

All of it is one transaction, so no second of a device is ever known to the meter and not to the budgets.
"""

from __future__ import annotations

from collections.abc import Iterable

from trainlet.core.wire import LeaseEvent
from trainlet_functions import metering
from trainlet_functions.billing import spending
from trainlet_functions.state import funds
from trainlet_functions.state.database import Transaction


def take(tx: Transaction, project: str, events: Iterable[LeaseEvent]) -> bool:
    """Take in usage: what is new is counted once, and what it exhausts is stopped. Returns whether any limit binds it."""
    return funds.settle(tx, enter(tx, project, events))


def enter(tx: Transaction, project: str, events: Iterable[LeaseEvent]) -> set[tuple[str, str]]:
    """Take in usage and count it; returns every (project, run) that it changed, for `funds.settle`."""
    given = list(events)
    if not given:
        return set()
    metering.ingest(tx, project, given)
    touched = spending.count(tx)
    if funds.cut(tx, {(event.task, event.epoch) for event in given}):
        touched |= spending.count(tx)
    return touched


def give_up(tx: Transaction, task: str, epoch: int, *, fault: bool) -> None:
    """End the leases of an attempt that was given up, at their last accepted heartbeat, and count them so."""
    metering.close_stale(tx, task, epoch, fault=fault)
    spending.count(tx)
