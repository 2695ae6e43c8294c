"""S3 servers for tests and benchmarks: moto in this process, SeaweedFS as a process of its own, and buckets in them."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import time
import urllib.request
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

PLACES = (Path(sys.executable).parent, Path(__file__).parents[1] / ".venv" / "bin")
NAMES = ("master", "master.port.grpc", "volume", "volume.port.grpc", "filer", "filer.port.grpc", "s3", "s3.port.grpc")
START_S = 90


@contextmanager
def moto() -> Iterator[str]:
    """Run moto, which keeps what is in it for the whole process; yields its endpoint."""
    from moto.server import ThreadedMotoServer

    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    try:
        yield f"http://{host}:{port}"
    finally:
        server.stop()


@contextmanager
def bucket_at(endpoint: str, *, key: str = "test", secret: str = "test") -> Iterator[str]:
    """Make a bucket with a new name at an S3 endpoint that the AWS_* variables name meanwhile; yields its URL."""
    name = f"bucket-{uuid.uuid4().hex[:12]}"
    given = {"AWS_ENDPOINT_URL": endpoint, "AWS_ACCESS_KEY_ID": key, "AWS_SECRET_ACCESS_KEY": secret}
    before = {variable: os.environ.get(variable) for variable in given}
    os.environ |= given
    try:
        with urllib.request.urlopen(urllib.request.Request(f"{endpoint}/{name}", method="PUT"), timeout=60):
            pass
        yield f"s3://{name}"
    finally:
        for variable, value in before.items():
            if value is None:
                del os.environ[variable]
            else:
                os.environ[variable] = value


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
