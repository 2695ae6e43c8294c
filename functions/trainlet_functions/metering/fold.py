"""The fold: what all events of a lease say together, whatever their order and however often each came.

`joined` is commutative, associative and idempotent, so a lost, late or repeated event can only be missing, never wrong.
This module knows neither tables nor transactions.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Sequence
from typing import Any, NamedTuple

from trainlet.core.wire import LeaseEvent
from trainlet_functions.state.database import dumps, loads

Phases = tuple[tuple[str, int], ...]
EARLIEST_NS = 946_684_800_000_000_000
FUTURE_NS = 86_400_000_000_000
_MOST_NS = 1 << 62  # 146 years; what is above is no time, and no 64-bit column holds it


class Held(NamedTuple):
    """How long a lease was held: the greatest heartbeat, the smallest close, the longest list of phase marks.

    `saved_ns` is the last checkpoint that the worker told of.
    """

    heartbeat_ns: int
    close_ns: int | None
    phases: Phases
    saved_ns: int = 0

    def joined(self, other: Held) -> Held:
        """Return what both say together."""
        if self.close_ns is None or other.close_ns is None:
            close_ns = other.close_ns if self.close_ns is None else self.close_ns
        else:
            close_ns = min(self.close_ns, other.close_ns)
        mine, theirs = (len(self.phases), self.phases), (len(other.phases), other.phases)
        saved_ns = max(self.saved_ns, other.saved_ns)
        return Held(max(self.heartbeat_ns, other.heartbeat_ns), close_ns, max(mine, theirs)[1], saved_ns)

    def closed(self, elapsed_ns: int) -> Held:
        """Return the same, ended after `elapsed_ns` at the latest."""
        close_ns = elapsed_ns if self.close_ns is None else min(self.close_ns, elapsed_ns)
        return Held(self.heartbeat_ns, close_ns, self.phases, self.saved_ns)

    @property
    def elapsed_ns(self) -> int:
        """Return the time that counts: until the close, else until the last heartbeat."""
        return self.heartbeat_ns if self.close_ns is None else self.close_ns


def said_by(event: LeaseEvent) -> Held:
    """Return what one event says."""
    close_ns = event.elapsed_ns if event.kind == "close" else None
    return Held(event.elapsed_ns, close_ns, event.phases, min(event.saved_ns, event.elapsed_ns))


def folded(events: Sequence[LeaseEvent]) -> Held:
    """Return what one or more events of a lease say together: all of `said_by`, `joined`."""
    if len(events) == 1:
        return said_by(events[0])
    phases = events[0].phases
    for event in events:
        if event.phases != phases:
            phases = max(phases, event.phases, key=_longest)
    return Held(
        max([event.elapsed_ns for event in events]),
        min([event.elapsed_ns for event in events if event.kind == "close"], default=None),
        phases,
        max([min(event.saved_ns, event.elapsed_ns) for event in events]),
    )


def _longest(phases: Phases) -> tuple[int, Phases]:
    return len(phases), phases


HEADER = (
    "lease", "run_id", "task", "epoch", "function", "device", "sku", "virtual", "share", "part", "rate", "tags",
    "anchor_ns",
)  # fmt: skip
"""The columns that every event of a lease repeats, and in which all of them must agree."""
_before_tags = operator.attrgetter(
    "lease", "run_id", "task", "epoch", "function", "device.uuid", "device.sku", "device.virtual", "share", "part",
    "rate",
)  # fmt: skip


def header(event: LeaseEvent) -> tuple[Any, ...]:
    """Return these columns as an event says them."""
    tags = event.tags
    return (*_before_tags(event), dumps(tags, sort_keys=True) if tags else "{}", event.anchor_ns)


def contradiction(said: tuple[Any, ...], header: tuple[Any, ...]) -> str:
    """Say what an event contradicts its lease in."""
    wrong = next(name for name, one, other in zip(HEADER, said, header, strict=True) if one != other)
    return f"its {wrong} contradicts its lease"


def columns(held: Held) -> tuple[int, int | None, str, int]:
    """Return the values of heartbeat_ns, close_ns, phases and saved_ns."""
    return held.heartbeat_ns, held.close_ns, _phases_text(held.phases), held.saved_ns


@functools.lru_cache(maxsize=4096)
def _phases_text(phases: Phases) -> str:
    return dumps(phases)


def held(heartbeat_ns: int, close_ns: int | None, phases: str, saved_ns: int) -> Held:
    """Return what a stored lease says, of the same columns."""
    return Held(heartbeat_ns, close_ns, phases_of(phases), saved_ns)


@functools.lru_cache(maxsize=4096)
def phases_of(text: str) -> Phases:
    """Return the phase marks of a stored lease."""
    return tuple((name, begin) for name, begin in loads(text))


def fault(event: LeaseEvent) -> str | None:
    """Say why an event cannot be metered at all, or None."""
    if not 0 <= event.anchor_ns < _MOST_NS or event.elapsed_ns >= _MOST_NS or event.saved_ns >= _MOST_NS:
        return "its times are out of range"
    for _, begin in event.phases:
        if not 0 <= begin < _MOST_NS:
            return "a phase begins out of range"
    names = (event.id, event.lease, event.function, event.device.uuid, event.device.sku)
    if not all(names) or max(map(len, names)) > 512 or "\0" in "".join(names):
        return "a name is empty, too long or holds a NUL"
    return None


def misdated(event: LeaseEvent, now_ns: int) -> str | None:
    """Say why an event cannot have happened when it says, or None: long ago, or in a future that no skew explains."""
    if event.anchor_ns < EARLIEST_NS:
        return "its lease began before the year 2000"
    if event.anchor_ns + event.elapsed_ns > now_ns + FUTURE_NS:
        return "it ends more than a day in the future"
    return None
