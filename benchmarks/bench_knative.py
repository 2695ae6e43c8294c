"""What Knative's manners cost a worker: JSON on stdout and in benchmarks/knative.json, in less than a minute.

`python benchmarks/bench_knative.py`. The training API, its workers and their holds are real; queue-proxy, activator,
autoscaler and broker are the imitation of the contract tests, so its own part of each latency is Python's, not Go's.
The CPU of an idle hour is extrapolated from `HOLD_S` seconds of holding. Sizes of images are told when
TRAINLET_TEST_IMAGE_FOLDER names a folder in which tests/image/build.sh has built them.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
import uuid
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from http.client import HTTPConnection
from pathlib import Path
from statistics import median, quantiles
from typing import Any

HERE = Path(__file__).parent
CONTRACT = HERE.parent / "tests" / "knative" / "contract"
sys.path[:0] = [str(CONTRACT), str(CONTRACT / "code")]

from imitation.clusters import ImitationCluster  # noqa: E402 - the imitation is found by the path above
from imitation.queue_proxy import QueueProxy  # noqa: E402

from trainlet.client.http import Client  # noqa: E402
from trainlet.core import wire  # noqa: E402
from trainlet.core.settings import Settings  # noqa: E402
from trainlet.sessions import Session  # noqa: E402

WARM_ROUNDS = 20
CALLERS, EVENTS = 64, 10
HOLD_S = 10.0
STARTS = 3

HOLDER = """
import sys, threading
from trainlet_functions.worker import server
from trainlet_knative.hosts import KnativePodHost

class Idle:
    def wake(self, task, epoch, sender=None): return 202
    def ready(self): return True

host = KnativePodHost(port=int(sys.argv[2]))
door = server.serve(Idle(), host="127.0.0.1", port=int(sys.argv[1]), public_key="", project="p", function="f",
                    hold=(host.hold_path, host.hold_stream))
threading.Thread(target=door.serve_forever, daemon=True).start()
host.watch(lambda reason: None)
host.busy()
print("holding", flush=True)
threading.Event().wait()
"""


def eventually(look: Any, within_s: float = 60.0) -> Any:
    """Look again until there is something."""
    deadline = time.monotonic() + within_s
    while not (found := look()):
        if time.monotonic() > deadline:
            raise TimeoutError(f"it did not happen within {within_s:g} s")
        time.sleep(0.002)
    return found


def milliseconds(seconds: list[float]) -> dict[str, float]:
    """Return the middle and the slow end of some latencies."""
    cut = quantiles(seconds, n=100, method="inclusive")
    return {"p50_ms": round(median(seconds) * 1e3, 1), "p99_ms": round(cut[98] * 1e3, 1), "rounds": len(seconds)}


def dispatch(cluster: ImitationCluster, client: Client) -> dict[str, Any]:
    """Start tasks on a warm pod, one after another: from the request to the claim, and to the result."""

    def one() -> tuple[float, float]:
        began = time.monotonic()
        key = client.invoke("held", wire.Invoke(args={"seconds": 0.0})).key
        view = eventually(lambda: (found := client.get_task(key)).state in wire.TERMINAL and found)
        spent_s = time.monotonic() - began
        created, claimed = (datetime.fromisoformat(at) for at in (view.created_at, view.attempts[-1].claimed_at))
        return (claimed - created).total_seconds(), spent_s

    cold = one()
    warm = [one() for _ in range(WARM_ROUNDS)]
    return {
        "from_zero_to_claim_s": round(cold[0], 2),
        "warm_to_claim": milliseconds([claimed for claimed, _ in warm]),
        "warm_to_result": milliseconds([ended for _, ended in warm]),
    }


def acknowledge(cluster: ImitationCluster) -> dict[str, Any]:
    """Send a pod events that the API signed, from many callers at once, through its queue-proxy."""
    headers, body = cluster.broker.accepted[-1]
    pod = cluster.serving.pods("held")[0]

    def call(_: int) -> list[float]:
        spent = []
        for _ in range(EVENTS):
            began = time.monotonic()
            connection = HTTPConnection("127.0.0.1", pod.proxy.port, timeout=60)
            connection.request("POST", "/", body, headers)
            answer = connection.getresponse()
            answer.read()
            connection.close()
            if answer.status not in (202, 503):
                raise RuntimeError(f"an event was answered with {answer.status}")
            spent.append(time.monotonic() - began)
        return spent

    with ThreadPoolExecutor(CALLERS) as callers:
        spent = [one for found in callers.map(call, range(CALLERS)) for one in found]
    return {"callers": CALLERS, **milliseconds(spent)}


def hold(port: int) -> dict[str, Any]:
    """Hold a pod that does nothing else: the hold, its answer and the drain watch."""
    proxy = QueueProxy(port, timeout_s=3600)
    command = [sys.executable, "-c", HOLDER, str(port), str(proxy.port)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as holder:
        try:
            assert holder.stdout is not None and holder.stdout.readline() == "holding\n"
            eventually(lambda: proxy.holds)
            before, began = cpu_s(holder.pid), time.monotonic()
            time.sleep(HOLD_S)
            used_s, spent_s = cpu_s(holder.pid) - before, time.monotonic() - began
        finally:
            holder.kill()
            proxy.close()
    return {
        "measured_s": round(spent_s, 1),
        "cpu_s": round(used_s, 4),
        "cpu_s_per_hour": round(used_s / spent_s * 3600, 1),
    }


def cpu_s(pid: int) -> float:
    """Return the processor time of a process's threads to the nanosecond: /proc/PID/stat counts in hundredths."""
    tasks = Path(f"/proc/{pid}/task").glob("*/schedstat")
    return sum(int(one.read_text().split()[0]) for one in tasks) / 1e9


