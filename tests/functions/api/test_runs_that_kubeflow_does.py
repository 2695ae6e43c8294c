"""A triggered run that Kubeflow Pipelines does: what its pods dispatch here has its tags, its budget and its bill."""

from __future__ import annotations

from typing import Any

import pytest
import sqlalchemy as sa

from trainlet_functions.state import schema
from trainlet_functions.triggers import flow, tables

PART = "kfp-1234-abcd"
EVENT = {"specversion": "1.0", "id": "1", "source": "/s", "type": "t", "traceparent": f"00-{'a' * 32}-{'b' * 16}-01"}


@pytest.fixture
def run_id(person: Any, function: Any) -> str:
    """Return a run that an event has started, with a budget of its own."""
    node = {"id": "f", "function": "f", "digest": function.digest(), "inputs": {}}
    body = {
        "program": {"pipeline": "e", "graph": {"name": "e", "required": ["x"], "nodes": [node]}},
        "filters": [{"exact": {"type": "t"}}],
        "params": {"x": {"path": "$.id"}},
        "kubeflow": {"pipeline": "digits"},
        "flow": {"budget": {"nano": 5_000_000_000, "per_s": 86400}},
    }
    assert person("PUT", "/v1/subscriptions/e", body).status_code == 200
    person("POST", "/v1/events", EVENT, Content_Type="application/cloudevents+json")
    (event,) = person("GET", "/v1/events").json["items"]
    return str(event["matches"][0]["run_id"])


def say(person: Any, run_id: str, there: str = "1234-abcd") -> Any:
    return person("PUT", f"/v1/firings/{run_id}/kubeflow-run", {"id": there})


def pod(person: Any, function: Any) -> Any:
    """Do what a dispatch pod does."""
    assert person("PUT", f"/v1/runs/{PART}", {"pipeline": "digits", "labels": {"kfp.run": "1"}}).status_code < 300
    body = {"run_id": PART, "node": "f", "function": "f", "digest": function.digest(), "args": {"x": 1}}
    return person("PUT", f"/v1/tasks/{PART}.f", body)


@pytest.mark.parametrize("first", ["the driver", "the pod", "a pod that makes its task at once"])
def test_the_part_has_tags_budget_and_trace_whoever_is_first(
    person: Any, function: Any, run_id: str, first: str
) -> None:
    if first == "the driver":
        assert say(person, run_id).status_code == 200
    elif first == "the pod":
        assert pod(person, function).status_code == 201
    else:
        body = {"run_id": PART, "node": "f", "function": "f", "digest": function.digest(), "args": {"x": 1}}
        assert person("PUT", f"/v1/tasks/{PART}.f", body).status_code == 201
    for _ in range(2):
        assert say(person, run_id).status_code == 200
        assert pod(person, function).status_code in (200, 201), "pods attach to it all the same"
    part, ours = (person("GET", f"/v1/runs/{one}").json for one in (PART, run_id))
    assert ours["budget_nano"] == part["budget_nano"] == 5_000_000_000
    assert ours["labels"]["trainlet.dev/kubeflow-run"] == PART and part["labels"]["trainlet.dev/run"] == run_id
    assert part["labels"]["trainlet.dev/trigger"] == "e" and part["labels"]["kfp.run"] == "1"
    assert part["labels"]["trainlet.dev/traceparent"] == EVENT["traceparent"]
    assert part["pipeline"] == "digits"


def test_what_the_part_costs_counts_for_the_trigger_and_ends_with_it(stand: Any, person: Any, run_id: str) -> None:
    say(person, run_id)
    with stand.database.write() as tx:
        for one, nano in ((run_id, 1), (PART, 6_000_000_000)):
            use = {"project": "p", "run_id": one, "day": 1, "sku": "any", "parts": 1, "cost_nano": nano}
            tx.insert(schema.spending, **use)
    finished = {"state": "succeeded", "reason": "KFP run"}
    assert person("POST", f"/v1/runs/{run_id}:finish", finished).status_code == 200
    with stand.database.write() as tx:
        flow.settle(tx)
        assert tx.conn.execute(sa.select(tables.firings.c.cost_nano)).scalar_one() == 6_000_000_001
    assert person("GET", f"/v1/runs/{PART}").json["state"] == "succeeded", "a run without tasks does not run for ever"
    person("POST", "/v1/events", {**EVENT, "id": "2"}, Content_Type="application/cloudevents+json")
    assert "the budget is spent (6.00 of 5.00)" in person("GET", "/v1/subscriptions/e").json["reason"]


def test_of_two_that_were_started_the_last_word_holds(person: Any, run_id: str) -> None:
    say(person, run_id, "older")
    assert say(person, run_id).json["labels"]["trainlet.dev/kubeflow-run"] == PART


def test_only_runs_that_kfp_does_have_a_part_and_nobody_elses(
    stand: Any, http: Any, person: Any, function: Any, run_id: str
) -> None:
    person("PUT", "/v1/runs/plain", {"pipeline": "p"})
    refused = say(person, "plain")
    assert refused.status_code == 422 and "Kubeflow Pipelines" in refused.json["detail"]
    other = type(person)(http, stand.token("client", project="q"))
    assert say(other, run_id).status_code == 404
    assert other("PUT", f"/v1/runs/{PART}", {"pipeline": "p"}).status_code < 300
    assert say(person, run_id).status_code == 409
    assert say(person, run_id, "a/b").status_code == 422
