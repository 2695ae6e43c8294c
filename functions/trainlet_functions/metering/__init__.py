"""The meter: lease events in, leases and whole-second segments out.

Allocation decides the bill, never a sample of utilization. Events are kept as they came and folded by rules that do not
care about order or repetition, so the ledger can always be rebuilt. This room must not know prices.
"""

from __future__ import annotations

from trainlet_functions.metering.ingest import (
    Refusal,
    close_at,
    close_stale,
    elapsed_ns,
    ingest,
    rebuild,
    refusals,
    segments,
)
from trainlet_functions.metering.segments import Segment, billable, segments_of

__all__ = [
    "Refusal", "Segment", "billable", "close_at", "close_stale", "elapsed_ns", "ingest", "rebuild", "refusals", "segments",
    "segments_of",
]  # fmt: skip
