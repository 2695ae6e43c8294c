"""All objects of some functions and triggers, in files that a person can read.

When they should change, run the tests with `TRAINLET_RENEW_GOLDEN=1` and read the difference.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
import yaml

from trainlet.core.specs import CheckpointPolicy, FunctionSpec, GpuRequest, Resources
from trainlet.core.triggers import Watch
from trainlet_knative.objects import Cluster, all_objects, trigger_objects

GOLDEN = Path(__file__).parents[1] / "golden"
EITHER = Resources(gpus=(GpuRequest(sku="H100-80GB", count=1), GpuRequest(sku="A100-80GB", count=1)))
CASES: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "gpu_step": ({}, {}),
    "cpu_step": ({}, {"resources": Resources(cpu=2), "secrets": ()}),
    "job_step": ({"kueue_queue": "gpus", "oidc": True}, {"backend": "job", "timeout_s": 3600.0}),
    "either_gpu_on_spot": (
        {"store_secret": "store"},
        {"resources": EITHER, "checkpoint": CheckpointPolicy(every_s=600)},
    ),
    "slice": (
        {"node_cidrs": ("10.0.0.0/16",), "package_cache": "packages"},
        {"resources": Resources(gpus=(GpuRequest(sku="A30/1g.6gb", count=1),))},
    ),
    "virtual_gpus": (
        {"virtual_gpus": True, "oidc": True},
        {},
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_a_step_becomes_these_objects(cluster: Cluster, spec: FunctionSpec, name: str) -> None:
    settings, options = CASES[name]
    made = all_objects(cluster.model_copy(update=settings), "default", spec.model_copy(update=options))
    compare(name, made)


WATCHES: dict[str, tuple[dict[str, Any], Watch]] = {
    "subscription": (
        {"open_events": True},
        Watch(
            name="retrain-created",
            filters=[
                {"exact": {"type": "com.amazonaws.s3.objectcreated", "source": "s3://digits-raw"}},
                {"cesql": "subject LIKE 'images/%'"},
            ],
        ),
    ),
    "subscription_to_all": ({"oidc": True}, Watch(name="audit", filters=[{"prefix": {"source": "/projects/"}}])),
    "schedule": ({"open_events": True}, Watch(name="nightly", when="0 3 * * *", tz="Europe/Berlin")),
    "schedule_oidc": ({"oidc": True}, Watch(name="nightly", when="every 6h")),
}


@pytest.mark.parametrize("name", WATCHES)
def test_a_trigger_becomes_these_objects(cluster: Cluster, name: str) -> None:
    settings, watch = WATCHES[name]
    compare(name, trigger_objects(cluster.model_copy(update=settings), "default", watch))


def compare(name: str, made: list[dict[str, Any]]) -> None:
    file = GOLDEN / f"{name}.yaml"
    if os.environ.get("TRAINLET_RENEW_GOLDEN"):
        file.write_text(yaml.safe_dump_all(made, sort_keys=False))
    assert made == list(yaml.safe_load_all(file.read_text())), "TRAINLET_RENEW_GOLDEN=1 renews it; read the difference"
