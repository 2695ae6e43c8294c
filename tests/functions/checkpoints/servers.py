"""S3 servers for tests and benchmarks: SeaweedFS as a process of its own, and buckets in them."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

PLACES = (Path(sys.executable).parent, Path(__file__).parents[3] / ".venv" / "bin")
NAMES = ("master", "master.port.grpc", "volume", "volume.port.grpc", "filer", "filer.port.grpc", "s3", "s3.port.grpc")
START_S = 90


def bucket_at(endpoint: str) -> Iterator[str]:
    """Yield the URL of a new bucket at an S3 endpoint that the AWS_* variables name meanwhile."""
    given = {"AWS_ENDPOINT_URL": endpoint, "AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test"}
    before = {name: os.environ.get(name) for name in given}
    os.environ |= given
    try:
        with urllib.request.urlopen(urllib.request.Request(f"{endpoint}/bucket", method="PUT"), timeout=60):
            pass
        yield "s3://bucket"
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


@contextmanager
def seaweedfs(folder: Callable[[], Path]) -> Iterator[str | None]:
    """Run SeaweedFS in a new folder; yields its endpoint, or None where it is not installed."""
    program = shutil.which("weed", path=os.pathsep.join(map(str, PLACES)))
    if program is None:
        yield None
        return
    for _ in range(5):  # somebody else may take a port before it does
        process, url = _start(program, folder())
        if _answers(url, process):
            break
        process.wait()
    try:
        yield url
    finally:
        process.kill()
        process.wait()


def _start(program: str, folder: Path) -> tuple[subprocess.Popen[bytes], str]:
    sockets = {name: socket.create_server(("127.0.0.1", 0)) for name in NAMES}
    ports = {name: one.getsockname()[1] for name, one in sockets.items()}
    for one in sockets.values():
        one.close()
    options = ["-s3.port.iceberg=0", "-s3.port.lance=0"]  # else ports that are the same for every server
    options += [f"-{name if 'grpc' in name else f'{name}.port'}={port}" for name, port in ports.items()]
    # It takes keys in its environment for those of its administrator, and then refuses everybody else.
    environment = {name: value for name, value in os.environ.items() if not name.startswith("AWS_")}
    command = [program, "server", "-ip=127.0.0.1", f"-dir={folder}", "-filer", "-s3", "-volume.max=20", *options]
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(
            [*command, "-master.volumeSizeLimitMB=64"], stdout=log, stderr=log, cwd=folder, env=environment
        )
    return process, f"http://127.0.0.1:{ports['s3']}"


def _answers(url: str, process: subprocess.Popen[bytes]) -> bool:
    """Wait until a server answers; says whether it does, or has ended instead."""
    deadline = time.monotonic() + START_S
    while process.poll() is None:
        try:
            with urllib.request.urlopen(f"{url}/healthz", timeout=5):
                return True
        except OSError:
            if time.monotonic() > deadline:
                process.kill()
                raise RuntimeError(f"SeaweedFS did not start within {START_S} s") from None
            time.sleep(0.1)
    return False
