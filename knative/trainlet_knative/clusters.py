"""What is the same for every function of a cluster: one YAML file, written by an admin, read by the training API,
by `trainlet manifests` and by `trainlet install`.

A wrong file is refused when it is loaded, with the field and what is right. This module must not know steps.
"""

from __future__ import annotations

import ipaddress
import re
from pathlib import Path
from typing import Annotated, Any, Self, TypeVar

from pydantic import Field, StringConstraints, ValidationError, field_validator, model_validator

from trainlet.core.durations import nearest
from trainlet.core.errors import UserError
from trainlet.core.models import Value
from trainlet_knative.catalogues import Catalogue, Toleration

Url = Annotated[str, StringConstraints(pattern=r"^[a-z][a-z0-9+.-]*://[^\s]+$|^/[^\s]+$")]
Label = Annotated[str, StringConstraints(pattern=r"^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$")]
Quantity = Annotated[str, StringConstraints(pattern=r"^[0-9]+(\.[0-9]+)?(Ki|Mi|Gi|Ti|k|M|G|T)?$")]

# Google's and Azure's taints on nodes that may be taken back at any moment; Amazon's have none of their own.
SPOT = (
    Toleration(key="cloud.google.com/gke-spot", operator="Equal", value="true", effect="NoSchedule"),
    Toleration(key="kubernetes.azure.com/scalesetpriority", operator="Equal", value="spot", effect="NoSchedule"),
)


M = TypeVar("M", bound=Value)


