"""Runs on a Kubeflow Pipelines server, over its v2beta1 API: start, look, wait, stop, retry.

A run that was terminated ends as FAILED there; its history tells a cancel from a failure, and a wait ends on both.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trainlet.client import ApiUnreachable
from trainlet.core.errors import AccessError, ConflictError, NotFoundError, PlatformError, StepFailed, UserError

ENDPOINT = "KF_PIPELINES_ENDPOINT"
TOKEN_PATH = "KF_PIPELINES_SA_TOKEN_PATH"  # noqa: S105 - the name of a variable
PROJECTED = "/var/run/secrets/kubeflow/pipelines/token"
PARAMETER_BYTES = 10_000
EXPERIMENT = "Default"
ENDED = frozenset({"succeeded", "failed", "canceled", "skipped"})
POLL_S = 3.0


@dataclass(frozen=True, slots=True)
class Task:
    """A task of a run as KFP has it."""

    name: str
    state: str
    pod: str


@dataclass(frozen=True, slots=True)
class View:
    """A run as KFP has it now. `state` is one of pending, running, canceling, paused or one of `ENDED`."""

    id: str
    name: str
    state: str
    created_at: str
    finished_at: str
    error: str
    tasks: tuple[Task, ...]


class Server:
    """A Kubeflow Pipelines server. `host` is its address, also that of its page unless `ui` says another.

    The token is the one given, else the projected one of a pod, read anew for each call.
    """

    def __init__(
        self, host: str | None = None, *, token: str | None = None, namespace: str | None = None, ui: str | None = None
    ) -> None:
        host = host or os.environ.get(ENDPOINT) or ""
        if not host.startswith(("http://", "https://")):
            raise UserError(
                f"The KFP server {host!r} is no URL. Write host='https://kubeflow.example/pipeline', or set {ENDPOINT}."
            )
        import kfp_server_api

        self.host, self.namespace = host.rstrip("/"), namespace
        self.ui = (ui or self.host).rstrip("/")
        self._token = token
        self._api = kfp_server_api
        configuration = kfp_server_api.Configuration(host=self.host)
        configuration.retries = 1
        self._client = kfp_server_api.ApiClient(configuration)
        self._runs = kfp_server_api.RunServiceApi(self._client)
        self._experiments = kfp_server_api.ExperimentServiceApi(self._client)
        self._pipelines = kfp_server_api.PipelineServiceApi(self._client)

    def close(self) -> None:
        """Close all connections."""
        self._client.rest_client.pool_manager.clear()

    def start(
        self, spec: Mapping[str, Any], name: str, parameters: Mapping[str, Any], experiment: str | None = None
    ) -> str:
        """Start a run of compiled IR and return its id. Raises UserError for parameters that KFP would refuse."""
        _check_sizes(parameters)
        with self._calling():
            where = self._experiment(experiment or EXPERIMENT)
            body = self._api.V2beta1Run(
                experiment_id=where,
                display_name=name,
                pipeline_spec=dict(spec),
                runtime_config=self._api.V2beta1RuntimeConfig(parameters=dict(parameters)),
            )
            return str(self._runs.run_service_create_run(run=body).run_id)

    def start_version(
        self,
        pipeline: str,
        version: str | None,
        name: str,
        parameters: Mapping[str, Any],
        experiment: str | None = None,
        service_account: str | None = None,
    ) -> str:
        """Start a run of a pipeline that KFP has, by names; without a version the newest. Raises NotFoundError."""
        _check_sizes(parameters)
        with self._calling():
            reference = self._version(pipeline, version)
            body = self._api.V2beta1Run(
                experiment_id=self._experiment(experiment or EXPERIMENT),
                display_name=name,
                pipeline_version_reference=reference,
                runtime_config=self._api.V2beta1RuntimeConfig(parameters=dict(parameters)),
                service_account=service_account,
            )
            return str(self._runs.run_service_create_run(run=body).run_id)

    def named(self, name: str) -> Sequence[str]:
        """Return the ids of the runs with a name, the oldest first: the same order for everybody who asks."""
        options = {"namespace": self.namespace} if self.namespace else {}
        with self._calling():
            found = self._runs.run_service_list_runs(page_size=100, filter=_named(name), **options)
        same = [one for one in found.runs or [] if one.display_name == name]
        return [str(one.run_id) for one in sorted(same, key=lambda one: (one.created_at, one.run_id))]

    def get(self, run_id: str) -> View:
        """Return a run; raises NotFoundError."""
        with self._calling():
            return _view(self._runs.run_service_get_run(run_id))

    def list(self, limit: int = 20) -> Sequence[View]:
        """Return the newest runs."""
        options = {"namespace": self.namespace} if self.namespace else {}
        with self._calling():
            found = self._runs.run_service_list_runs(page_size=limit, sort_by="created_at desc", **options)
        return [_view(one) for one in found.runs or []]

    def terminate(self, run_id: str) -> None:
        """Stop a run; GPU work stops after a checkpoint, at the latest when its pods' leases run out."""
        with self._calling():
            self._runs.run_service_terminate_run(run_id)

    def retry(self, run_id: str) -> None:
        """Start the failed tasks of a run again; GPU work goes on from its checkpoint."""
        with self._calling():
            self._runs.run_service_retry_run(run_id)

    def url(self, run_id: str) -> str:
        """Return the address of a run's page."""
        return f"{self.ui}/#/runs/details/{run_id}"

    def _version(self, pipeline: str, version: str | None) -> Any:
        """Return a reference to a version; `pipeline` and `version` are what people call them."""
        options = {"namespace": self.namespace} if self.namespace else {}
        found = self._pipelines.pipeline_service_list_pipelines(filter=_named(pipeline), **options)
        known = next((one for one in found.pipelines or [] if one.display_name == pipeline), None)
        if known is None:
            where = f" in the namespace {self.namespace}" if self.namespace else ""
            raise NotFoundError(f"The KFP server at {self.host} has no pipeline {pipeline!r}{where}. Upload it first.")
        page = self._pipelines.pipeline_service_list_pipeline_versions(
            known.pipeline_id,
            page_size=100,
            sort_by="created_at desc",
            **({"filter": _named(version)} if version else {}),
        )
        versions = [one for one in page.pipeline_versions or [] if version in (None, one.display_name)]
        if not versions:
            raise NotFoundError(f"The pipeline {pipeline!r} at {self.host} has no version {version or 'at all'!r}.")
        chosen = versions[0].pipeline_version_id
        return self._api.V2beta1PipelineVersionReference(pipeline_id=known.pipeline_id, pipeline_version_id=chosen)

    def _experiment(self, name: str) -> str:
        options = {"namespace": self.namespace} if self.namespace else {}
        token = ""
        while True:
            page = self._experiments.experiment_service_list_experiments(page_size=100, page_token=token, **options)
            for one in page.experiments or []:
                if one.display_name == name:
                    return str(one.experiment_id)
            token = page.next_page_token or ""
            if not token:
                break
        made = self._api.V2beta1Experiment(display_name=name, namespace=self.namespace)
        return str(self._experiments.experiment_service_create_experiment(experiment=made).experiment_id)

    @contextmanager
    def _calling(self) -> Iterator[None]:
        """Authenticate, and turn what the generated client raises into errors that say what to do."""
        from urllib3.exceptions import HTTPError

        token = self._token or _projected_token()
        if token:
            self._client.default_headers["Authorization"] = f"Bearer {token}"
        try:
            yield
        except self._api.ApiException as error:
            raise _refused(self.host, error) from None
        except HTTPError as error:
            raise ApiUnreachable(
                f"The KFP server at {self.host} does not answer ({type(error).__name__}). "
                "Is the address right, and is it reachable from here (kubectl port-forward)?"
            ) from error


