"""What a check found."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from trainlet_knative.connections import Kubernetes, path

State = Literal["ok", "warn", "bad"]


@dataclass(frozen=True)
class Finding:
    """One check: what was looked at, how it is, what was seen, why it matters, the command that mends it."""

    check: str
    state: State
    saw: str
    why: str = ""
    fix: str = ""


def config(kubernetes: Kubernetes, namespace: str, name: str) -> Mapping[str, str]:
    """Return the data of a ConfigMap; empty when there is none, which means all defaults."""
    found = kubernetes.get(f"{path('v1', namespace, 'configmaps')}/{name}")
    data: dict[str, str] = (found or {}).get("data") or {}
    return data


def patch(namespace: str, name: str, key: str, value: str) -> str:
    """Return the command that sets one key of a ConfigMap."""
    return f"""kubectl -n {namespace} patch configmap {name} --type merge -p '{{"data":{{"{key}":"{value}"}}}}'"""


def judged(check: str, good: bool, saw: str, why: str, fix: str, otherwise: State = "bad") -> Finding:
    """Return a finding that is ok, or not and says why and what to do."""
    return Finding(check, "ok", saw) if good else Finding(check, otherwise, saw, why, fix)


def ready_replicas(kubernetes: Kubernetes, namespace: str, deployment: str) -> int | None:
    """Return how many replicas of a Deployment are ready; None when there is no such Deployment."""
    found = kubernetes.get(f"{path('apps/v1', namespace, 'deployments')}/{deployment}")
    return None if found is None else int(found.get("status", {}).get("readyReplicas") or 0)
