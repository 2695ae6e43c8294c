"""From a lease to billable whole seconds: rule D.

A lease held over [s, e) is billed over [S, E) with `S = ceil(s)` and `E = S + floor(e - s)`, in whole UTC seconds. It
never bills more than was held, under-bills by less than a second, and two disjoint leases of a device never share a
second. Every later cut (phase, hour, price change) is on a whole second, so any partition sums exactly.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

SECOND_NS = 1_000_000_000


class Segment(NamedTuple):
    """Whole seconds [start_s, end_s) of one phase of a lease. There are millions: a tuple is made fastest."""

    phase: str
    start_s: int
    end_s: int

    @property
    def seconds(self) -> int:
        """Return the length."""
        return self.end_s - self.start_s


def billable(anchor_ns: int, elapsed_ns: int) -> tuple[int, int]:
    """Return (S, E) of a lease that began at `anchor_ns` (UTC) and was held for `elapsed_ns`."""
    start_s = -(-anchor_ns // SECOND_NS)
    return start_s, start_s + max(0, elapsed_ns) // SECOND_NS


def segments_of(anchor_ns: int, elapsed_ns: int, phases: Sequence[tuple[str, int]]) -> list[Segment]:
    """Cut a lease at its phase marks. A phase shorter than a whole second leaves no segment; nothing is lost or doubled."""
    start_s, end_s = billable(anchor_ns, elapsed_ns)
    if len(phases) == 1:
        return [Segment(phases[0][0], start_s, end_s)] if end_s > start_s else []
    marks = sorted(phases, key=lambda mark: mark[1]) or [("run", 0)]
    cuts = [min(end_s, start_s + max(0, begin_ns) // SECOND_NS) for _, begin_ns in marks]
    cuts[0] = start_s
    cuts.append(end_s)
    pieces = [Segment(marks[index][0], cuts[index], cuts[index + 1]) for index in range(len(marks))]
    return [piece for piece in pieces if piece.seconds > 0]


def split_at(segments: Iterable[Segment], cuts_s: Iterable[int]) -> list[Segment]:
    """Cut segments at whole seconds, such as the start of a new price."""
    cuts = sorted(set(cuts_s))
    pieces: list[Segment] = []
    for segment in segments:
        begin = segment.start_s
        for cut in cuts:
            if begin < cut < segment.end_s:
                pieces.append(Segment(segment.phase, begin, cut))
                begin = cut
        pieces.append(Segment(segment.phase, begin, segment.end_s))
    return pieces
