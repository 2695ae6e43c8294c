"""Find this home's embedded platform, or start it.

There is one per home: the platform itself holds a file lock, and `platform.json` says where it listens. Starting is
guarded by a second lock, so any number of processes may ask at once and one platform comes up.
"""

from __future__ import annotations

import contextlib
import importlib.util
import json
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from trainlet.client.errors import ApiUnreachable
from trainlet.client.http import Client
from trainlet.core.errors import PlatformError, UserError
from trainlet.core.settings import Settings

START_S = 30.0


def connect(settings: Settings) -> Client:
    """Return a client of the running embedded platform, started if need be.

    Raises PlatformError with the end of its log when it does not come up, UserError when its packages are missing.
    """
    client = find(settings.home)
    if client is not None:
        return client
    if importlib.util.find_spec("trainlet_functions") is None or importlib.util.find_spec("flask") is None:
        raise UserError(
            "Running on this machine needs the training API's packages: pip install 'trainlet[server]'. "
            "Or set TRAINLET_API to a training API elsewhere."
        )
    settings.home.mkdir(parents=True, exist_ok=True, mode=0o700)
    with _start_lock(settings.home):
        client = find(settings.home)
        return client if client is not None else _start(settings.home)


def find(home: Path) -> Client | None:
    """Return a client of the platform that answers now, or None."""
    try:
        known = json.loads((home / "platform.json").read_text())
        client = Client(str(known["url"]), str(known["token"]))
    except (OSError, ValueError, KeyError):
        return None
    try:
        client.ping()
    except ApiUnreachable:
        client.close()
        return None
    return client


def _start(home: Path) -> Client:
    log = home / "platform.log"
    with log.open("ab") as out:
        process = subprocess.Popen(
            [sys.executable, "-m", "trainlet_functions.api", "--home", str(home)],
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=out,
            start_new_session=True,
            cwd=str(home),
        )
    deadline = time.monotonic() + START_S
    while time.monotonic() < deadline:
        client = find(home)
        if client is not None:
            # The platform outlives this process by design; nobody waits for it here.
            process.returncode = 0
            return client
        if process.poll() is not None:
            raise PlatformError(f"The platform of {home} did not start (exit {process.returncode}):\n{_tail(log)}")
        time.sleep(0.03)
    process.kill()
    raise PlatformError(f"The platform of {home} was not ready after {START_S:g} s:\n{_tail(log)}")


def _tail(log: Path, lines: int = 12) -> str:
    with contextlib.suppress(OSError):
        return "\n".join("  " + line for line in log.read_text(errors="replace").splitlines()[-lines:])
    return "  (no log)"


@contextlib.contextmanager
def _start_lock(home: Path) -> Iterator[None]:
    import fcntl

    with (home / "start.lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
