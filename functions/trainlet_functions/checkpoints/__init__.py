"""Checkpoints that survive: an append-only create-once log, verified packs, one hash chain from log to byte.

The format is in docs/checkpoints.md. There is no pickle on any path, and no clock decides anything: epochs do. This room
knows object stores and nothing of workers or the API.
"""

from __future__ import annotations

from trainlet_functions.checkpoints.arrays import Shard
from trainlet_functions.checkpoints.attributes import Attributes
from trainlet_functions.checkpoints.boards import Board
from trainlet_functions.checkpoints.checkpointer import Checkpointer, Progress
from trainlet_functions.checkpoints.links import Line
from trainlet_functions.checkpoints.listing import fence, list_checkpoints, verify
from trainlet_functions.checkpoints.positions import RandomStates, Sampler
from trainlet_functions.checkpoints.stages import Buffer

__all__ = [
    "Attributes",
    "Board",
    "Buffer",
    "Checkpointer",
    "Line",
    "Progress",
    "RandomStates",
    "Sampler",
    "Shard",
    "fence",
    "list_checkpoints",
    "verify",
]
