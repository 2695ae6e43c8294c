"""A cluster's YAML file: what is right is read, what is wrong is refused with the place."""

from __future__ import annotations

from pathlib import Path

import pytest

from trainlet.core.errors import UserError
from trainlet_knative.clusters import Cluster

GOOD = """
image: registry.example/worker:1
api_url: http://trainlet-api.trainlet:8080
store_url: s3://trainlet
dead_letter_url: http://trainlet-api.trainlet:8080/v1/dead-letters
"""


def load(folder: Path, text: str) -> Cluster:
    path = folder / "cluster.yaml"
    path.write_text(text)
    return Cluster.load(path)


def test_a_file_with_what_is_needed_is_enough(tmp_path: Path) -> None:
    found = load(tmp_path, GOOD)
    assert (found.image, found.namespace_of("vision")) == ("registry.example/worker:1", "trainlet-vision")


def test_the_gpu_catalogue_is_inside_or_in_a_file_beside(tmp_path: Path) -> None:
    (tmp_path / "gpus.yaml").write_text("gpus: {H100: {runtime_class: nvidia}}")
    beside = load(tmp_path, GOOD + "gpus: gpus.yaml")
    inside = load(tmp_path, GOOD + "gpus: {gpus: {H100: {runtime_class: nvidia}}}")
    assert beside == inside
    assert beside.gpus.placement("H100-80GB").runtime_class == "nvidia"


def test_a_wrong_catalogue_is_named_by_its_own_file(tmp_path: Path) -> None:
    (tmp_path / "gpus.yaml").write_text("gpus: {H10: }")
    with pytest.raises(UserError, match=r"gpus\.yaml: gpus.*Did you mean"):
        load(tmp_path, GOOD + "gpus: gpus.yaml")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("image: x", "api_url is missing"),
        (GOOD + "drain: 60", "drain is no setting. Did you mean 'drain_s'"),
        (GOOD + "drain_s: 10", "drain_s=10: Input should be greater than or equal to 60"),
        (GOOD + "namespace: Trainlet", "namespace='Trainlet': write a DNS label"),
        (GOOD + "namespace: '{projekt}'", "write a DNS label"),
        (GOOD + "namespace: trainlet", "two projects would overwrite each other's functions"),
        (GOOD + "api_url: trainlet-api", "api_url='trainlet-api'"),
        (GOOD + "node_cidrs: [10.0.0]", "'10.0.0' does not appear"),
        (GOOD + "shared_memory: 8 GB", "shared_memory='8 GB'"),
        (GOOD + "run_as_user: 0", "run_as_user=0"),
        (GOOD + "gpus: nowhere.yaml", r"nowhere\.yaml cannot be read"),
        (GOOD + "kubeflow_namespaces: {Team: p}", r"kubeflow_namespaces.Team"),
        (GOOD + "kubeflow_namespaces: {team: Vision}", r"kubeflow_namespaces.team='Vision'"),
        (GOOD + "kubeflow_namespaces: {trainlet-a: p}", "trainlet-a is a namespace of steps"),
        (GOOD + f"kubeflow_namespaces: {{team: {'p' * 60}}}", "which is no DNS label"),
        (GOOD + "package_cache: Packages", "package_cache='Packages'"),
        ("", "holds no settings"),
    ],
)
def test_a_wrong_file_is_refused_with_the_place(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(UserError, match=said) as error:
        load(tmp_path, text)
    assert str(tmp_path) in str(error.value)


def test_all_that_is_wrong_is_said_at_once(tmp_path: Path) -> None:
    with pytest.raises(UserError) as error:
        load(tmp_path, GOOD + "drain_s: 10\nwarm_s: -1")
    assert len(str(error.value).splitlines()) == 2
