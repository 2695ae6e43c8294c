"""What a dispatch pod takes of its node while the work goes on elsewhere: processor time and memory.

A real dispatch program follows a running task; its processor time over some seconds is what hours cost.
"""

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import psutil
import yaml

SETTLE_S, SECONDS = 5.0, 15.0


def started(home: Path) -> "subprocess.Popen[bytes]":
    """Start the program of a compiled GPU step with what KFP's launcher would hand to it."""
    import bench_steps

    path = bench_steps.holding.compile(home / "holding.yaml", register=True)
    spec = next(yaml.safe_load_all(path.read_text()))
    container = spec["deploymentSpec"]["executors"]["exec-hold"]["container"]
    known = json.loads((home / "platform.json").read_text())
    root = home / "root" / "holding" / "run" / "hold" / "uuid"
    outputs = spec["components"]["comp-hold"]["outputDefinitions"]
    given = {
        "inputs": {"parameterValues": {"seconds": SETTLE_S + SECONDS + 60}},
        "outputs": {
            "parameters": {name: {"outputFile": str(root / name)} for name in outputs["parameters"]},
            "artifacts": {
                name: {"artifacts": [{"name": name, "uri": str(root / name)}]} for name in outputs["artifacts"]
            },
            "outputFile": str(root / "executor_output.json"),
        },
    }
    command = [json.dumps(given) if one == "{{$}}" else one for one in [*container["command"], *container["args"]]]
    environment = {**os.environ, "TRAINLET_API": known["url"], "TRAINLET_TOKEN": known["token"]}
    return subprocess.Popen([sys.executable, *command[1:]], env=environment, stdout=subprocess.DEVNULL)


def measure(home: Path) -> dict[str, Any]:
    """Return the share of a core, what an hour of it is in processor seconds, and the memory that it keeps."""
    process = started(home)
    try:
        pod = psutil.Process(process.pid)
        time.sleep(SETTLE_S)
        before, began = pod.cpu_times(), time.monotonic()
        time.sleep(SECONDS)
        after, took = pod.cpu_times(), time.monotonic() - began
        used = after.user + after.system - before.user - before.system
        memory = pod.memory_info().rss
    finally:
        process.terminate()
        process.wait()
    return {
        "dispatch_core_percent": round(100 * used / took, 3),
        "dispatch_cpu_seconds_per_hour": round(3600 * used / took, 1),
        "dispatch_rss_mb": round(memory / 1e6, 1),
        "seconds_watched": round(took, 1),
    }
