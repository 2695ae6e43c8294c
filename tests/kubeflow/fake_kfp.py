"""A KFP server in memory: the v2beta1 requests that submitting needs, spoken with the models of kfp-server-api.

It takes a run only if kfp's own message definitions parse its IR, asks for a token where it has one, and ends a run that
was terminated as FAILED after CANCELING, as the real one was seen to do.
"""

from __future__ import annotations

import json
import threading
import uuid
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import SimpleNamespace
from typing import Any
from urllib.parse import parse_qs, urlsplit

import kfp_server_api as api
from google.protobuf import json_format
from kfp.pipeline_spec import pipeline_spec_pb2

TERMINAL = ("SUCCEEDED", "FAILED", "CANCELED", "SKIPPED")


class FakeKfp:
    """The server and what it knows: `runs` and `experiments` by id."""

    def __init__(self, token: str | None = None) -> None:
        self.token, self.runs, self.experiments = token, {}, {}
        self.versions: dict[tuple[str, str], dict[str, Any]] = {}  # (pipeline, version) -> its IR, the oldest first
        self.broken = False  # answers 503 to everything
        self._models = api.ApiClient()
        fake = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                fake._serve(self, "GET")

            def do_POST(self) -> None:
                fake._serve(self, "POST")

            def log_message(self, *_: Any) -> None:
                """Say nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.host = f"http://127.0.0.1:{self._server.server_port}"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._models.close()

    def move(self, run_id: str, state: str, message: str = "", tasks: dict[str, str] | None = None) -> None:
        """Let a run reach a state; `tasks` are the states of its tasks."""
        run = self.runs[run_id]
        run.state = state
        run.state_history = [*run.state_history, api.V2beta1RuntimeStatus(state=state)]
        run.error = api.GoogleRpcStatus(code=2, message=message) if message else None
        if state in TERMINAL:
            run.finished_at = datetime.now(UTC)
        details = [api.V2beta1PipelineTaskDetail(display_name=name, state=one) for name, one in (tasks or {}).items()]
        run.run_details = api.V2beta1RunDetails(task_details=details)

    def _serve(self, handler: BaseHTTPRequestHandler, method: str) -> None:
        raw = handler.rfile.read(int(handler.headers.get("Content-Length") or 0))
        parts = urlsplit(handler.path)
        try:
            if self.token is not None and handler.headers.get("Authorization") != f"Bearer {self.token}":
                raise api.ApiException(status=401, reason="unauthorized")
            query = {name: values[0] for name, values in parse_qs(parts.query).items()}
            path = parts.path.removeprefix("/apis/v2beta1/")
            if self.broken:
                raise api.ApiException(status=503, reason="away")
            status, reply = 200, self._answer(method, path, query, json.loads(raw) if raw else None)
        except api.ApiException as error:
            status, reply = error.status, {"message": error.reason}
        data = json.dumps(self._models.sanitize_for_serialization(reply)).encode()
        handler.send_response(status)
        handler.send_header("Content-Type", "application/json")
        handler.send_header("Content-Length", str(len(data)))
        handler.end_headers()
        handler.wfile.write(data)

    def _answer(self, method: str, path: str, query: dict[str, str], body: Any) -> Any:
        match method, path.split("/"):
            case "GET", ["experiments"]:
                return api.V2beta1ListExperimentsResponse(experiments=list(self.experiments.values()))
            case "POST", ["experiments"]:
                made = self._read(body, "V2beta1Experiment")
                made.experiment_id = str(uuid.uuid4())
                self.experiments[made.experiment_id] = made
                return made
            case "POST", ["runs"]:
                return self._create(self._read(body, "V2beta1Run"))
            case "GET", ["pipelines"]:
                names = dict.fromkeys(pipeline for pipeline, _ in self.versions)
                found = [api.V2beta1Pipeline(pipeline_id=f"id-of-{one}", display_name=one) for one in names]
                return api.V2beta1ListPipelinesResponse(pipelines=[one for one in found if _asked(query, one)])
            case "GET", ["pipelines", pipeline, "versions"]:
                known = [version for of, version in self.versions if f"id-of-{of}" == pipeline]
                made = [
                    api.V2beta1PipelineVersion(pipeline_version_id=f"id-of-{one}", display_name=one) for one in known
                ]
                made = made[::-1] if query.get("sort_by") == "created_at desc" else made
                return api.V2beta1ListPipelineVersionsResponse(
                    pipeline_versions=[one for one in made if _asked(query, one)]
                )
            case "GET", ["runs"]:
                mine = [one for one in self.runs.values() if query.get("namespace") in (None, self._namespace(one))]
                mine = [one for one in mine if _asked(query, one)]
                descending = query.get("sort_by", "").endswith("desc")
                newest = sorted(mine, key=lambda one: one.created_at, reverse=descending)
                return api.V2beta1ListRunsResponse(runs=newest[: int(query.get("page_size", 20))])
            case "GET", ["runs", run_id]:
                return self._run(run_id)
            case "POST", ["runs", action]:
                run_id, _, verb = action.partition(":")
                self._run(run_id)
                for state in {"terminate": ("CANCELING", "FAILED"), "retry": ("RUNNING",)}[verb]:
                    self.move(run_id, state)
                return {}
        raise api.ApiException(status=404, reason=f"{method} {path}")

    def _namespace(self, run: Any) -> str | None:
        found: str | None = self.experiments[run.experiment_id].namespace
        return found

    def _run(self, run_id: str) -> Any:
        if run_id not in self.runs:
            raise api.ApiException(status=404, reason=f"Run {run_id} not found")
        return self.runs[run_id]

    def _create(self, run: Any) -> Any:
        if run.pipeline_version_reference is not None:
            reference = run.pipeline_version_reference
            ids = {(f"id-of-{one}", f"id-of-{version}"): spec for (one, version), spec in self.versions.items()}
            run.pipeline_spec = ids[reference.pipeline_id, reference.pipeline_version_id]
        spec = run.pipeline_spec.get("pipeline_spec", run.pipeline_spec)
        try:
            parsed = json_format.ParseDict(spec, pipeline_spec_pb2.PipelineSpec())
        except json_format.ParseError as error:
            raise api.ApiException(status=400, reason=f"not a pipeline: {error}") from None
        known = parsed.root.input_definitions.parameters
        given = run.runtime_config.parameters or {} if run.runtime_config else {}
        unknown = set(given) - set(known)
        missing = [name for name, one in known.items() if not one.is_optional and name not in given]
        if unknown or missing or run.experiment_id not in self.experiments:
            raise api.ApiException(status=400, reason=f"unknown {sorted(unknown)}, missing {missing}")
        run.run_id, run.created_at = str(uuid.uuid4()), datetime.now(UTC)
        run.state, run.state_history = "PENDING", []
        self.runs[run.run_id] = run
        self.move(run.run_id, "RUNNING")
        return run

    def _read(self, body: Any, kind: str) -> Any:
        return self._models.deserialize(SimpleNamespace(data=json.dumps(body)), kind)


def _asked(query: dict[str, str], one: Any) -> bool:
    """Say whether something passes the filter of a request."""
    predicates = json.loads(query.get("filter") or "{}").get("predicates", [])
    assert all(each["key"] == "display_name" and each["operation"] == "EQUALS" for each in predicates)
    return all(one.display_name == each["stringValue"] for each in predicates)
