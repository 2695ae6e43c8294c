"""What KFP's launcher hands to a task: the executor input, checked once, and the values that the order wants from it."""

from __future__ import annotations

import json
import os
from pathlib import Path, PurePosixPath
from typing import Any
from urllib.parse import urlsplit

from pydantic import Field, ValidationError

from trainlet.core import artifacts, codecs, graphs
from trainlet.core.errors import UserError
from trainlet.core.models import Reply
from trainlet.core.protocols import ObjectStore
from trainlet_pipelines.pods import orders, shapes
from trainlet_pipelines.values import EncodedSpace, compare

REFERENCE = "trainlet"
"""The metadata key under which an artifact of ours says what it is, so that nobody has to read its file."""
_MOUNTS = {"gs": "/gcs", "s3": "/s3", "minio": "/minio", "oci": "/oci"}


class File(Reply):
    """An artifact as KFP describes it."""

    name: str = ""
    uri: str = ""
    metadata: dict[str, Any] = {}

    @property
    def path(self) -> Path:
        """Return where KFP's launcher puts it, or takes it from."""
        parts = urlsplit(self.uri)
        return Path(self.uri if not parts.scheme else f"{_MOUNTS.get(parts.scheme, '')}/{parts.netloc}{parts.path}")


class Files(Reply):
    artifacts: list[File] = []


class OutputFile(Reply):
    output_file: str = Field(alias="outputFile")


class Given(Reply):
    parameter_values: dict[str, Any] = Field(default={}, alias="parameterValues")
    artifacts: dict[str, Files] = {}


class Wanted(Reply):
    parameters: dict[str, OutputFile] = {}
    artifacts: dict[str, Files] = {}
    output_file: str = Field(alias="outputFile")


class ExecutorInput(Reply):
    """What replaces `{{$}}` in the arguments of a task."""

    inputs: Given = Given()
    outputs: Wanted

    def task_root(self) -> PurePosixPath | None:
        """Return `<pipeline root>/<task>/<uuid>`, the same over every retry of one task; None when it is not known."""
        uris = [file.uri for files in self.outputs.artifacts.values() for file in files.artifacts if file.uri]
        return PurePosixPath(uris[0]).parent if uris else None


def read(text: str) -> ExecutorInput:
    """Read the executor input; raises UserError when it is none."""
    try:
        return ExecutorInput.model_validate_json(text)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"]))
        raise UserError(f"--executor-input is not what KFP passes: {where}: {first['msg']}.") from None


class Inputs:
    """Evaluates the expressions of an order over what KFP passed."""

    def __init__(self, executor: ExecutorInput, order: orders.Order, store: ObjectStore, workdir: Path) -> None:
        self._given, self._order, self._store = executor.inputs, order, store
        self._space = EncodedSpace(store, workdir)
        self._read: dict[str, Any] = {}

    def arguments(self) -> dict[str, Any]:
        """Return the encoded inputs by name; one that KFP was not given is left out."""
        sources = set(self._order.sources.values())
        names = [name for name in self._order.ports if name not in sources and self._is_given(name)]
        found = {name: self._port(name) for name in names}
        return {**found, **{name: self._evaluate(one) for name, one in self._order.inputs.items()}}

    def value(self) -> Any:
        """Return the encoded value of an order that only evaluates."""
        return self.arguments()["value"]

    def plain(self, value: Any) -> Any:
        """Return the Python value of an encoded one."""
        return self._space.plain(value)

    def _is_given(self, port: str) -> bool:
        """Say whether a port counts as an argument: one that may be left out is none when it is not there."""
        shape = self._order.ports[port]
        if not (isinstance(shape, list) and shape[0] == "default"):
            return True
        return port in self._given.parameter_values or port in self._given.artifacts

    def _port(self, port: str) -> Any:
        if port not in self._read:
            self._read[port] = self._take(port, self._order.ports[port])
        return self._read[port]

    def _take(self, port: str, shape: shapes.Shape) -> Any:
        if shape == "status":
            return _status(self._given.parameter_values.get(port))
        if shapes.is_artifact(shape):
            return self._artifact(port, shape[1])
        if port not in self._given.parameter_values:
            if isinstance(shape, list) and shape[0] == "optional":
                return None
            raise UserError(f"KFP passed no value for {port}. Give it one in the run's form.")
        return shapes.restore(self._given.parameter_values[port], shape, port)

    def _artifact(self, port: str, kind: str) -> Any:
        files = self._given.artifacts[port].artifacts
        if len(files) != 1:
            raise UserError(f"KFP passed {len(files)} files for {port}; a step takes one.")
        reference = files[0].metadata.get(REFERENCE)
        if isinstance(reference, str):
            return shapes.restore(reference, "encoded", port)
        made = artifacts.KINDS.get(kind, artifacts.Artifact)
        metadata = {name: shapes.restore(value, "any", name) for name, value in files[0].metadata.items()}
        metadata["uri"] = files[0].uri
        return codecs.encode(made.from_path(files[0].path, **metadata), self._store, name=port)

    def _evaluate(self, expression: graphs.Expression) -> Any:
        match expression:
            case graphs.Constant(value=value):
                return value
            case graphs.ListOf(items=parts):
                return [self._evaluate(part) for part in parts]
            case graphs.DictOf(items=named):
                return {name: self._evaluate(part) for name, part in named.items()}
            case graphs.Condition(operator=name, operands=parts):
                return compare(name, [self._space.plain(self._evaluate(part)) for part in parts])
            case _:
                value = self._port(self._order.sources[orders.leaf_key(expression)])
                return self._space.select(value, getattr(expression, "path", ()))


def _status(given: Any) -> dict[str, Any]:
    """Return what `tl.run_status()` is: KFP says how the run ended, but leaves the error out (its own TODO)."""
    told = given if isinstance(given, dict) else json.loads(given) if isinstance(given, str) and given else {}
    state = str(told.get("state", "")).lower()
    state = {"cancelled": "canceled", "error": "failed", "": "failed"}.get(state, state)
    message = (told.get("error") or {}).get("message") or ""
    error = None
    if state != "succeeded":
        error = {"kind": "user", "message": message or f"the run {state}; KFP's page of the run names the task"}
    return {"state": state, "error": error, "failed": []}


def workdir() -> Path:
    """Return where this pod keeps files: KFP's pods run without root, so under the home of trainlet's images."""
    return Path(os.environ.get("TRAINLET_HOME") or "/tmp/trainlet")  # noqa: S108 - the pod's own
