"""The training API on the cluster, and the namespaces of its projects."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from trainlet_knative import installs, kustomizations
from trainlet_knative.clusters import Cluster
from trainlet_knative.connections import Kubernetes, path, path_of
from trainlet_knative.diagnosis.findings import Finding, judged, ready_replicas

_NAME = "trainlet-api"


def running(kubernetes: Kubernetes) -> Iterator[Finding]:
    """Check that the API is installed and ready."""
    count = ready_replicas(kubernetes, installs.NAMESPACE, _NAME)
    saw = "not installed" if count is None else f"{count} replicas ready"
    fix = (
        "trainlet install"
        if count is None
        else f"kubectl -n {installs.NAMESPACE} describe pods -l app.kubernetes.io/name={_NAME}"
    )
    yield judged("training API", bool(count), saw, "it admits tasks, deploys functions and keeps the books", fix)
    lacks = installs.missing_keys(kubernetes)
    saw = f"lacks {', '.join(lacks)}" if lacks else "complete"
    why = "the API does not start without its signing key, database and first token"
    yield judged("Secret of the API", not lacks, saw, why, installs.secret_command(lacks))


def projects(kubernetes: Kubernetes, cluster: Cluster, names: Sequence[str]) -> Iterator[Finding]:
    """Check that each project has its namespace, the API's role there, and the store's credentials."""
    for project in names:
        namespace = cluster.namespace_of(project)
        fix = f"trainlet install --project {project}"
        if kubernetes.get(f"/api/v1/namespaces/{namespace}") is None:
            yield Finding(
                f"project {project}", "bad", f"no namespace {namespace}", "its functions are deployed there", fix
            )
            continue
        made = kustomizations.render(installs.FOLDER / "project", kustomizations.Changes(namespace=namespace))
        wanted = next(one for one in made if one["kind"] == "Role")
        role = kubernetes.get(path_of(wanted))
        same = role is not None and role.get("rules") == wanted["rules"]
        saw = f"{namespace}, its role {'as it should be' if same else 'of another version' if role else 'missing'}"
        yield judged(f"project {project}", same, saw, "the API needs exactly these rights to deploy functions", fix)
        if (claim := cluster.package_cache) is not None:
            found = kubernetes.get(f"{path('v1', namespace, 'persistentvolumeclaims')}/{claim}")
            modes = [] if found is None else found.get("spec", {}).get("accessModes", [])
            saw = (
                f"claim {claim} missing"
                if found is None
                else f"claim {claim} with {', '.join(modes) or 'no access mode'}"
            )
            why = "pods of a step install packages into it, on any node"
            fix = f"make a PersistentVolumeClaim {claim} with accessModes: [ReadWriteMany] in {namespace}"
            yield judged(f"package cache of {project}", "ReadWriteMany" in modes, saw, why, fix)
        if cluster.store_secret is not None:
            secret = cluster.store_secret
            there = kubernetes.get(f"{path('v1', namespace, 'secrets')}/{secret}") is not None
            fix = (
                f"kubectl -n {namespace} create secret generic {secret} --from-literal=AWS_ACCESS_KEY_ID=... "
                "--from-literal=AWS_SECRET_ACCESS_KEY=..."
            )
            saw = f"Secret {secret} {'there' if there else 'missing'}"
            yield judged(f"store of {project}", there, saw, "without it no pod of a step starts", fix)
