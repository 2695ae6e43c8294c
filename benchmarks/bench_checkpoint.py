"""What a checkpoint costs the training thread, beside a plain copy of the same bytes: JSON on stdout.

`python benchmarks/bench_checkpoint.py [MiB]`. The saver commits to a directory with fsync; the next copy goes to the
other buffer meanwhile, as in training. Where PyTorch is (`make test-torch` makes such an environment), what blocks the
training thread in torch.save, safetensors and DCP is measured in the same run, writing the same bytes to the same disk
(they do not fsync).
"""

from __future__ import annotations

import json
import statistics
import sys
import tempfile
import time

import numpy as np

import trainlet as tl


def peers(arrays: dict[str, np.ndarray]) -> dict[str, float]:
    """Return the milliseconds that others block the training thread for: the first time, and the median of three more."""
    try:
        import safetensors.torch
        import torch
        import torch.distributed.checkpoint as dcp
    except ImportError:
        return {}
    import torch.distributed as dist

    dist.init_process_group("gloo", init_method="tcp://127.0.0.1:0", rank=0, world_size=1)
    state = {name: torch.from_numpy(array) for name, array in arrays.items()}
    found: dict[str, float] = {}
    with tempfile.TemporaryDirectory() as folder:

        def asynchronous(number: int) -> object:
            return dcp.async_save(state, checkpoint_id=f"{folder}/async{number}")

        def in_a_process(number: int) -> object:
            kind = dcp.state_dict_saver.AsyncCheckpointerType.PROCESS
            return dcp.async_save(state, checkpoint_id=f"{folder}/process{number}", async_checkpointer_type=kind)

        ways = {
            "torch_save": lambda number: torch.save(state, f"{folder}/torch"),
            "safetensors": lambda number: safetensors.torch.save_file(state, f"{folder}/safetensors"),
            "dcp_sync": lambda number: dcp.save(state, checkpoint_id=f"{folder}/dcp{number}"),
            "dcp_async": asynchronous,
            "dcp_process": in_a_process,
        }
        for name, save in ways.items():
            took = []
            for number in range(4):
                began = time.perf_counter()
                pending = save(number)
                took.append(time.perf_counter() - began)
                if name in ("dcp_async", "dcp_process"):
                    pending.result()
            found[f"{name}_first_ms"] = round(took[0] * 1e3, 1)
            found[f"{name}_ms"] = round(statistics.median(took[1:]) * 1e3, 1)
    dist.destroy_process_group()
    return found


def main() -> None:
    """Measure and print."""
    mebibytes = int(sys.argv[1]) if len(sys.argv) > 1 else 256
    arrays = {f"layer{index}": np.random.default_rng(index).random(mebibytes << 14) for index in range(8)}
    target = {name: np.ones_like(array) for name, array in arrays.items()}
    copies, stalls, commits = [], [], []
    with tempfile.TemporaryDirectory() as folder, tl.checkpoint("bench", store=folder, every="1h") as ck:
        ck.register(**arrays)
        ck.restore()
        ck._stager._preparing.join()  # in training this happens during the first steps
        for step in range(1, 7):
            began = time.perf_counter()
            for name, array in arrays.items():
                target[name][...] = array
            copies.append(time.perf_counter() - began)
            for array in arrays.values():
                array[::4096] += 1
            began = time.perf_counter()
            ck._order("periodic", {}, {})
            stalls.append(time.perf_counter() - began)
            ck._step = step
            began = time.perf_counter()
            ck.wait()
            commits.append(time.perf_counter() - began)
        for array in arrays.values():
            array[:] = 0
        began = time.perf_counter()
        ck.restore()
        restored = time.perf_counter() - began
        assert all(array.any() for array in arrays.values())
    size = sum(array.nbytes for array in arrays.values())
    print(
        json.dumps(
            {
                "size_mib": size / 2**20,
                "memcpy_ms": round(statistics.median(copies) * 1e3, 1),
                "stall_first_ms": round(stalls[0] * 1e3, 1),
                "stall_ms": round(statistics.median(stalls) * 1e3, 1),
                "stall_over_memcpy": round(statistics.median(stalls) / statistics.median(copies), 3),
                "commit_s": round(statistics.median(commits), 3),
                "restore_verified_gb_per_s": round(size / restored / 1e9, 2),
                "peers_block_ms": peers(arrays),
            },
            indent=1,
        )
    )


if __name__ == "__main__":
    main()
