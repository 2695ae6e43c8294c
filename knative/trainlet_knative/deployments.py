"""How a function's pods are doing, in the words of whoever knows why they do not run.

A Service that is not Ready says so in four places: its own conditions, the Revision's, the pod's and the scheduler's. What
a person needs is the innermost: the name of the image that cannot be pulled, the node that has no such GPU.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any

from trainlet.core.wire import Deployment
from trainlet_knative.objects import FUNCTION

Objects = list[dict[str, Any]]
_WAITING = frozenset({"ContainerCreating", "PodInitializing"})


def by_function(services: Objects, jobsinks: Objects, revisions: Objects, pods: Objects) -> dict[str, Deployment]:
    """Return the state of every function that has a Service or a JobSink among these objects."""
    known = {one["metadata"]["name"]: one for one in revisions}
    found: dict[str, Deployment] = {}
    for one in (*services, *jobsinks):
        function = one["metadata"]["labels"][FUNCTION]
        revision = known.get(one.get("status", {}).get("latestCreatedRevisionName", ""))
        theirs = [pod for pod in pods if pod["metadata"]["labels"].get(FUNCTION) == function]
        found[function] = describe(one, revision, theirs)
    return found


def describe(service: dict[str, Any], revision: dict[str, Any] | None, pods: Objects) -> Deployment:
    """Return the state of a function from its Service (or JobSink), its newest Revision and its pods."""
    seen = service.get("status", {}).get("observedGeneration") == service["metadata"].get("generation")
    condition = _condition(service, "Ready")
    ready = seen and condition.get("status") == "True"
    going = [
        pod
        for pod in pods
        if "deletionTimestamp" not in pod["metadata"]
        and pod.get("status", {}).get("phase") not in ("Succeeded", "Failed")
    ]
    why = next((words for pod in going if (words := trouble(pod))), "")
    if not why and not ready:
        why = _words(condition) or "Knative has not looked at it yet"
        inner = _words(_condition(revision or {}, "Ready"))
        why = inner if inner and condition.get("status") == "False" else why
    return Deployment(
        ready=ready,
        failed=not ready and seen and condition.get("status") == "False",
        reason=why,
        revision=service.get("status", {}).get("latestCreatedRevisionName", ""),
        pods=len(going),
        ready_pods=sum(_condition(pod, "Ready").get("status") == "True" for pod in going),
        cold_start=_phases(going),
    )


def trouble(pod: dict[str, Any]) -> str:
    """Return why a pod does not run, or nothing."""
    name = pod["metadata"]["name"]
    scheduled = _condition(pod, "PodScheduled")
    if scheduled.get("status") == "False":
        return f"pod {name} is not placed: {scheduled.get('message') or scheduled.get('reason', '')}"
    for one in pod.get("status", {}).get("containerStatuses", []):
        waiting = one.get("state", {}).get("waiting")
        if waiting and waiting.get("reason") not in _WAITING:
            message = waiting.get("message") or ""
            return f"pod {name}, container {one['name']}: {waiting.get('reason')}: {message}".rstrip(": ")
    return ""


def _phases(pods: Objects) -> dict[str, float]:
    """Return how the start of the newest ready pod went, in seconds by phase: schedule, pull (with start), boot."""
    started: list[tuple[datetime, dict[str, float]]] = []
    for pod in pods:
        ready, placed = _condition(pod, "Ready"), _condition(pod, "PodScheduled")
        running = [
            one["state"]["running"]["startedAt"]
            for one in pod.get("status", {}).get("containerStatuses", [])
            if one["name"] == "worker" and "running" in one.get("state", {})
        ]
        if ready.get("status") != "True" or not running or "lastTransitionTime" not in placed:
            continue
        marks = [pod["metadata"]["creationTimestamp"], placed["lastTransitionTime"], running[0]]
        times = [datetime.fromisoformat(mark) for mark in (*marks, ready["lastTransitionTime"])]
        names = ("schedule", "pull", "boot")
        spans = {name: (end - begin).total_seconds() for name, begin, end in zip(names, times, times[1:], strict=False)}
        started.append((times[0], spans))
    return max(started, key=lambda pair: pair[0])[1] if started else {}


def _condition(found: dict[str, Any], kind: str) -> dict[str, Any]:
    conditions = found.get("status", {}).get("conditions") or []
    return next((one for one in conditions if one.get("type") == kind), {})


def _words(condition: dict[str, Any]) -> str:
    return str(condition.get("message") or condition.get("reason") or "")
