"""The worker's process: `python -m trainlet_functions.worker`, started by the pool or by Knative.

A cold start is two processes that import much: this one, and the warm one that children come from. The warm one is
started before this one imports what it needs itself, so that both import at the same time.
"""

from __future__ import annotations

import logging
import os
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from trainlet.core.errors import TrainletError
from trainlet_functions import processes
from trainlet_functions.worker.nurseries import MARK, Nursery

if TYPE_CHECKING:
    from trainlet.core.protocols import WorkerHost
    from trainlet_functions.worker.attempts import Teller
    from trainlet_functions.worker.loop import Worker
    from trainlet_functions.worker.settings import WorkerSettings

_LOG = logging.getLogger("trainlet.worker")


def main() -> int:
    """Serve until told to go; returns the exit status."""
    processes.adopt_orphans()
    preload = os.environ.get("TRAINLET_PRELOAD")
    nursery = None
    if preload is not None:
        imports = tuple(name for name in preload.split(",") if name)
        nursery = Nursery.of_worker(os.environ.get(MARK, ""), sys.executable, imports)
    return _serve(nursery)


def _serve(nursery: Nursery | None) -> int:
    from trainlet_functions import journals
    from trainlet_functions.spans import Spans
    from trainlet_functions.worker.notices import Notices
    from trainlet_functions.worker.settings import WorkerSettings

    try:
        journals.install()
    except TrainletError as error:
        print(f"trainlet worker: {error}", file=sys.stderr)
        return 2
    try:
        settings = WorkerSettings.from_environment()
        notices = Notices.from_environment(os.environ)
    except TrainletError as error:
        _LOG.error("the worker cannot start: %s", error)
        return 2
    spans = Spans.from_environment("trainlet-worker", os.environ)
    tellers = [one for one in (notices, spans) if one is not None]
    try:
        return _work(settings, nursery, tellers)
    finally:
        if spans is not None:
            spans.close()


def _work(settings: WorkerSettings, nursery: Nursery | None, tellers: Sequence[Teller]) -> int:
    from trainlet_functions.hosts import LocalProcessHost
    from trainlet_functions.worker.loop import Worker
    from trainlet_functions.worker.server import serve
    from trainlet_knative.hosts import KnativePodHost

    settings.folder.mkdir(parents=True, exist_ok=True)
    event_folder = os.environ.get("K_EVENT_PATH") if os.environ.get("K_EXECUTION_MODE") == "batch" else None
    if event_folder is not None:
        return _one_event(settings, Path(event_folder) / "event", nursery, tellers)
    in_pod = "K_SERVICE" in os.environ
    pod = KnativePodHost.from_environment() if in_pod else None
    host: WorkerHost = pod or LocalProcessHost()
    server = serve(
        _Later(),
        host="0.0.0.0" if in_pod else "127.0.0.1",  # noqa: S104 - in a pod queue-proxy stands in front
        port=settings.port,
        public_key=settings.public_key,
        project=settings.project,
        function=settings.function,
        audience=settings.event_audience,
        hold=None if pod is None else (pod.hold_path, pod.hold_stream),
    )
    port = server.server_address[1]
    worker = Worker(settings, host, f"http://127.0.0.1:{port}/", nursery, tellers)
    _Later.worker = worker
    host.watch(worker.drain)
    threading.Thread(target=server.serve_forever, name="http", daemon=True).start()
    status = 0
    try:
        worker.run()
    except TrainletError as error:
        _LOG.error("the worker ends: %s", error)
        status = 1
    server.shutdown()
    host.close()
    return status


def _one_event(settings: WorkerSettings, path: Path, nursery: Nursery | None, tellers: Sequence[Teller]) -> int:
    """Do what the event of a Kubernetes Job asks for, and nothing else; returns the exit status."""
    from trainlet_functions import wakeups
    from trainlet_functions.hosts import LocalProcessHost
    from trainlet_functions.worker.loop import Worker

    try:
        structured = {"content-type": "application/cloudevents+json"}
        event = wakeups.read(structured, path.read_bytes(), public_key=settings.public_key)
        event.require(settings.project, settings.function)
    except (OSError, wakeups.Refused) as error:
        print(f"trainlet worker: the event {path} is not taken: {error}", file=sys.stderr)
        return 2
    host = LocalProcessHost()
    worker = Worker(settings, host, None, nursery, tellers)
    host.watch(worker.drain)
    return worker.run_one(event.task, event.epoch)


class _Later:
    """Stands in for the worker until it exists: the server's port is part of what the worker says about itself."""

    worker: Worker | None = None

    def wake(self, task: str, epoch: int, sender: str | None = None) -> int:
        return 503 if self.worker is None else self.worker.wake(task, epoch, sender)

    def ready(self) -> bool:
        return self.worker is not None and self.worker.ready()


if __name__ == "__main__":
    sys.exit(main())