class Cluster(Value):
    """The settings of a cluster.

    `namespace` holds `{project}`: a namespace per project keeps tenants apart. `drain_s` is how long a pod may take to
    end when it must go; Knative's `max-revision-timeout-seconds` has to allow it. `warm_s` is how long an idle worker
    stays, `start_s` how long a new one may take with its node and image, `unreachable_s` when a pod of a lost node is
    given up (None: Kubernetes' five minutes). `unused_s` is how long a function keeps its objects that nobody uses; they come
    back when it is used again. `max_timeout_s` bounds the `timeout=` of steps. `package_cache`
    names a PersistentVolumeClaim of each project's namespace, which many pods may write (ReadWriteMany), where the packages
    of steps are installed once (None: by each pod for itself). `spot` are the taints of
    nodes that may vanish: steps that save checkpoints tolerate them. `store_secret` names a Secret of the project's
    namespace with the store's credentials as environment variables; `service_account_annotations` give pods a cloud
    identity instead. `steps_choose_nodes: false` refuses node selectors, tolerations and affinities that somebody wrote
    on a step in Kubeflow Pipelines, so that only the GPU catalogue places it. `kubeflow_namespaces` names the project of
    each namespace whose pods may use the training API with their own service-account token.
    With `oidc` brokers prove who they are, and what triggers wait for comes from the projects' brokers; `open_events` lets
    it come without proof, as a broker without OIDC itself takes what anybody in the cluster sends.
    `sink` is a URL that hears of each attempt's end as a CloudEvent. `virtual_gpus` is for clusters
    without GPUs: nothing is asked for, the books still count. `public_key` verifies the training API's events; the API
    itself knows its own.
    """

    image: str = Field(min_length=1)
    api_url: Url
    store_url: Url
    public_key: str = ""
    dead_letter_url: Url
    namespace: str = "trainlet-{project}"
    broker: Label = "default"
    sink: Url | None = None
    broker_ingress: Url = "http://broker-ingress.knative-eventing.svc.cluster.local"
    drain_s: int = Field(default=3600, ge=60, le=7 * 86400)
    warm_s: int = Field(default=60, ge=0, le=3600)
    start_s: int = Field(default=1200, ge=60, le=86400)
    unreachable_s: int | None = Field(default=20, ge=0, le=3600)
    unused_s: int = Field(default=30 * 86400, ge=3600)
    max_timeout_s: float | None = Field(default=None, gt=0)
    shared_memory: Quantity = "8Gi"
    run_as_user: int | None = Field(default=None, ge=1)
    gpus: Catalogue = Catalogue()
    virtual_gpus: bool = False
    package_cache: Label | None = None
    spot: tuple[Toleration, ...] = SPOT
    steps_choose_nodes: bool = True
    oidc: bool = False
    open_events: bool = False
    ingress_namespace: Label = "kourier-system"
    serving_namespace: Label = "knative-serving"
    eventing_namespace: Label = "knative-eventing"
    node_cidrs: tuple[str, ...] = ()
    store_secret: Label | None = None
    service_account_annotations: dict[str, str] = {}
    kubeflow_namespaces: dict[Label, Label] = {}
    kueue_queue: Label | None = None
    job_ttl_s: int = Field(default=3600, ge=0)

    @field_validator("namespace")
    @classmethod
    def _one_placeholder(cls, text: str) -> str:
        plain = text.replace("{project}", "p")
        if not re.fullmatch(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?", plain):
            raise ValueError("write a DNS label, with {project} where the project's name goes")
        if text.count("{project}") != 1:
            raise ValueError(
                "write {project} once: in one namespace two projects would overwrite each other's functions"
            )
        return text

    @field_validator("node_cidrs")
    @classmethod
    def _networks(cls, cidrs: tuple[str, ...]) -> tuple[str, ...]:
        for one in cidrs:
            ipaddress.ip_network(one)
        return cidrs

    @model_validator(mode="after")
    def _two_kinds_of_namespaces(self) -> Self:
        for namespace, project in self.kubeflow_namespaces.items():
            if self.project_of(namespace) is not None:
                raise ValueError(
                    f"kubeflow_namespaces: {namespace} is a namespace of steps (namespace={self.namespace!r}), whose pods "
                    "are workers. Name the namespace in which the pods of pipelines run"
                )
            try:
                self.namespace_of(project)
            except UserError as error:
                raise ValueError(f"kubeflow_namespaces: {error}") from error
        return self

    def namespace_of(self, project: str) -> str:
        """Return the namespace of a project; UserError when its name makes none."""
        name = self.namespace.replace("{project}", project)
        if not re.fullmatch(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?", name):
            raise UserError(
                f"Project {project!r} would have the namespace {name!r}, which is no DNS label: use a-z, 0-9 and '-', "
                "at most 63 characters in all. Name the project otherwise."
            )
        return name

    def project_of(self, namespace: str) -> str | None:
        """Return the project of a namespace; None when the namespace is none of trainlet's."""
        before, _, after = self.namespace.partition("{project}")
        project = namespace.removeprefix(before).removesuffix(after)
        return project if project and self.namespace.replace("{project}", project) == namespace else None

    def broker_url(self, project: str) -> str:
        """Return where events for a project's functions go."""
        return f"{self.broker_ingress}/{self.namespace_of(project)}/{self.broker}"

    def broker_audience(self, project: str) -> str:
        """Return whom a token for that broker is meant for, as Eventing names it."""
        return f"eventing.knative.dev/broker/{self.namespace_of(project)}/{self.broker}"

    @property
    def takes_events(self) -> bool:
        """Say whether brokers of projects may bring events to the training API."""
        return self.oidc or self.open_events

    @classmethod
    def load(cls, path: Path) -> Cluster:
        """Read a YAML file; `gpus:` may be the name of another file beside it. UserError says what is wrong where."""
        raw = _read(path)
        file = cls.catalogue_file(path)
        if file is not None:
            raw = {**raw, "gpus": load_catalogue(file).model_dump(by_alias=True)}
        return _checked(cls, raw, path)

    @staticmethod
    def catalogue_file(path: Path) -> Path | None:
        """Return the file beside the settings that holds the GPU catalogue, or None when they name none."""
        gpus = _read(path).get("gpus")
        if not isinstance(gpus, str):
            return None
        if Path(gpus).name != gpus:
            raise UserError(f"{path}: gpus={gpus!r} must be a file in the same folder, such as gpus.yaml.")
        return path.parent / gpus


def load_catalogue(path: Path) -> Catalogue:
    """Read a GPU catalogue; UserError says what is wrong where."""
    return _checked(Catalogue, _read(path), path)


def _read(path: Path) -> dict[str, Any]:
    try:
        import yaml
    except ImportError as error:
        raise UserError("Settings of a cluster need PyYAML. Run: pip install 'trainlet[cluster]'") from error
    try:
        raw = yaml.safe_load(path.read_text())
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror}. Correct the path.") from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise UserError(f"{path} is no YAML: {' '.join(str(error).split())}") from error
    if not isinstance(raw, dict):
        raise UserError(f"{path} holds no settings: write `name: value` lines.")
    return raw


def _checked(model: type[M], raw: dict[str, Any], path: Path) -> M:
    try:
        return model.model_validate(raw)
    except ValidationError as error:
        lines = [_sentence(model, one) for one in error.errors()]
        raise UserError("\n".join(f"{path}: {line}" for line in dict.fromkeys(lines))) from None


def _sentence(model: type[Value], error: Any) -> str:
    where = ".".join(str(part) for part in error["loc"] if part != "function-after")
    if error["type"] == "extra_forbidden" and len(error["loc"]) == 1:
        return f"{where} is no setting. {nearest(where, list(model.model_fields))}"
    if error["type"] == "missing":
        return f"{where} is missing. Add it."
    message = error["msg"].removeprefix("Value error, ")
    return f"{where}={error['input']!r}: {message}." if where else f"{message}."
