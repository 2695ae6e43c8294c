"""The training API's own objects, rendered from the packaged kustomization with an admin's settings.

What `trainlet install` applies is what `kubectl apply -k` would apply from a copy of the same files.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from trainlet.core.durations import nearest
from trainlet.core.errors import UserError
from trainlet_knative import kustomizations
from trainlet_knative.clusters import Cluster
from trainlet_knative.connections import Kubernetes, path, path_of
from trainlet_knative.kustomizations import Changes, Object

FOLDER = Path(__file__).parent / "manifests"
FIELD_MANAGER = "trainlet-install"
OVERLAYS = tuple(sorted(path.name for path in (FOLDER / "overlays").iterdir() if path.is_dir()))
NAMESPACE, SECRET = "trainlet", "trainlet-api"
_IMAGE, _BROKER = "trainlet-api", "default"
_DATABASE = "database-url"
_SECRET_KEYS = {"signing.key", _DATABASE, "bootstrap-token"}


def example_settings() -> str:
    """Return the packaged cluster.yaml, a file to start from."""
    return (FOLDER / "base" / "cluster.yaml").read_text()


def example_catalogue() -> str:
    """Return the packaged GPU catalogue, a file to start from."""
    return (FOLDER / "base" / "gpus.yaml").read_text()


def objects(
    settings: Path,
    projects: Sequence[str],
    *,
    image: str,
    overlay: str = "production",
    prices: str | None = None,
    pod_defaults: bool = False,
) -> list[Object]:
    """Return the objects of the API and of its projects' namespaces, in the order in which they are applied.

    `settings` is an admin's cluster.yaml; a GPU catalogue that it names is read from beside it. With `pod_defaults` each of
    the `kubeflow_namespaces` gets the PodDefault that mounts a token into pods which ask for one.
    """
    if overlay not in OVERLAYS:
        raise UserError(f"There is no overlay {overlay!r}. {nearest(overlay, OVERLAYS)}")
    cluster = Cluster.load(settings)
    files = {"cluster.yaml": settings.read_text()} | ({} if prices is None else {"prices.yaml": prices})
    catalogue = Cluster.catalogue_file(settings)
    if catalogue is not None:
        files[catalogue.name] = catalogue.read_text()
    made = kustomizations.render(FOLDER / "overlays" / overlay, Changes(files=files, images={_IMAGE: image}))
    made += kustomizations.render(FOLDER / "oidc" / "api") if cluster.oidc else []
    for project in projects:
        namespace = Changes(namespace=cluster.namespace_of(project))
        made += [
            one
            for one in kustomizations.render(FOLDER / "project", namespace)
            if one["kind"] != "Broker" or cluster.broker == _BROKER  # a broker of another name is the admin's own
        ]
        if cluster.oidc:
            for policy in kustomizations.render(FOLDER / "oidc" / "project", namespace):
                policy["spec"]["to"][0]["ref"]["name"] = cluster.broker
                made.append(policy)
    if pod_defaults and not cluster.kubeflow_namespaces:
        raise UserError(f"{settings} has no kubeflow_namespaces. Add `kubeflow_namespaces: {{NAMESPACE: PROJECT}}`.")
    for each in cluster.kubeflow_namespaces if pod_defaults else ():
        made += kustomizations.render(FOLDER / "kubeflow", Changes(namespace=each))
    return made


def apply(kubernetes: Kubernetes, made: Sequence[Object]) -> Iterator[tuple[str, str]]:
    """Apply objects, and yield for each what happened (`created`, `changed`, `unchanged`) and what it is."""
    for one in made:
        before = kubernetes.get(path_of(one))
        after = kubernetes.apply(one, FIELD_MANAGER)
        done = "created" if before is None else "unchanged" if _content(before) == _content(after) else "changed"
        metadata = one["metadata"]
        where = f" in {metadata['namespace']}" if "namespace" in metadata else ""
        yield done, f"{one['kind']} {metadata['name']}{where}"


def missing_keys(kubernetes: Kubernetes) -> list[str]:
    """Return which keys the API's Secret lacks of those that its Deployment wants; contents are not looked at."""
    found = kubernetes.get(f"{path('v1', NAMESPACE, 'secrets')}/{SECRET}") or {}
    deployment = kubernetes.get(f"{path('apps/v1', NAMESPACE, 'deployments')}/{SECRET}") or {}
    pod = deployment.get("spec", {}).get("template", {}).get("spec", {})
    variables = [one for container in pod.get("containers", []) for one in container.get("env", [])]
    without_database = any(one["name"] == "TRAINLET_DATABASE_URL" and "value" in one for one in variables)
    return sorted(_SECRET_KEYS - ({_DATABASE} if without_database else set()) - set(found.get("data") or {}))


def secret_command(lacks: Sequence[str]) -> str:
    """Return the command that makes the API's Secret."""
    database = f" --from-literal={_DATABASE}=postgresql+psycopg://USER:PASSWORD@HOST/DATABASE"
    return (
        f"head -c 32 /dev/urandom > signing.key && kubectl -n {NAMESPACE} create secret generic {SECRET} "
        "--from-file=signing.key --from-literal=bootstrap-token=$(openssl rand -hex 24)"
        + (database if _DATABASE in lacks else "")
    )


def _content(found: Object) -> Object:
    """Return an object without what Kubernetes notes about its writers: some kinds get a new time for the same fields."""
    noted = ("managedFields", "resourceVersion", "generation")
    return {**found, "metadata": {key: one for key, one in found["metadata"].items() if key not in noted}}
