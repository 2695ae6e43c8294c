"""The driver: `python -m trainlet_pipelines.driver` drives the runs that triggers started, until there are none.

The training API starts it, one for each project, and it finds everything over HTTP: the graph is stored with the run.
It holds no lease: a driver that dies is replaced, and the new one attaches to the tasks that there are. When the API
stays away it leaves; whoever comes back starts another.
"""

from __future__ import annotations

import contextlib
import logging
import signal
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from trainlet.client import ApiUnreachable
from trainlet.client.http import Client
from trainlet.client.stores import open_store
from trainlet.client.triggers import Triggers
from trainlet.core import graphs, traces, wire
from trainlet.core.errors import TrainletError, UserError
from trainlet.core.protocols import ObjectStore
from trainlet.core.settings import Settings
from trainlet.core.triggers import KubeflowStart
from trainlet_pipelines import outcomes, remote, runner, values

AT_ONCE = 64
IDLE_S = 60.0
ALONE_S = 30.0
_LOG = logging.getLogger("trainlet.driver")


def main() -> int:
    """Drive until nothing has come for a while, the API is gone, or SIGTERM."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    logging.getLogger("httpx").setLevel(logging.WARNING)
    settings = Settings.from_environment()
    if settings.api is None or not settings.token:
        raise UserError("A driver is started by the training API: TRAINLET_API and TRAINLET_TOKEN are not set.")
    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    client = Client(settings.api, settings.token)
    store = open_store(client.get_info().store_url)
    Driver(client, store, settings.home / "cache" / "results", stop).work()
    return 0


class Driver:
    """Takes up every open run of the project, each in a thread of its own."""

    def __init__(self, client: Client, store: ObjectStore, workdir: Path, stop: threading.Event) -> None:
        self._client = client
        self._store = store
        self._workdir = workdir
        self._stop = stop
        self._pool = ThreadPoolExecutor(AT_ONCE, thread_name_prefix="drive")
        self._live: set[str] = set()
        self._lock = threading.Lock()

    def work(self) -> None:
        """Follow the list of open runs."""
        after, last_use = 0, time.monotonic()
        while not self._stop.is_set():
            try:
                page = Triggers(self._client).firings(after, wait_s=10.0)
            except ApiUnreachable:
                if time.monotonic() - last_use > ALONE_S:
                    break
                self._stop.wait(1.0)
                continue
            for item in page.items:
                after = max(after, int(item["number"]))
                self._take(str(item["run_id"]), item.get("kubeflow"))
            if page.items or self._live:
                last_use = time.monotonic()
            elif time.monotonic() - last_use > IDLE_S:
                break
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _take(self, run_id: str, kubeflow: dict[str, Any] | None) -> None:
        with self._lock:
            if run_id in self._live:
                return
            self._live.add(run_id)
        self._pool.submit(self._drive, run_id, kubeflow)

    def _drive(self, run_id: str, kubeflow: dict[str, Any] | None) -> None:
        try:
            if kubeflow is None:
                drive(self._client, self._store, self._workdir, run_id)
            else:
                _have_driven(self._client, self._store, run_id, KubeflowStart.model_validate(kubeflow), self._stop)
        except Exception:  # noqa: BLE001 - one run that cannot be driven must not stop the others
            _LOG.exception("run %s could not be driven", run_id)
        finally:
            with self._lock:
                self._live.discard(run_id)


def drive(client: Client, store: ObjectStore, workdir: Path, run_id: str) -> None:
    """Drive one run to its end; one that has ended is left alone."""
    view = client.get_run(run_id)
    if view.state != "running" or view.graph is None:
        return
    _LOG.info("driving %s", run_id)
    executor = remote.Remote(client, run_id, None, trace=view.labels.get(traces.LABEL))
    try:
        body = _outcome(view, executor, store, workdir)
        executor.patient(lambda api: api.finish_run(run_id, body))
    finally:
        executor.close()
    _LOG.info("%s %s: %s", run_id, body.state, body.reason)


def _have_driven(client: Client, store: ObjectStore, run_id: str, start: KubeflowStart, stop: threading.Event) -> None:
    """Have Kubeflow Pipelines do a run, and see it through."""
    try:
        from trainlet_pipelines.kubeflow import runs, triggered

        if start.refused:
            raise UserError(start.refused)
        server = runs.Server(namespace=start.namespace)
    except (ImportError, UserError) as error:
        missing = "This training API lacks kfp. Its image needs: pip install 'trainlet[kfp]'"
        reason = missing if isinstance(error, ImportError) else str(error)
        client.finish_run(run_id, wire.RunFinish(state="failed", reason=reason))
        return
    try:
        triggered.drive(client, server, store, run_id, start, stop)
    finally:
        server.close()


def _outcome(view: wire.RunView, executor: remote.Remote, store: ObjectStore, workdir: Path) -> wire.RunFinish:
    try:
        graph = graphs.Graph.model_validate(view.graph)
        walker = runner.Runner(graph, view.params, values.EncodedSpace(store, workdir), executor)
    except (TrainletError, ValueError) as error:
        result: Any = runner.Result("failed", {}, UserError(f"The graph of {view.id} cannot run: {error}"))
        return outcomes.describe(result)
    return outcomes.describe(outcomes.run(walker, view.id))


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        sys.exit(main())
