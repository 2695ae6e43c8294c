"""A stand-in for KFP's driver and launcher: walks compiled IR and starts each task's command as a pod would.

It does what was seen of the real ones. Numbers are doubles. The task root `<root>/<task>/<uuid>` stays over retries,
while KFP_RETRY_INDEX counts from 0 and begins there again for `retry` (the button of KFP's page). A task has a clean
environment. Parameters are read from their files and must fit their type; an artifact keeps the metadata that the
executor output gives it, and its file where the task has put it. A task that fails registers nothing.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import uuid
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

TYPES = {"NUMBER_DOUBLE": float, "NUMBER_INTEGER": float, "BOOLEAN": bool, "STRING": str, "LIST": list, "STRUCT": dict}


class TaskFailed(Exception):
    """A task whose retries are used up."""


@dataclass
class Pod:
    """One started task."""

    task: str
    index: int
    code: int
    stdout: str
    stderr: str
    root: Path


@dataclass
class Launcher:
    """One run of one compiled pipeline."""

    path: Path
    root: Path
    environment: dict[str, str] = field(default_factory=dict)
    secrets: dict[str, dict[str, str]] = field(default_factory=dict)
    run_id: str = field(default_factory=lambda: str(uuid.uuid4()))
    pods: list[Pod] = field(default_factory=list)
    artifacts: dict[str, dict[str, Any]] = field(default_factory=dict)
    outputs: dict[str, dict[str, Any]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        documents = list(yaml.safe_load_all(self.path.read_text()))
        self.spec = documents[0]
        platform = documents[1] if len(documents) > 1 else {}
        kubernetes = platform.get("platforms", {}).get("kubernetes", {})
        self.platform = kubernetes.get("deploymentSpec", {}).get("executors", {})
        self._roots: dict[tuple[str, str], Path] = {}

    def run(self, **params: Any) -> dict[str, dict[str, Any]]:
        """Walk the whole graph; returns the outputs of the tasks by name. Raises TaskFailed."""
        inputs = self._with_defaults(self.spec["root"], {n: doubles(v) for n, v in params.items()})
        return self._dag("", self.spec["root"], inputs, {})

    # -- the driver

    def _with_defaults(self, component: dict[str, Any], values: dict[str, Any]) -> dict[str, Any]:
        known = component.get("inputDefinitions", {}).get("parameters", {})
        for name, one in known.items():
            if name not in values and "defaultValue" in one:
                values[name] = doubles(one["defaultValue"])
            assert name in values or one.get("isOptional"), f"missing parameter {name}"
        return values

    def _dag(self, where: str, component: dict[str, Any], params: dict[str, Any], files: dict[str, Any]) -> Any:
        done: dict[str, dict[str, Any]] = {}
        left = dict(component["dag"]["tasks"])
        failure: TaskFailed | None = None
        while left:
            settled = [name for name in left if not set(left[name].get("dependentTasks", [])) & set(left)]
            assert settled, f"a cycle through {list(left)}"
            for name in settled:
                task = left.pop(name)
                exits = task.get("triggerPolicy", {}).get("strategy") == "ALL_UPSTREAM_TASKS_COMPLETED"
                if not exits and (failure or any(done.get(one) is None for one in task.get("dependentTasks", []))):
                    done[name] = None  # type: ignore[assignment]
                    continue
                try:
                    done[name] = self._task(f"{where}{name}", task, params, files, done, failure)
                except TaskFailed as error:
                    failure, done[name] = failure or error, None  # type: ignore[assignment]
        if failure is not None:
            raise failure
        return self._dag_outputs(component, done) if where else done

    def _dag_outputs(self, component: dict[str, Any], done: dict[str, Any]) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for name, one in component["dag"].get("outputs", {}).get("parameters", {}).items():
            selector = one["valueFromParameter"]
            giver = done[selector["producerSubtask"]]
            found[name] = None if giver is None else giver["parameters"].get(selector["outputParameterKey"])
        files: dict[str, Any] = {}
        for name, one in component["dag"].get("outputs", {}).get("artifacts", {}).items():
            (selector,) = one["artifactSelectors"]
            giver = done[selector["producerSubtask"]]
            files[name] = None if giver is None else giver["artifacts"].get(selector["outputArtifactKey"])
        return {"parameters": found, "artifacts": files}

    def _task(
        self,
        where: str,
        task: dict[str, Any],
        params: dict[str, Any],
        files: dict[str, Any],
        done: dict[str, Any],
        failure: TaskFailed | None,
    ) -> dict[str, Any]:
        component = self.spec["components"][task["componentRef"]["name"]]
        values, artifacts = self._inputs(task, params, files, done, failure)
        condition = task.get("triggerPolicy", {}).get("condition")
        if "parameterIterator" in task:
            return self._iterate(where, task, component, values, artifacts)
        if condition is not None and not decide(condition, values):
            return {"parameters": {}, "artifacts": {}}
        return self._component(where, task, component, values, artifacts)

    def _component(self, where: str, task: Any, component: Any, values: Any, artifacts: Any) -> dict[str, Any]:
        if "dag" in component:
            return self._dag(f"{where}/", component, self._with_defaults(component, values), artifacts)
        importer = self.spec["deploymentSpec"]["executors"][component["executorLabel"]].get("importer")
        if importer is not None:
            return self._import(where, importer, values)
        return self._container(where, task, component, self._with_defaults(component, values), artifacts)

    def _import(self, where: str, importer: dict[str, Any], values: dict[str, Any]) -> dict[str, Any]:
        """Register an artifact that exists: no pod, and nothing is copied."""
        uri = importer["artifactUri"]
        address = values[uri["runtimeParameter"]] if "runtimeParameter" in uri else uri["constant"]
        made = {"name": where, "type": importer["typeSchema"], "uri": address, "metadata": importer.get("metadata", {})}
        self.artifacts[where] = {"artifact": made}
        return {"parameters": {}, "artifacts": {"artifact": made}}

    def _iterate(self, where: str, task: Any, component: Any, values: Any, artifacts: Any) -> dict[str, Any]:
        iterator = task["parameterIterator"]
        items = iterator["items"]
        listed = json.loads(items["raw"]) if "raw" in items else values[items["inputParameter"]]
        rounds = [
            self._component(f"{where}.{n}", task, component, {**values, iterator["itemInput"]: item}, artifacts)
            for n, item in enumerate(doubles(listed))
        ]
        names = component.get("outputDefinitions", {}).get("parameters", {})
        return {"parameters": {n: [one["parameters"][n] for one in rounds] for n in names}, "artifacts": {}}

    def _inputs(self, task: Any, params: Any, files: Any, done: Any, failure: Any) -> tuple[dict[str, Any], Any]:
        values: dict[str, Any] = {}
        for name, one in task.get("inputs", {}).get("parameters", {}).items():
            if "runtimeValue" in one:
                values[name] = doubles(one["runtimeValue"]["constant"])
            elif "componentInputParameter" in one:
                if one["componentInputParameter"] in params:
                    values[name] = params[one["componentInputParameter"]]
            elif "taskFinalStatus" in one:
                state = "FAILED" if failure else "SUCCEEDED"
                values[name] = {"state": state, "pipelineTaskName": one["taskFinalStatus"]["producerTask"]}
            else:
                giver = one["taskOutputParameter"]
                values[name] = done[giver["producerTask"]]["parameters"][giver["outputParameterKey"]]
        artifacts: dict[str, Any] = {}
        for name, one in task.get("inputs", {}).get("artifacts", {}).items():
            if "componentInputArtifact" in one:
                artifacts[name] = files[one["componentInputArtifact"]]
            else:
                giver = one["taskOutputArtifact"]
                artifacts[name] = done[giver["producerTask"]]["artifacts"][giver["outputArtifactKey"]]
        return values, artifacts

    # -- the launcher

    def _container(self, where: str, task: Any, component: Any, values: Any, artifacts: Any) -> dict[str, Any]:
        name = where.rsplit("/", 1)[-1]
        folder = self._roots.setdefault(
            (where, ""), self.root / self.spec["pipelineInfo"]["name"] / self.run_id / name / str(uuid.uuid4())
        )
        executor_input = self.executor_input(component, values, artifacts, folder)
        policy = task.get("retryPolicy")
        for index in range(1 + (policy or {}).get("maxRetryCount", 0)):
            pod = self.start(name, component["executorLabel"], executor_input, folder, index if policy else None)
            if pod.code == 0:
                break
        else:
            raise TaskFailed(f"{where}: exit {pod.code}\n{pod.stdout}\n{pod.stderr}")
        found = self._collect(component, executor_input)
        self.artifacts[where], self.outputs[where] = found["artifacts"], found["parameters"]
        return found

    def executor_input(self, component: Any, values: Any, artifacts: Any, folder: Path) -> dict[str, Any]:
        """Return what replaces `{{$}}`."""
        wanted = component.get("outputDefinitions", {})
        local = folder / "local"
        made = {
            name: {
                "artifacts": [{"name": name, "type": one["artifactType"], "uri": str(folder / name), "metadata": {}}]
            }
            for name, one in wanted.get("artifacts", {}).items()
        }
        kind = {"schemaTitle": "system.Artifact", "schemaVersion": "0.0.1"}
        logs = {
            "artifacts": [
                {"name": "executor-logs", "type": kind, "uri": str(folder / "executor-logs-0"), "metadata": {}}
            ]
        }
        return {
            "inputs": {
                "parameterValues": values,
                "artifacts": {name: {"artifacts": [one]} for name, one in artifacts.items()},
            },
            "outputs": {
                "parameters": {name: {"outputFile": str(local / name)} for name in wanted.get("parameters", {})},
                "artifacts": {**made, "executor-logs-0": logs},
                "outputFile": str(local / "output_metadata.json"),
            },
        }

    def command(self, label: str, executor_input: dict[str, Any]) -> list[str]:
        """Return the command of a task with its placeholders filled."""
        container = self.spec["deploymentSpec"]["executors"][label]["container"]
        text = json.dumps(printed(executor_input))
        filled = [text if one == "{{$}}" else one for one in [*container["command"], *container.get("args", [])]]
        assert "{{$" not in "".join(one for one in filled if one is not text)
        return [sys.executable if filled[0] in ("python", "python3") else filled[0], *filled[1:]]

    def pod_environment(self, label: str, index: int | None) -> dict[str, str]:
        """Return the variables of a pod: its own, those of Secrets, those of KFP."""
        container = self.spec["deploymentSpec"]["executors"][label]["container"]
        found = {"PATH": os.environ["PATH"], "KFP_POD_UID": str(uuid.uuid4()), "KFP_POD_NAME": f"{label}-pod"}
        found |= {one["name"]: one["value"] for one in container.get("env", [])}
        for one in self.platform.get(label, {}).get("fieldPathAsEnv", []):
            assert one["fieldPath"] == "metadata.labels['pipeline/runid']"
            found[one["name"]] = self.run_id
        for one in self.platform.get(label, {}).get("secretAsEnv", []):
            for key in one["keyToEnv"]:
                found[key["envVar"]] = self.secrets[one["secretName"]][key["secretKey"]]
        if index is not None:
            found["KFP_RETRY_INDEX"] = str(index)
        return {**found, **self.environment}

    def start(self, name: str, label: str, executor_input: Any, folder: Path, index: int | None) -> Pod:
        """Start one pod and wait for its end."""
        folder.mkdir(parents=True, exist_ok=True)
        done = subprocess.run(
            self.command(label, executor_input),
            env=self.pod_environment(label, index),
            cwd=folder,
            capture_output=True,
            text=True,
            check=False,
        )
        pod = Pod(name, index or 0, done.returncode, done.stdout, done.stderr, folder)
        self.pods.append(pod)
        return pod

    def _collect(self, component: Any, executor_input: Any) -> dict[str, Any]:
        outputs = executor_input["outputs"]
        path = Path(outputs["outputFile"])
        told = json.loads(path.read_text()) if path.exists() else {}
        parameters: dict[str, Any] = {}
        for name, one in component.get("outputDefinitions", {}).get("parameters", {}).items():
            if name in told.get("parameterValues", {}):
                parameters[name] = doubles(told["parameterValues"][name])
                continue
            text = Path(outputs["parameters"][name]["outputFile"]).read_text()
            parameters[name] = parse(text, one["parameterType"])
        files: dict[str, Any] = {}
        for name, listed in outputs["artifacts"].items():
            one = dict(listed["artifacts"][0]) if "artifacts" in listed else {}
            described = told.get("artifacts", {}).get(name, {}).get("artifacts")
            if described:
                assert described[0]["uri"].startswith(str(Path(one["uri"]).parent)), "an artifact left its place"
                json.dumps(described[0]["metadata"], allow_nan=False)
                one |= described[0]
            files[name] = one
        return {"parameters": parameters, "artifacts": files}


def parse(text: str, kind: str) -> Any:
    """Read a parameter's file as the launcher does."""
    if kind == "STRING":
        return text
    value = doubles(json.loads(text))
    assert isinstance(value, TYPES[kind]), f"{text!r} is no {kind}"
    return value


def doubles(value: Any) -> Any:
    """Turn every number into a double, as KFP's messages do."""
    if isinstance(value, bool) or value is None or isinstance(value, str):
        return value
    if isinstance(value, int | float):
        return float(value)
    if isinstance(value, list):
        return [doubles(one) for one in value]
    return {name: doubles(one) for name, one in value.items()}


def printed(value: Any) -> Any:
    """Write doubles as KFP's launcher does: one that is whole has no point, so nobody can tell 2.0 from 2."""
    if isinstance(value, float) and value.is_integer() and abs(value) < 1e21:
        return int(value)
    if isinstance(value, list):
        return [printed(one) for one in value]
    return {name: printed(one) for name, one in value.items()} if isinstance(value, dict) else value


def decide(condition: str, values: dict[str, Any]) -> bool:
    """Evaluate a condition of the IR, which is CEL over the task's inputs."""
    text = re.sub(r"inputs\.parameter_values\['([^']+)'\]", lambda match: f"values[{match[1]!r}]", condition)
    text = text.replace("&&", " and ").replace("||", " or ").replace("!(", " not (")
    text = re.sub(r"\bint\(|\bdouble\(", "float(", text)
    return bool(eval(text, {"values": values, "true": True, "false": False, "float": float}))
