"""What PID 1 tells a child to do, and what the child answers: JSON on a pipe."""

from __future__ import annotations

from typing import Any

from trainlet.core.models import Value
from trainlet.core.specs import FunctionSpec
from trainlet.core.wire import Device


class Order(Value):
    """One rank of one attempt. `environment` is complete: the child has nothing else."""

    run_id: str
    task: str
    node: str
    epoch: int
    rank: int
    spec: FunctionSpec
    args: dict[str, Any]
    devices: tuple[Device, ...]
    bundle_dir: str
    scratch_dir: str
    store_url: str
    environment: dict[str, str]
