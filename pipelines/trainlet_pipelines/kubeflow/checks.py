"""A look at compiled IR before it is submitted: sizes against KFP's limits, and what its cache will do."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from trainlet_pipelines.kubeflow.components import ARGUMENT_BYTES

WORKFLOW_BYTES = 1024 * 1024
GROWTH = 3.0
"""A workflow of KFP 2 is about three times its IR (kubeflow/pipelines#13738); what counts is compressed on the server."""


@dataclass(frozen=True, slots=True)
class Task:
    """A task of the compiled pipeline. `argument_bytes` is its longest argument, `cached` whether KFP may reuse it."""

    name: str
    image: str
    does: str
    argument_bytes: int
    cached: bool


@dataclass(frozen=True, slots=True)
class Report:
    """What was found. `workflow_bytes` is an estimate of what Argo stores."""

    tasks: Sequence[Task]
    ir_bytes: int
    workflow_bytes: int
    problems: Sequence[str]


def check(path: Path) -> Report:
    """Read compiled IR and report; problems are sentences that say what to do."""
    text = path.read_text()
    spec = next(yaml.load_all(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader)))
    tasks = _tasks(spec)
    workflow = round(len(json.dumps(spec, separators=(",", ":"))) * GROWTH)
    problems = [
        f"{task.name}: an argument takes {task.argument_bytes:,} bytes; Linux passes at most {ARGUMENT_BYTES:,}. "
        "Return the value from a step instead."
        for task in tasks
        if task.argument_bytes >= ARGUMENT_BYTES
    ]
    if workflow > WORKFLOW_BYTES:
        problems.append(
            f"The workflow will take about {workflow:,} bytes; Kubernetes stores {WORKFLOW_BYTES:,}, after compression. "
            "Use tl.each for steps that repeat, or split the pipeline."
        )
    return Report(tasks, len(text.encode()), workflow, problems)


def _tasks(spec: Mapping[str, Any]) -> list[Task]:
    executors = spec.get("deploymentSpec", {}).get("executors", {})
    dags = [spec["root"], *(one for one in spec.get("components", {}).values() if "dag" in one)]
    found: list[Task] = []
    for dag in dags:
        for name, task in dag["dag"]["tasks"].items():
            label = spec["components"][task["componentRef"]["name"]].get("executorLabel")
            container = executors.get(label, {}).get("container")
            if container is not None:
                cached = bool(task.get("cachingOptions", {}).get("enableCache"))
                longest = max((len(one.encode()) for one in container.get("args", [])), default=0)
                found.append(Task(name, container.get("image", ""), _does(container), longest, cached))
    return found


def _does(container: Mapping[str, Any]) -> str:
    command = list(container.get("command", []))
    if "trainlet_pipelines.execute" in command:
        return "runs in its pod"
    if "trainlet_pipelines.dispatch" not in command:
        return "KFP component"
    order = json.loads(container["args"][-1])
    return "waits for the training API" if order.get("kind", "step") == "step" else f"evaluates a {order['kind']}"
