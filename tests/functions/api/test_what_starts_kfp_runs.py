"""A trigger whose runs KFP does: registered only where the project has KFP, and told to the driver whole."""

from __future__ import annotations

from typing import Any

import pytest

from trainlet.core.errors import AccessError
from trainlet.core.specs import FunctionSpec
from trainlet_functions.triggers.engine import Engine

KUBEFLOW = {"pipeline": "digits", "version": "v3", "experiment": "nightly", "service_account": "trainer"}


@pytest.fixture
def body(function: FunctionSpec) -> dict[str, Any]:
    node = {"id": "f", "function": "f", "digest": function.digest(), "inputs": {}}
    graph = {"name": "retrain", "parameters": {"epochs": 5}, "required": ["data"], "nodes": [node]}
    return {
        "program": {"pipeline": "retrain", "graph": graph},
        "filters": [{"exact": {"type": "com.example.created"}}],
        "params": {"data": {"path": "$.data"}},
        "kubeflow": KUBEFLOW,
    }


def refuse(project: str) -> str:
    raise AccessError(f"Project {project!r} has no namespace of Kubeflow Pipelines.")


def test_it_is_registered_only_where_the_project_has_kfp(
    stand: Any, person: Any, body: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stand, "kubeflow_namespace", refuse)
    refused = person("PUT", "/v1/subscriptions/retrain", body)
    assert refused.status_code == 403 and "no namespace of Kubeflow" in refused.json["detail"]
    assert person("GET", "/v1/subscriptions").json["items"] == []


def test_the_driver_hears_where_and_how_and_that_it_may_not_any_more(
    stand: Any, person: Any, body: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stand, "kubeflow_namespace", lambda project: f"team-{project}")
    assert person("PUT", "/v1/subscriptions/retrain", body).status_code == 200
    event = {"specversion": "1.0", "type": "com.example.created", "source": "/s", "id": "1", "data": "s3://b/1"}
    assert person("POST", "/v1/events", event).status_code == 202
    engine = Engine(stand.database, stand.matcher)
    while engine.work():
        pass
    (item,) = person("GET", "/v1/firings").json["items"]
    assert item["kubeflow"] == {**KUBEFLOW, "parameters": ["data"], "namespace": "team-p", "refused": ""}
    monkeypatch.setattr(stand, "kubeflow_namespace", refuse)
    (item,) = person("GET", "/v1/firings").json["items"]
    assert item["kubeflow"]["namespace"] is None and "no namespace" in item["kubeflow"]["refused"]
