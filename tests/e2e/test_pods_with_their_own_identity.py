"""Pods of a compiled pipeline that prove who they are by a token of their own, in a Kubeflow with several profiles."""

from __future__ import annotations

import secrets
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from imitation.clusters import ImitationCluster

from trainlet.client.http import Client
from trainlet.core import wire
from trainlet.core.errors import AccessError
from trainlet_knative import installs
from trainlet_knative.objects import identities

sys.path.insert(0, str(Path(__file__).parents[1] / "kubeflow"))
from kfp_launcher import Launcher, TaskFailed

pytestmark = [pytest.mark.timeout(400), pytest.mark.xdist_group("children")]


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[ImitationCluster]:
    """A cluster whose settings give the profile `team-a` the project `default`."""
    made = ImitationCluster(tmp_path, kubeflow_namespaces={"team-a": "default"})
    yield made
    made.close()


@pytest.fixture
def launcher(
    cluster: ImitationCluster, faulty: Any, isolated_environment: None, tmp_path: Path, monkeypatch: Any
) -> Any:
    """Compile a pipeline for pods that bring their own token, and return its run in a profile."""
    monkeypatch.setenv("TRAINLET_API", cluster.url)
    monkeypatch.setenv("TRAINLET_TOKEN", cluster.token)
    path = faulty.long.compile(tmp_path / "long.yaml", {"api": cluster.url, "pod_token": True}, register=True)

    def in_profile(namespace: str, token: str) -> Launcher:
        run = Launcher(path, tmp_path / namespace)
        labels = [one["podMetadata"]["labels"] for one in run.platform.values()]
        assert labels == [{identities.POD_TOKEN_LABEL: "true"}] * len(labels)
        (file := tmp_path / f"{namespace}-token").write_text(token)
        run.environment = {**_pod_default(file), "TRAINLET_HOME": str(tmp_path / "pod")}
        return run

    return in_profile


def _pod_default(mounted: Path) -> dict[str, str]:
    """Return what the webhook of Kubeflow would set in a pod, with the place where the token really is."""
    found = yaml.safe_load((installs.FOLDER / "kubeflow" / "pod-default.yaml").read_text())["spec"]
    assert found["volumeMounts"][0]["mountPath"] == identities.TOKEN_FOLDER
    return {one["name"]: one["value"].replace(identities.TOKEN_FILE, str(mounted)) for one in found["env"]}


def test_a_dispatch_pod_works_for_the_project_of_its_profile(cluster: ImitationCluster, launcher: Any) -> None:
    run = launcher("team-a", cluster.kubernetes.token("team-a", "default-editor", "count-pod"))
    assert "secretAsEnv" not in str(run.platform), "no Secret with a token"
    run.run(steps=2, pace=0.0)
    view = Client(cluster.url, cluster.token).get_run(f"kfp-{run.run_id}")
    assert (view.project, view.state) == ("default", "succeeded")


def test_S2_a_profile_without_a_project_is_told_what_an_admin_adds(cluster: ImitationCluster, launcher: Any) -> None:
    run = launcher("team-b", cluster.kubernetes.token("team-b", "default-editor", "count-pod"))
    with pytest.raises(TaskFailed) as error:
        run.run(steps=2, pace=0.0)
    assert "`kubeflow_namespaces: {team-b: PROJECT}` to cluster.yaml" in str(error.value)
    assert run.pods[-1].code == 1


def test_S2_a_pod_of_kubeflow_is_a_client_and_nothing_more(cluster: ImitationCluster, tmp_path: Path) -> None:
    mounted = tmp_path / "token"
    mounted.write_text(cluster.kubernetes.token("team-a", "default-editor", f"pod-{secrets.token_hex(3)}"))
    client = Client(cluster.url, mounted)
    assert client.list_runs() == []
    with pytest.raises(AccessError, match="lacks the scope 'admin'"):
        client.apply_prices(wire.PriceFile(text="version: mine\n"))
    mounted.write_text(cluster.kubernetes.token("team-a", "default-editor", "pod", audience="pipelines.kubeflow.org"))
    with pytest.raises(AccessError, match="does not accept"):
        client.list_runs()
    client.close()
