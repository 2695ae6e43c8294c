"""The training API's own objects: the packaged kustomization, rendered with an admin's settings."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from trainlet.core.errors import PlatformError, UserError
from trainlet_functions.billing import pricefiles
from trainlet_knative import installs, kustomizations
from trainlet_knative.clusters import Cluster
from trainlet_knative.kustomizations import Changes, render
from trainlet_knative.objects import identities

GOLDEN = Path(__file__).parent / "golden"
KUSTOMIZE = os.environ.get("TRAINLET_TEST_KUSTOMIZE")
FOLDERS = [
    "base",
    "project",
    "kubeflow",
    "oidc/api",
    "oidc/project",
    *(f"overlays/{name}" for name in installs.OVERLAYS),
]


@pytest.fixture
def settings(tmp_path: Path) -> Path:
    path = tmp_path / "cluster.yaml"
    path.write_text(installs.example_settings())
    (tmp_path / "gpus.yaml").write_text(installs.example_catalogue())
    return path


def one(made: list[dict[str, Any]], kind: str, name: str = "trainlet-api") -> dict[str, Any]:
    (found,) = (each for each in made if (each["kind"], each["metadata"]["name"]) == (kind, name))
    return found


@pytest.mark.parametrize("overlay", installs.OVERLAYS)
def test_an_install_becomes_these_objects(settings: Path, overlay: str) -> None:
    """`TRAINLET_RENEW_GOLDEN=1` renews the files; read the difference."""
    made = installs.objects(settings, ["vision"], image="registry.example/api:1", overlay=overlay)
    assert set(one(made, "ConfigMap", "trainlet-config")["data"]) == {"cluster.yaml", "gpus.yaml", "prices.yaml"}
    one(made, "ConfigMap", "trainlet-config")["data"].pop("prices.yaml")  # long, and compared below
    file = GOLDEN / f"install_{overlay}.yaml"
    if os.environ.get("TRAINLET_RENEW_GOLDEN"):
        file.write_text(yaml.safe_dump_all(made, sort_keys=False))
    assert made == list(yaml.safe_load_all(file.read_text())), "TRAINLET_RENEW_GOLDEN=1 renews it; read the difference"


@pytest.mark.skipif(not KUSTOMIZE, reason="TRAINLET_TEST_KUSTOMIZE names no kustomize program")
@pytest.mark.parametrize("folder", FOLDERS)
def test_kustomize_makes_the_same_of_the_same_files(folder: str) -> None:
    done = subprocess.run(
        [str(KUSTOMIZE), "build", str(installs.FOLDER / folder)], capture_output=True, text=True, timeout=60, check=True
    )
    assert ordered(list(yaml.safe_load_all(done.stdout))) == ordered(render(installs.FOLDER / folder))


@pytest.mark.skipif(not KUSTOMIZE, reason="TRAINLET_TEST_KUSTOMIZE names no kustomize program")
def test_changes_are_what_an_overlay_would_make(tmp_path: Path) -> None:
    folder = tmp_path / "manifests"
    subprocess.run(["cp", "-r", str(installs.FOLDER), str(folder)], check=True)
    mine = folder / "overlays" / "mine"
    mine.mkdir()
    overlay = {"resources": ["../../project", "../production"], "images": [{"name": "trainlet-api", "newName": "r/api",
               "newTag": "2"}]}  # fmt: skip
    (mine / "kustomization.yaml").write_text(yaml.safe_dump(overlay))
    other = folder / "overlays" / "vision"
    other.mkdir()
    (other / "kustomization.yaml").write_text("resources: [../../project]\nnamespace: trainlet-vision\n")
    for place, changes in ((mine, Changes(images={"trainlet-api": "r/api:2"})), (other, None)):
        command = [str(KUSTOMIZE), "build", str(place)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
        assert ordered(list(yaml.safe_load_all(done.stdout))) == ordered(render(place, changes))
    assert ordered(render(folder / "project", Changes(namespace="trainlet-vision"))) == ordered(render(other))


def ordered(value: Any) -> Any:
    """Sort what has no order: objects, and the named elements of a list."""
    if isinstance(value, dict):
        return {key: ordered(each) for key, each in value.items()}
    if isinstance(value, list):
        return sorted((ordered(each) for each in value), key=lambda each: yaml.safe_dump(each))
    return value


def test_the_packaged_settings_are_right_but_for_what_only_an_admin_knows(settings: Path) -> None:
    cluster = Cluster.load(settings)
    assert cluster.gpus.placement("A100-80GB").node_selector == {"trainlet.dev/gpu-sku": "A100-80GB"}
    assert cluster.namespace_of("default") == one(render(installs.FOLDER / "project"), "Namespace", "trainlet-default")[
        "metadata"]["name"]  # fmt: skip


def test_the_packaged_prices_are_those_of_the_api() -> None:
    assert (installs.FOLDER / "base" / "prices.yaml").read_text() == pricefiles.PACKAGED.read_text()


def test_settings_and_prices_are_in_the_config_map_as_they_were_written(settings: Path, tmp_path: Path) -> None:
    settings.write_text(settings.read_text().replace("gpus: gpus.yaml", "gpus: devices.yaml"))
    (tmp_path / "devices.yaml").write_text("gpus: {H100: }\n")
    made = installs.objects(settings, [], image="api:1", prices="version: mine\n")
    data = one(made, "ConfigMap", "trainlet-config")["data"]
    assert data["cluster.yaml"] == settings.read_text()
    assert data["devices.yaml"] == "gpus: {H100: }\n"
    assert data["prices.yaml"] == "version: mine\n"


def test_a_project_gets_a_namespace_a_role_and_a_broker(settings: Path) -> None:
    made = installs.objects(settings, ["vision", "speech"], image="api:1")
    spaces = {each["metadata"]["name"] for each in made if each["kind"] == "Namespace"}
    assert spaces == {"trainlet", "trainlet-vision", "trainlet-speech"}
    bound = [each for each in made if each["kind"] == "RoleBinding"]
    assert {each["metadata"]["namespace"] for each in bound} == {"trainlet-vision", "trainlet-speech"}
    assert {each["subjects"][0]["namespace"] for each in bound} == {"trainlet"}
    settings.write_text(settings.read_text().replace("broker: default", "broker: kafka"))
    kinds = {each["kind"] for each in installs.objects(settings, ["vision"], image="api:1")}
    assert "Broker" not in kinds, "one of another name is the admin's own"


def test_each_namespace_of_kubeflow_gets_the_pod_default_that_mounts_a_token(settings: Path) -> None:
    with pytest.raises(UserError, match=r"cluster\.yaml has no kubeflow_namespaces. Add"):
        installs.objects(settings, [], image="api:1", pod_defaults=True)
    settings.write_text(settings.read_text() + "kubeflow_namespaces: {team-a: vision, team-b: speech}\n")
    made = installs.objects(settings, [], image="api:1", pod_defaults=True)
    found = {each["metadata"]["namespace"]: each["spec"] for each in made if each["kind"] == "PodDefault"}
    assert set(found) == {"team-a", "team-b"}
    spec = found["team-a"]
    assert spec["selector"]["matchLabels"] == {identities.POD_TOKEN_LABEL: "true"}
    assert spec["env"] == [{"name": "TRAINLET_TOKEN_FILE", "value": identities.TOKEN_FILE}]
    assert spec["volumes"][0]["projected"] == identities.token_volume()["projected"], "as for workers"
    assert spec["volumeMounts"][0]["mountPath"] == identities.TOKEN_FOLDER
    assert not [each for each in installs.objects(settings, [], image="api:1") if each["kind"] == "PodDefault"]


def test_no_rights_in_the_cluster_but_the_review_of_tokens(settings: Path) -> None:
    made = installs.objects(settings, ["vision"], image="api:1")
    rules = [rule for each in made if each["kind"] == "ClusterRole" for rule in each["rules"]]
    assert rules == [{"apiGroups": ["authentication.k8s.io"], "resources": ["tokenreviews"], "verbs": ["create"]}]
    (role,) = (each for each in made if each["kind"] == "Role")
    words = {word for rule in role["rules"] for key in ("apiGroups", "resources", "verbs") for word in rule[key]}
    assert not words & {"*", "secrets", "impersonate", "escalate", "bind", "deletecollection"}


def test_with_oidc_the_api_may_show_who_it_is_and_only_it_may_send_to_the_broker(settings: Path) -> None:
    settings.write_text(settings.read_text().replace("broker: default", "broker: kafka") + "oidc: true\n")
    made = installs.objects(settings, ["vision"], image="api:1")
    role = one(made, "Role", "trainlet-api-own-tokens")
    assert role["metadata"]["namespace"] == "trainlet"
    assert role["rules"] == [
        {
            "apiGroups": [""],
            "resources": ["serviceaccounts/token"],
            "resourceNames": ["trainlet-api"],
            "verbs": ["create"],
        }
    ]
    policy = one(made, "EventPolicy")
    assert policy["metadata"]["namespace"] == "trainlet-vision"
    assert policy["spec"]["to"][0]["ref"]["name"] == "kafka"
    assert policy["spec"]["from"] == [{"sub": "system:serviceaccount:trainlet:trainlet-api"}]


def test_the_objects_hold_no_secret(settings: Path) -> None:
    made = installs.objects(settings, ["vision"], image="api:1")
    assert "Secret" not in {each["kind"] for each in made}
    (container,) = one(made, "Deployment")["spec"]["template"]["spec"]["containers"]
    named = {each["name"]: each["valueFrom"]["secretKeyRef"]["key"] for each in container["env"] if "valueFrom" in each}
    assert named == {"TRAINLET_DATABASE_URL": "database-url", "TRAINLET_BOOTSTRAP_TOKEN": "bootstrap-token"}


def test_an_overlay_that_is_not_there_is_an_error(settings: Path) -> None:
    with pytest.raises(UserError, match="Did you mean 'trial'"):
        installs.objects(settings, [], image="api:1", overlay="trail")


def test_a_field_that_is_not_rendered_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "kustomization.yaml").write_text("resources: []\nnamePrefix: my-\n")
    with pytest.raises(PlatformError, match="namePrefix"):
        render(tmp_path)


def test_a_patch_merges_names_and_removes_nulls() -> None:
    target = {"a": {"x": 1, "y": 2}, "env": [{"name": "A", "value": "1"}], "args": [1, 2]}
    kustomizations.merge(target, {"a": {"x": None}, "env": [{"name": "A", "value": "2"}, {"name": "B"}], "args": [3]})
    assert target == {"a": {"y": 2}, "env": [{"name": "A", "value": "2"}, {"name": "B"}], "args": [3]}
