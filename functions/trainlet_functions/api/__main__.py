"""The process of the training API: `python -m trainlet_functions.api --home HOME`.

The embedded platform is this process with a file lock on its home: one per home, found through `platform.json`, gone
when idle.
"""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import importlib.metadata
import json
import logging
import os
import resource
import signal
import socket
import sys
import threading
from pathlib import Path
from typing import Any

import waitress.server

from trainlet.core import wire
from trainlet.core.errors import TrainletError
from trainlet.core.settings import Settings
from trainlet_functions import journals
from trainlet_functions.api.app import create_app
from trainlet_functions.api.routes import about_request
from trainlet_functions.platform import Platform
from trainlet_knative.clusters import Cluster

THREADS = 96  # long polls and log streams hold one each
MOST_CONNECTIONS, SPARE_FILES = 4096, 512
_LOG = logging.getLogger("trainlet.api")


def main(arguments: list[str] | None = None) -> int:
    """Serve until SIGTERM, SIGINT or idleness."""
    parser = argparse.ArgumentParser(prog="trainlet_functions.api", description=__doc__)
    parser.add_argument("--home", type=Path)
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--stay", action="store_true", help="do not stop when idle")
    parser.add_argument("--cluster", type=Path, help="be a replica on the cluster that this file describes")
    options = parser.parse_args(arguments)
    try:
        journals.install(context=about_request)
        settings = Settings.from_environment()
        if options.home is not None:
            settings = settings.model_copy(update={"home": options.home.absolute()})
        settings.home.mkdir(parents=True, exist_ok=True, mode=0o700)
        if options.cluster is not None:
            return _serve(settings, options, Cluster.load(options.cluster))
        with _lock(settings.home):
            return _serve(settings, options, None)
    except TrainletError as error:
        print(f"trainlet: {error}", file=sys.stderr)
        return 3


def _serve(settings: Settings, options: argparse.Namespace, cluster: Cluster | None) -> int:
    """Serve one platform: embedded in a home that clients find by its file, or one replica of many behind a Service."""
    embedded = cluster is None
    listener = _bind(
        options.host, options.port or (_previous_port(settings.home) if embedded else 0), exact=not embedded
    )
    host, port = listener.getsockname()[:2]
    url = f"http://{'127.0.0.1' if host == '0.0.0.0' else host}:{port}"  # noqa: S104 - asked for by --host
    platform = Platform(settings, embedded=embedded, cluster=cluster)
    token = platform.start(url)
    server: Any = waitress.server.create_server(
        create_app(platform),
        sockets=[listener],
        threads=THREADS,
        ident=None,
        channel_timeout=120,
        connection_limit=_connections(),
        asyncore_use_poll=True,  # select() ends at descriptor 1024
        max_request_body_size=settings.limits.body_bytes,
        send_bytes=1,
    )
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    thread = threading.Thread(target=_run, args=(server,), name="http", daemon=True)
    thread.start()
    if embedded:
        _publish(settings.home, url, token)
    _LOG.info("the training API listens on %s, home %s, process %d", url, settings.home, os.getpid())
    reason = "a signal"
    while not stop.wait(1.0):
        if embedded and not options.stay and platform.idle():
            reason = "idleness"
            break
        if embedded and not _is_found(settings.home):
            reason = "its home being gone, or another platform in it"
            break
    _LOG.info("stopping because of %s", reason)
    platform.close()
    if embedded and _is_found(settings.home):
        with contextlib.suppress(OSError):
            (settings.home / "platform.json").unlink()
    server.close()
    return 0


def _run(server: Any) -> None:
    with contextlib.suppress(OSError):  # the sockets are closed under it at the end
        server.run()


def _connections() -> int:
    """Return how many connections may be open: every pod keeps some, and one too many is not even answered."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = MOST_CONNECTIONS + SPARE_FILES
    if soft != resource.RLIM_INFINITY and soft < wanted:
        soft = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        return max(100, soft - SPARE_FILES)
    return MOST_CONNECTIONS


def _bind(host: str, port: int, *, exact: bool) -> socket.socket:
    """Listen on a port; unless it must be exactly that one, on any when it is taken by somebody else."""
    for wanted in dict.fromkeys((port,) if exact else (port, 0)):
        listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((host, wanted))
            listener.listen(1024)
        except OSError:
            listener.close()
            if wanted == 0 or exact:
                raise
            continue
        return listener
    raise AssertionError("unreachable")


def _previous_port(home: Path) -> int:
    """Return the port that workers of an earlier platform still know, or 0."""
    try:
        return int((home / "port").read_text())
    except (OSError, ValueError):
        return 0


def _publish(home: Path, url: str, token: str) -> None:
    """Say where the platform is, for this user only, in one step."""
    known = {
        "pid": os.getpid(),
        "url": url,
        "token": token,
        "protocol": wire.PROTOCOL,
        "version": importlib.metadata.version("trainlet"),
    }
    temporary = home / f".platform.{os.getpid()}"
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "w") as file:
        json.dump(known, file)
    (home / "port").write_text(url.rsplit(":", 1)[1])
    temporary.replace(home / "platform.json")


def _is_found(home: Path) -> bool:
    """Say whether the file that leads clients here still does: who deletes a home expects its platform to end."""
    try:
        return bool(json.loads((home / "platform.json").read_text())["pid"] == os.getpid())
    except (OSError, ValueError, KeyError):
        return False


@contextlib.contextmanager
def _lock(home: Path) -> Any:
    with (home / "platform.lock").open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise TrainletError(f"A platform of {home} runs already; `trainlet doctor` shows it.") from error
        yield


if __name__ == "__main__":
    sys.exit(main())
