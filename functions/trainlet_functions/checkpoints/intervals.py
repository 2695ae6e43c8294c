"""How often to save when nobody says, and whether what is staged can be saved in the time that a stop leaves.

Pure arithmetic. The interval is Young's approximation, sqrt(2 x cost x time between failures), never shorter than two
uploads and never longer than 30 minutes. It is at least 30 s: a save is four requests to the store, and those cost too.
"""

from __future__ import annotations

import math

MTBF_S = 4 * 3600.0  # between ends of a preemptible machine; the square root forgives a wrong guess
LONGEST_S = 30 * 60.0
SHORTEST_S = 30.0
STALL_SHARE = 0.01
MARGIN_S = 5.0
SHARE = 0.6


def periodic_s(stall_s: float, upload_s: float, mtbf_s: float = MTBF_S) -> float:
    """Return the seconds between two saves for what a save costs the training loop and how long an upload takes."""
    return min(LONGEST_S, max(SHORTEST_S, 2 * upload_s, math.sqrt(2 * max(stall_s, 0.0) * mtbf_s)))


def rolling_s(upload_s: float) -> float:
    """Return the seconds between two saves when a stop leaves too little time for one: as soon as one is done."""
    return max(1.0, upload_s)


def staging_s(stall_s: float) -> float:
    """Return the seconds between two copies so that copying takes at most one hundredth of the time."""
    return stall_s / STALL_SHARE


def fits(size_bytes: int, grace_s: float, bytes_per_s: float) -> bool:
    """Say whether a whole state can be uploaded in the grace of a stop, with room for a slow store."""
    return size_bytes <= SHARE * max(0.0, grace_s - MARGIN_S) * bytes_per_s