class KubeflowRun:
    """A run on a Kubeflow Pipelines server, by its id."""

    def __init__(self, server: Server, run_id: str, pause: Callable[[float], None] = time.sleep) -> None:
        self.id, self._server, self._pause = run_id, server, pause

    def __repr__(self) -> str:
        return f"<KFP run {self.id} {self.url}>"

    @property
    def url(self) -> str:
        """Return the address of its page."""
        return self._server.url(self.id)

    @property
    def view(self) -> View:
        """Return the run as KFP has it now."""
        return self._server.get(self.id)

    @property
    def state(self) -> str:
        """Return its state in trainlet's words; `canceled` also where KFP says FAILED after a terminate."""
        return self.view.state

    def wait(self, timeout: float | None = None) -> KubeflowRun:
        """Wait for the end; raises StepFailed with the failed tasks, TimeoutError when it takes longer."""
        began = time.monotonic()
        while True:
            view = self.view
            if view.state in ENDED:
                break
            if timeout is not None and time.monotonic() - began >= timeout:
                raise TimeoutError(f"KFP run {self.id} is {view.state} after {timeout:g} s; it goes on.")
            self._pause(POLL_S)
        if view.state in ("succeeded", "skipped"):
            return self
        failed = ", ".join(one.name for one in view.tasks if one.state == "failed")
        message = f"KFP run {self.id} {view.state}{f' at {failed}' if failed else ''}: {view.error or 'see its page'}"
        raise StepFailed(f"{message}. {self.url}", kind="canceled" if view.state == "canceled" else "user")

    def cancel(self) -> None:
        """Terminate it."""
        self._server.terminate(self.id)

    def retry(self) -> KubeflowRun:
        """Start its failed tasks again."""
        self._server.retry(self.id)
        return self