def start(cluster: ImitationCluster, folder: Path, port: int) -> dict[str, Any]:
    """Start workers as a kubelet does: from the process to a readiness that says yes."""
    spent = []
    pod = cluster.serving.pods("held")[0]
    for number in range(STARTS):
        home = folder / f"start-{number}"
        home.mkdir()
        token = home / "token"
        name = f"held-bench-{uuid.uuid4().hex[:6]}"
        token.write_text(cluster.kubernetes.token(cluster.namespace, "held", name))
        (container,) = pod._spec["containers"]
        environment = {
            **{one: value for one, value in os.environ.items() if not one.startswith(("TRAINLET_", "KUBE"))},
            **{one["name"]: one["value"] for one in container["env"]},
            "HOSTNAME": name, "HOME": str(home), "TRAINLET_HOME": str(home), "TRAINLET_WORKER_TOKEN_FILE": str(token),
            "PORT": str(port), "K_SERVICE": "held", "K_REVISION": "held-00001", "TRAINLET_QUEUE_PORT": str(port),
        }  # fmt: skip
        began = time.monotonic()
        command = [sys.executable, *container["command"][1:]]
        with subprocess.Popen(command, env=environment, stderr=subprocess.DEVNULL, start_new_session=True) as worker:
            try:
                eventually(lambda: _ready(port))
                spent.append(time.monotonic() - began)
            finally:
                worker.kill()
    return {"median_s": round(median(spent), 2), "all_s": [round(one, 2) for one in spent]}


def _ready(port: int) -> bool:
    try:
        connection = HTTPConnection("127.0.0.1", port, timeout=5)
        connection.request("GET", "/health/readiness")
        return connection.getresponse().status == 200
    except OSError:
        return False


def image_sizes() -> dict[str, float] | None:
    """Return the size of each image in MB, when some were built."""
    folder = os.environ.get("TRAINLET_TEST_IMAGE_FOLDER")
    if not folder:
        return None
    driver = (Path(folder) / "driver").read_text().strip()
    command = ["buildah", "--storage-driver", driver, "--root", f"{folder}/storage", "--runroot", f"{folder}/run"]
    listed = subprocess.run([*command, "images", "--json"], capture_output=True, text=True, check=True)
    found = {
        name.split("/")[-1].split(":")[0]: one["size"]
        for one in json.loads(listed.stdout)
        for name in one["names"] or []
    }
    return {name: size for name, size in sorted(found.items()) if name.startswith("trainlet-")}


def free_port() -> int:
    """Return a port that nobody uses."""
    import socket

    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def main() -> None:
    """Measure everything and print it."""
    import held
    import run

    began = time.monotonic()
    results: dict[str, Any] = {"commit": run.commit(), "machine": {"cpus": os.cpu_count(), "load": os.getloadavg()[0]}}
    with tempfile.TemporaryDirectory(prefix="trainlet-bench-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        cluster = ImitationCluster(folder, warm_s=3600)
        try:
            settings = Settings(home=folder / "person", api=cluster.url, token=cluster.token)
            client = Client(cluster.url, cluster.token)
            Session(settings).register({"held": held.held})
            results["dispatch"] = dispatch(cluster, client)
            results["acknowledgment"] = acknowledge(cluster)
            results["worker_start"] = start(cluster, folder, free_port())
        finally:
            cluster.close()
    results["idle_hold"] = hold(free_port())
    results["images"] = image_sizes()
    results["took_s"] = round(time.monotonic() - began, 1)
    text = json.dumps(results, indent=2)
    (HERE / "knative.json").write_text(text + "\n")
    print(text)


if __name__ == "__main__":
    sys.path.insert(0, str(HERE))
    main()
