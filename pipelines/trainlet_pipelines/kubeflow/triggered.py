"""A triggered run that Kubeflow Pipelines does: started there once, followed to its end, stopped when ours is.

KFP has no key that makes starting idempotent. So the run there is named by the run key, which follows from the trigger and
the events: whoever is to start it looks for that name first, and looks once more after starting, because another driver
may have done the same in between. Of two the older one stays, and the other is stopped before its first pod runs.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence
from typing import Any

from trainlet.client.http import Client
from trainlet.client.triggers import Triggers
from trainlet.core import codecs, wire
from trainlet.core.errors import AccessError, PlatformError, TrainletError
from trainlet.core.protocols import ObjectStore
from trainlet.core.triggers import KubeflowStart
from trainlet_pipelines.failures import error_info
from trainlet_pipelines.kubeflow import runs

_LOG = logging.getLogger("trainlet.driver")
POLL_S = 3.0


def drive(
    client: Client, server: runs.Server, store: ObjectStore, run_id: str, start: KubeflowStart, stop: threading.Event
) -> None:
    """See one run through to its end there; one that has ended here is left alone. Raises nothing that passes by itself."""
    there: str | None = None
    while True:
        try:
            ours = client.get_run(run_id)
            if ours.state != "running":
                _stop(server, server.named(run_id))
                return
            if there is None:
                found = _started(server, store, ours, start)
                Triggers(client).done_by(run_id, found)
                there = found
            view = server.get(there)
            if view.state in runs.ENDED:
                client.finish_run(run_id, _described(server, view))
                return
        except PlatformError as error:  # either server is away: the run goes on, and so do we
            _LOG.warning("run %s: %s", run_id, error)
        except AccessError as error:
            if there is None:
                client.finish_run(run_id, _refused(error))
                return
            _LOG.warning("run %s: %s", run_id, error)  # it runs there, and tokens are renewed
        except TrainletError as error:
            client.finish_run(run_id, _refused(error))
            return
        if stop.wait(POLL_S):
            return


def _refused(error: TrainletError) -> wire.RunFinish:
    reason = f"Kubeflow Pipelines did not do the run: {error}"[:1000]
    return wire.RunFinish(state="failed", error=error_info(error), reason=reason)


def _started(server: runs.Server, store: ObjectStore, ours: wire.RunView, start: KubeflowStart) -> str:
    """Return the run there, started if it was not; the same for everybody who asks."""
    found = server.named(ours.id)
    if not found:
        values: dict[str, Any] = {name: codecs.decode(ours.params[name], store) for name in start.parameters}
        server.start_version(start.pipeline, start.version, ours.id, values, start.experiment, start.service_account)
        found = server.named(ours.id)
    if not found:
        raise PlatformError(f"KFP has taken the run {ours.id} and does not show it yet.")
    _stop(server, found[1:])
    _LOG.info("run %s is the KFP run %s", ours.id, server.url(found[0]))
    return found[0]


def _stop(server: runs.Server, there: Sequence[str]) -> None:
    """Stop runs that have not ended."""
    for one in there:
        if server.get(one).state not in runs.ENDED:
            server.terminate(one)


def _described(server: runs.Server, view: runs.View) -> wire.RunFinish:
    where = f"KFP run {view.id}: {server.url(view.id)}"
    if view.state in ("succeeded", "skipped"):
        return wire.RunFinish(state="succeeded", reason=where[:1000])
    failed = ", ".join(one.name for one in view.tasks if one.state == "failed")
    reason = f"{where} {view.state}{f' at {failed}' if failed else ''}{f': {view.error}' if view.error else ''}"[:1000]
    return wire.RunFinish(state="canceled" if view.state == "canceled" else "failed", reason=reason)
