"""Find this home's embedded platform, or start it.

There is one per home: the platform itself holds a file lock, and `platform.json` says where it listens. Starting is
guarded by a second lock, so any number of processes may ask at once and one platform comes up.
"""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from trainlet.client.errors import ProtocolMismatch
from trainlet.client.http import Client
from trainlet.core.errors import PlatformError, TrainletError, UserError
from trainlet.core.settings import Settings

START_S = 90.0  # a busy machine needs it; a platform that dies is noticed at once


def connect(settings: Settings) -> Client:
    """Return a client of the running embedded platform, started if need be, also again when it has gone meanwhile.

    Raises PlatformError with the end of its log when it does not come up, UserError when its packages are missing.
    """
    url, token = ensure(settings.home)
    return Client(url, token, revive=lambda: ensure(settings.home))


def ensure(home: Path) -> tuple[str, str]:
    """Return (url, token) of the platform of this home, started if need be."""
    known = find(home)
    if known is not None:
        return known
    if importlib.util.find_spec("trainlet_functions") is None or importlib.util.find_spec("flask") is None:
        raise UserError(
            "Running on this machine needs the training API's packages: pip install 'trainlet[server]'. "
            "Or set TRAINLET_API to a training API elsewhere."
        )
    try:
        home.mkdir(parents=True, exist_ok=True, mode=0o700)
        with _start_lock(home):
            return find(home) or _start(home)
    except OSError as error:
        raise UserError(
            f"The home {home} cannot be written: {error.strerror}. Set TRAINLET_HOME to a folder of yours."
        ) from error


def find(home: Path) -> tuple[str, str] | None:
    """Return (url, token) of the platform that answers now, or None."""
    try:
        known = json.loads((home / "platform.json").read_text())
        url, token, pid = str(known["url"]), str(known["token"]), int(known["pid"])
        os.kill(pid, 0)  # a port that was the platform's may be somebody else's by now
    except (OSError, ValueError, KeyError, TypeError):
        return None
    client = Client(url)
    try:
        client.ping()
    except ProtocolMismatch as error:
        raise ProtocolMismatch(
            f"{error} It is the platform of {home}, process {pid}; end it to start a new one."
        ) from None
    except TrainletError:
        return None
    finally:
        client.close()
    return url, token


def _start(home: Path) -> tuple[str, str]:
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
        known = find(home)
        if known is not None:
            # The platform outlives this process by design; nobody waits for it here.
            process.returncode = 0
            return known
        if process.poll() is not None:
            raise PlatformError(f"The platform of {home} did not start (exit {process.returncode}):\n{_tail(log)}")
        time.sleep(0.03)
    process.kill()
    process.wait()
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
