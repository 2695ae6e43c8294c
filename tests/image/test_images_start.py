"""Each image is built for real and started: what it says, what it needs, what is not in it."""

from __future__ import annotations

import base64
import re
import socket
import subprocess
import time
from pathlib import Path
from typing import Any

import httpx
import pytest

from trainlet_functions.state import tokens
from trainlet_functions.state.database import Database

TARGETS = ("dispatch", "worker", "api")
HOME = "var/lib/trainlet"
DISPATCH_BYTES = 60 * 10**6


@pytest.fixture
def port() -> int:
    """Return a free port."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def answered(process: subprocess.Popen[str], url: str, within_s: float = 60.0) -> httpx.Response:
    """Return the first answer of a server that starts."""
    deadline = time.monotonic() + within_s
    while True:
        try:
            return httpx.get(url, trust_env=False)
        except httpx.TransportError:
            ended = process.poll()
            assert ended is None, process.stdout.read() if process.stdout else ended
            assert time.monotonic() < deadline, f"{url} did not answer"
            time.sleep(0.02)


def size_bytes(root: Path) -> int:
    """Return what the files below a folder take."""
    return sum(path.lstat().st_size for path in root.rglob("*") if path.is_file() and not path.is_symlink())


def test_the_api_answers(images: Any, port: int) -> None:
    with images.started("api", "--host", "127.0.0.1", "--port", str(port), "--stay") as process:
        assert answered(process, f"http://127.0.0.1:{port}/healthz").json() == {"status": "ok"}
        assert httpx.get(f"http://127.0.0.1:{port}/readyz", trust_env=False).status_code == 200
        assert "trainlet_dead_letters" in httpx.get(f"http://127.0.0.1:{port}/metrics", trust_env=False).text


def test_a_worker_says_what_its_environment_lacks(images: Any) -> None:
    done = images.run("worker")
    assert done.returncode == 2
    assert "TRAINLET_API is not set" in done.stderr


def test_a_worker_with_its_environment_is_ready_and_asks_the_api_for_work(images: Any, port: int) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        own = int(probe.getsockname()[1])
    api = f"http://127.0.0.1:{port}"
    with images.started("api", "--host", "127.0.0.1", "--port", str(port), "--stay") as process:
        answered(process, f"{api}/readyz")
        database = Database(f"sqlite:///{images.files('api') / HOME / 'state.db'}")
        with database.write() as tx:
            token = tokens.create(tx, "default", {"worker:f"}, "test")
        database.close()
        environment = {
            "TRAINLET_API": api,
            "TRAINLET_WORKER_TOKEN": token,
            "TRAINLET_WORKER_ID": "one",
            "TRAINLET_PROJECT": "default",
            "TRAINLET_FUNCTION": "f",
            "TRAINLET_PUBLIC_KEY": base64.b64encode(b"\0" * 32).decode(),
            "PORT": str(own),
        }
        begun = time.monotonic()
        with images.started("worker", **environment) as worker:
            answer = answered(worker, f"http://127.0.0.1:{own}/health/readiness")
            print(f"a worker was ready after {time.monotonic() - begun:.2f} s")
            assert (answer.status_code, answer.text) == (200, "ready")
            known = 'trainlet_workers{busy="false",function="f",project="default"} 1.0'
            deadline = time.monotonic() + 20
            while known not in httpx.get(f"{api}/metrics", trust_env=False).text:
                assert time.monotonic() < deadline
                time.sleep(0.02)


def test_dispatch_prints_its_usage(images: Any) -> None:
    done = images.run("dispatch", "--help")
    assert (done.returncode, done.stdout.split()[:2]) == (0, ["usage:", "trainlet_pipelines.dispatch"])
    assert images.run("dispatch").returncode == 2


def test_dispatch_is_small_and_has_no_server_in_it(images: Any) -> None:
    base = size_bytes(images.files("base"))
    sizes = {target: size_bytes(images.files(target)) - base for target in TARGETS}
    print({"base": f"{base / 1e6:.0f} MB"} | {name: f"+{size / 1e6:.0f} MB" for name, size in sizes.items()})
    assert sizes["dispatch"] < DISPATCH_BYTES
    for name in ("flask", "sqlalchemy", "kubernetes", "psycopg", "pip"):
        found = images.run("dispatch", "-c", f"import {name}", entrypoint=["python"])
        assert "ModuleNotFoundError" in found.stderr, name


@pytest.mark.parametrize("target", TARGETS)
def test_no_image_runs_as_root_or_can_change_itself(images: Any, target: str) -> None:
    assert images.config(target)["User"] == "65532:65532"
    probe = "import os, sys; print(os.getuid(), os.access(os.environ['HOME'], os.W_OK), os.access(sys.prefix, os.W_OK))"
    assert images.run(target, "-c", probe, entrypoint=["python"]).stdout.split() == ["65532", "True", "False"]


@pytest.mark.parametrize("target", TARGETS)
def test_an_image_says_what_it_is(images: Any, target: str) -> None:
    labels = images.config(target)["Labels"]
    assert labels["org.opencontainers.image.title"] == f"trainlet-{target}"
    assert re.fullmatch(r"[0-9a-f]{40}|unknown", labels["org.opencontainers.image.revision"])
    said = images.run(
        target, "-c", "from importlib import metadata; print(metadata.version('trainlet'))", entrypoint=["python"]
    )
    assert said.stdout.strip() == labels["org.opencontainers.image.version"]
