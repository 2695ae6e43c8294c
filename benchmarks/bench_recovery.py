"""What saving costs beside the training thread, and how soon training goes on: JSON on stdout.

`python benchmarks/bench_recovery.py [MiB]`. Uploads go over HTTP to a server that throws them away, so that the client is
what is measured. The trainer is a process that is killed: its saver commits what it had staged, and a new process goes on.
"""

from __future__ import annotations

import json
import os
import resource
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np

import trainlet as tl
from trainlet.client.stores import DirectoryStore
from trainlet.client.stores.s3 import S3Store
from trainlet_functions.checkpoints import Checkpointer, list_checkpoints, packs

PACK_BYTES = 64 << 20
ANSWER = b'HTTP/1.1 200 OK\r\nETag: "x"\r\nContent-Length: 0\r\n\r\n'


def discard() -> None:
    """Be a server that takes every PUT and keeps nothing; says its port first."""

    def serve(connection: socket.socket) -> None:
        memory = bytearray(1 << 20)
        while True:
            head = b""
            while b"\r\n\r\n" not in head:
                more = connection.recv(65536)
                if not more:
                    return
                head += more
            top, _, rest = head.partition(b"\r\n\r\n")
            length = next(int(one.split(b":")[1]) for one in top.lower().split(b"\r\n") if b"content-length" in one)
            left = length - len(rest)
            while left > 0:
                left -= connection.recv_into(memory, min(left, len(memory)))
            connection.sendall(ANSWER)

    door = socket.create_server(("127.0.0.1", 0))
    print(door.getsockname()[1], flush=True)
    while True:
        threading.Thread(target=serve, args=(door.accept()[0],), daemon=True).start()


def upload() -> dict[str, float]:
    """Upload a gigabyte by as many connections as a checkpoint uses."""
    server = subprocess.Popen([sys.executable, __file__, "discard"], stdout=subprocess.PIPE)
    assert server.stdout is not None
    os.environ |= {"AWS_ENDPOINT_URL": f"http://127.0.0.1:{int(server.stdout.readline())}"}
    os.environ |= {"AWS_ACCESS_KEY_ID": "x", "AWS_SECRET_ACCESS_KEY": "x"}
    body = memoryview(np.random.default_rng(0).bytes(PACK_BYTES))
    store = S3Store("bucket")
    store.create("warm", body)
    before = resource.getrusage(resource.RUSAGE_SELF)
    began = time.perf_counter()
    with ThreadPoolExecutor(packs.CONNECTIONS) as pool:
        list(pool.map(lambda number: store.create(f"pack{number}", body), range(16)))
    took = time.perf_counter() - began
    after = resource.getrusage(resource.RUSAGE_SELF)
    server.kill()
    server.wait()
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    began = time.process_time()
    packs.digest_of(body)
    hashing = (time.process_time() - began) * 16
    return {
        "upload_cpu_s_per_gib": round(cpu, 3),
        "hash_cpu_s_per_gib": round(hashing, 3),
        "upload_16_connections_mb_per_s": round((1 << 30) / took / 1e6, 1),
    }


def tiny() -> dict[str, float]:
    """Commit a state of a few numbers to a directory, with fsync."""
    with tempfile.TemporaryDirectory() as folder:
        made = Checkpointer(DirectoryStore(Path(folder)), "runs/tiny", 1)
        made.register(weights=np.zeros(10))
        took = []
        for step in range(1, 31):
            began = time.perf_counter()
            made.save(step)
            took.append(time.perf_counter() - began)
    return {"tiny_commit_ms": round(statistics.median(took) * 1e3, 2)}


def restoring(arrays: dict[str, np.ndarray]) -> dict[str, float]:
    """Restore into arrays that exist."""
    size = sum(one.nbytes for one in arrays.values())
    found = {}
    with tempfile.TemporaryDirectory() as folder:
        made = Checkpointer(DirectoryStore(Path(folder)), "runs/big", 1)
        made.register(**arrays)
        made.save(1)
        for name, verify in (("verified", True), ("unverified", False)):
            took = []
            for _ in range(3):
                began = time.perf_counter()
                made.restore(verify=verify)
                took.append(time.perf_counter() - began)
            found[f"restore_{name}_gb_per_s"] = round(size / min(took) / 1e9, 2)
    return found


def some(mebibytes: int) -> dict[str, np.ndarray]:
    """Return arrays of that size."""
    return {f"layer{index}": np.random.default_rng(index).random(mebibytes << 14) for index in range(8)}


def trainer(folder: str, mebibytes: int) -> None:
    """Train: say when two states are staged, and when the first step after a restore is done."""
    again = os.environ.get("AGAIN")  # memory without content: it is filled by the restore
    arrays = {f"layer{index}": np.empty(mebibytes << 14) for index in range(8)} if again else some(mebibytes)
    ck = tl.checkpoint("big", store=folder, every="1h")
    ck.register(**arrays)
    start = ck.restore()
    step = start.step if start else 0
    while True:
        step += 1
        for one in arrays.values():
            one[0] = step
        ck.step(step)
        if start or step >= 3:
            print(step, flush=True)
            time.sleep(60)


def killed(mebibytes: int) -> dict[str, float]:
    """Kill a trainer and start it again."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        command = [sys.executable, __file__, "trainer", folder, str(mebibytes)]
        first = subprocess.Popen(command, stdout=subprocess.PIPE)
        assert first.stdout is not None
        first.stdout.readline()
        began = time.perf_counter()
        first.send_signal(signal.SIGKILL)
        store = DirectoryStore(Path(folder))
        while not list_checkpoints(store, "runs/big"):
            time.sleep(0.005)
        committed = time.perf_counter() - began
        second = subprocess.Popen(command, stdout=subprocess.PIPE, env={**os.environ, "AGAIN": "1"})
        assert second.stdout is not None
        second.stdout.readline()
        goes_on = time.perf_counter() - began
        second.kill()
        for one in (first, second):
            one.wait()
        while list_checkpoints(store, "runs/big")[0].epoch < 2:  # what the second one had staged
            time.sleep(0.05)
        time.sleep(0.5)
    return {"kill_to_committed_s": round(committed, 3), "kill_to_next_step_s": round(goes_on, 3)}


def main() -> None:
    """Measure and print."""
    mebibytes = int(sys.argv[1]) if len(sys.argv) > 1 else 256
    found = {"size_mib": mebibytes, **killed(mebibytes), **restoring(some(mebibytes)), **tiny(), **upload()}
    print(json.dumps(found, indent=1))


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["discard"]:
            discard()
        case ["trainer", folder, size]:
            trainer(folder, int(size))
        case _:
            main()
