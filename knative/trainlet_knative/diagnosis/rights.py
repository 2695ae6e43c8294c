"""What the person who asks may do, by Kubernetes' own word."""

from __future__ import annotations

from collections.abc import Iterator

from trainlet_knative import installs, kustomizations
from trainlet_knative.connections import PLURALS, Kubernetes
from trainlet_knative.diagnosis.findings import Finding, judged

_REVIEWS = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"


def of_the_caller(kubernetes: Kubernetes) -> Iterator[Finding]:
    """Check that the caller may install: create and change each kind of object that an install is made of."""
    folders = (installs.FOLDER / "base", installs.FOLDER / "project")
    kinds = sorted({(one["apiVersion"], one["kind"]) for folder in folders for one in kustomizations.render(folder)})
    refused = [
        f"{verb} {PLURALS[kind]}"
        for api_version, kind in kinds
        for verb in ("create", "patch")
        if not may(kubernetes, verb, api_version.rpartition("/")[0], PLURALS[kind])
    ]
    saw = "may install" if not refused else f"may not {', '.join(refused[:4])}" + (" ..." if len(refused) > 4 else "")
    why = "trainlet install needs it; training does not, people need only an API token"
    fix = "kubectl create clusterrolebinding NAME --clusterrole=cluster-admin --user=YOU, or ask an admin to install"
    yield judged("rights", not refused, saw, why, fix, "warn")


def may(kubernetes: Kubernetes, verb: str, group: str, resource: str) -> bool:
    """Say whether the caller may do something in every namespace."""
    attributes = {"verb": verb, "group": group, "resource": resource}
    body = {"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview",
            "spec": {"resourceAttributes": attributes}}  # fmt: skip
    return bool(kubernetes.create(_REVIEWS, body).get("status", {}).get("allowed"))
