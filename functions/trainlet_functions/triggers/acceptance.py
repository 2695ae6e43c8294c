"""The shortest way of an event: taken in, and where nothing has to be waited for, a run of it in the same transaction.

Whoever sent the event has its run when the answer comes. What does not start here (a queue, a window, many triggers, a
mistake in one) is due, and the engine looks at it as at everything else.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

from trainlet.core.events import Event
from trainlet_functions.state.database import Transaction
from trainlet_functions.triggers import flow, intake
from trainlet_functions.triggers.matching import Matcher

_LOG = logging.getLogger(__name__)
_MOST = 2  # triggers that are looked at: a sender waits for this


def accept(
    tx: Transaction, project: str, events: Sequence[Event], matcher: Matcher, *, identified: bool = False
) -> intake.Taken:
    """Take events in as `intake.take` does, and start at most one run of each of the first triggers that are due."""
    taken = intake.take(tx, project, events, matcher, identified=identified)
    for name in taken.due[:_MOST]:
        try:
            with tx.conn.begin_nested():
                flow.advance(tx, project, name, most=1)
        except Exception:  # noqa: BLE001 - the events are in; the engine looks again, and says at the trigger what is wrong
            _LOG.warning("the trigger %s of %s could not start at once", name, project, exc_info=True)
    return taken
