"""Runs of Kubeflow Pipelines that ended: a run of its API (v2beta1), or the Argo Workflow behind it.

Both are objects that change often. Only an end is told, once: what is sent before, or again, is no event. On Knative an
ApiServerSource sends the Workflows; elsewhere an exit task posts its run.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import Field

from trainlet.core import events
from trainlet.core.errors import UserError
from trainlet.core.events import Event
from trainlet_functions.triggers.adapters import shapes

WHAT = "run of Kubeflow Pipelines"
PREFIX = "org.kubeflow.pipelines.run."
SOURCE = "kubeflow-pipelines"
_ENDS = {"SUCCEEDED": "succeeded", "FAILED": "failed", "ERROR": "failed", "CANCELED": "canceled", "SKIPPED": "skipped"}
_LABEL, _NAME = "pipeline/runid", "pipelines.kubeflow.org/run_name"


class _Version(shapes.Shape):
    pipeline_id: str | None = None
    pipeline_version_id: str | None = None


class _Error(shapes.Shape):
    message: str | None = None


class _Run(shapes.Shape):
    run_id: str = Field(min_length=1, max_length=200)
    state: str = Field(max_length=100)
    display_name: str | None = None
    experiment_id: str | None = None
    pipeline_version_reference: _Version = _Version()
    finished_at: str | None = None
    error: _Error | None = None


class _Metadata(shapes.Shape):
    name: str
    namespace: str | None = None
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}


class _Status(shapes.Shape):
    phase: str = ""
    finished_at: str | None = Field(default=None, alias="finishedAt")
    message: str | None = None


class _Workflow(shapes.Shape):
    metadata: _Metadata
    status: _Status = _Status()


def convert(headers: Mapping[str, str], body: bytes) -> list[Event]:
    """Return the event of a run that ended; none of one that goes on. Raises UserError."""
    form = shapes.content(headers, body, WHAT)
    if not isinstance(form, dict):
        raise UserError(f"This is no {WHAT}: it is no JSON object.")
    return _of_workflow(form) if form.get("kind") == "Workflow" else _of_run(form)


def _of_run(form: dict[str, Any]) -> list[Event]:
    run = shapes.read(_Run, form, WHAT)
    version = run.pipeline_version_reference
    about = {
        "name": run.display_name,
        "experiment_id": run.experiment_id,
        "pipeline_id": version.pipeline_id,
        "pipeline_version_id": version.pipeline_version_id,
        "error": None if run.error is None else run.error.message,
    }
    return _ended(run.run_id, run.state, run.finished_at, about)


def _of_workflow(form: dict[str, Any]) -> list[Event]:
    found = shapes.read(_Workflow, form, "Argo Workflow")
    run_id = found.metadata.labels.get(_LABEL)
    if run_id is None:
        return []  # a Workflow of somebody else's
    about = {
        "name": found.metadata.annotations.get(_NAME) or found.metadata.name,
        "workflow": found.metadata.name,
        "namespace": found.metadata.namespace,
        "error": found.status.message,
    }
    return _ended(run_id, found.status.phase, found.status.finished_at, about)


def _ended(run_id: str, state: str, finished_at: str | None, about: dict[str, Any]) -> list[Event]:
    end = _ENDS.get(state.upper())
    if end is None:
        return []
    # A run that is retried ends again: the second makes the two ends two.
    second = (finished_at or "")[:19]
    data = {"run_id": run_id, "state": end, "finished_at": finished_at, **about}
    made = events.make(
        PREFIX + end,
        SOURCE,
        shapes.identity(run_id, end, second),
        {name: value for name, value in data.items() if value is not None},
        subject=shapes.text(run_id),
        time=shapes.moment(finished_at),
    )
    return [made]
