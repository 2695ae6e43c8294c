"""The other thing that the warm process is forked into: the sidecar that saves what a child has staged."""

from __future__ import annotations

import json

from trainlet_functions.checkpoints import sidecars


def is_for(order: bytes) -> bool:
    """Say whether an order is one for a sidecar."""
    return bool(json.loads(order).get("role") == "saver")


def run(order: bytes, report: int, control: int, staging: list[int]) -> int:
    """Be the sidecar; returns the exit status."""
    *buffers, channel = staging
    sidecars.serve(sidecars.SaverOrder.model_validate_json(order), buffers, channel, control, report)
    return 0