def _check_sizes(parameters: Mapping[str, Any]) -> None:
    for parameter, value in parameters.items():
        size = len(str(value).encode())
        if size > PARAMETER_BYTES:
            raise UserError(
                f"The parameter {parameter} takes {size} bytes; KFP accepts {PARAMETER_BYTES} for all together. "
                "Pass a tl.Dataset made by a step, or an address."
            )


def _named(name: str) -> str:
    """Return KFP's filter for what has a name."""
    return json.dumps({"predicates": [{"operation": "EQUALS", "key": "display_name", "stringValue": name}]})


def _view(run: Any) -> View:
    details = (run.run_details.task_details if run.run_details else None) or []
    history = [str(one.state) for one in run.state_history or []]
    state = str(run.state or "PENDING").lower()
    if state == "failed" and "CANCELING" in history and "RUNNING" not in history[history.index("CANCELING") :]:
        state = "canceled"
    return View(
        id=run.run_id,
        name=run.display_name or "",
        state=state,
        created_at=run.created_at.isoformat() if run.created_at else "",
        finished_at=run.finished_at.isoformat() if run.finished_at and run.finished_at.year > 1970 else "",
        error=(run.error.message if run.error else "") or "",
        tasks=tuple(Task(one.display_name or "", str(one.state or "").lower(), one.pod_name or "") for one in details),
    )


def _projected_token() -> str | None:
    path = Path(os.environ.get(TOKEN_PATH, PROJECTED))
    return path.read_text().strip() if path.is_file() else None


def _refused(host: str, error: Any) -> Exception:
    body = str(error.body or error.reason or "").strip().replace("\n", " ")[:300]
    if error.status in (401, 403):
        return AccessError(
            f"The KFP server at {host} refuses the token (HTTP {error.status}): {body}. "
            "Get a new one and pass token=, or mount a projected token for pipelines.kubeflow.org."
        )
    if error.status == 404:
        return NotFoundError(f"The KFP server at {host} does not know that (HTTP 404): {body or 'is it KFP 2?'}.")
    if error.status == 409:
        return ConflictError(f"The KFP server at {host} has that already: {body}.")
    if error.status is not None and 400 <= error.status < 500:
        return UserError(f"The KFP server at {host} refuses this (HTTP {error.status}): {body}.")
    return PlatformError(f"The KFP server at {host} failed (HTTP {error.status}): {body}.")
