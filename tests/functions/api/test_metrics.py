"""What the platform tells Prometheus about itself, and that alerts and dashboard ask for nothing else."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from flask.testing import FlaskClient
from prometheus_client.parser import text_string_to_metric_families

from trainlet_functions.state import schema

MONITORING = Path(__file__).parents[3] / "knative" / "trainlet_knative" / "manifests" / "monitoring"


def samples(http: FlaskClient) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    """Return every sample by name and labels."""
    text = http.get("/metrics").text
    families = text_string_to_metric_families(text)
    return {(one.name, tuple(sorted(one.labels.items()))): one.value for family in families for one in family.samples}


def value(http: FlaskClient, name: str, **labels: str) -> float | None:
    """Return one sample, or None when there is none."""
    return samples(http).get((name, tuple(sorted(labels.items()))))


def test_a_task_that_no_worker_takes_is_counted_with_its_age(stand: Any, http: Any, task: str) -> None:
    assert value(http, "trainlet_unclaimed_tasks", project="p", function="f") == 1
    with stand.database.write() as tx:
        tx.run(schema.tasks.update().values(updated_ns=tx.now_ns - 90_000_000_000))
        tx.run(schema.outbox.update().values(created_ns=tx.now_ns - 60_000_000_000))
    assert 90 <= (value(http, "trainlet_unclaimed_seconds", project="p", function="f") or 0) < 100
    assert 60 <= (value(http, "trainlet_outbox_lag_seconds") or 0) < 70


def test_a_claimed_task_is_waited_for_no_more(http: Any, worker: Any, task: str) -> None:
    assert worker("POST", f"/v1/attempts/{task}/1:claim", {"worker": "w", "nonce": "n"}).status_code == 200
    assert value(http, "trainlet_unclaimed_tasks", project="p", function="f") is None
    assert value(http, "trainlet_outbox_lag_seconds") == 0
    assert value(http, "trainlet_workers", project="p", function="f", busy="true") == 1


def test_a_lease_that_ran_out_is_counted_until_it_is_given_up(stand: Any, http: Any, worker: Any, task: str) -> None:
    worker("POST", f"/v1/attempts/{task}/1:claim", {"worker": "w", "nonce": "n"})
    assert value(http, "trainlet_stale_leases") == 0
    with stand.database.write() as tx:
        tx.run(schema.attempts.update().values(lease_until_ns=tx.now_ns - 1))
    assert value(http, "trainlet_stale_leases") == 1


def test_dead_letters_are_counted(stand: Any, http: Any, task: str) -> None:
    assert value(http, "trainlet_dead_letters") == 0
    with stand.database.write() as tx:
        tx.run(schema.outbox.update().values(due_ns=None, dead_ns=tx.now_ns))
    assert (value(http, "trainlet_dead_letters") or 0) > 0


@pytest.mark.parametrize("failed", [0, 3])
def test_what_a_backend_could_not_apply_is_counted_where_it_counts(stand: Any, http: Any, failed: int) -> None:
    assert value(http, "trainlet_failed_applies_total") is None
    stand.backend.failed_applies = failed
    assert value(http, "trainlet_failed_applies_total") == failed


def test_requests_are_timed_by_route_and_not_by_what_they_name(http: Any, person: Any, task: str) -> None:
    person("GET", "/v1/tasks/secret-name")
    http.get("/no-such-page/secret-name")
    text = http.get("/metrics").text
    labels = {"method": "GET", "route": "/v1/tasks/<key>", "status": "4xx"}
    assert value(http, "trainlet_http_seconds_count", **labels) == 1
    assert "secret-name" not in text


def test_alerts_and_dashboard_ask_for_what_there_is(stand: Any, http: Any, task: str) -> None:
    stand.backend.failed_applies = 0
    with stand.database.write() as tx:
        tx.insert(schema.workers, project="p", id="w", function="f", busy=False, silent=False, seen_ns=tx.now_ns)
        row = dict(tx.all(schema.tasks.select())[0]._mapping)
        tx.insert(schema.tasks, **{**row, "key": "r.waits", "state": "queued"})
    served = {name for name, _ in samples(http)}
    dashboard = json.loads((MONITORING / "dashboard.json").read_text())
    rules = yaml.safe_load((MONITORING / "alerts.yaml").read_text())["spec"]["groups"][0]["rules"]
    asked = [rule["expr"] for rule in rules]
    asked += [target["expr"] for panel in dashboard["panels"] for target in panel["targets"]]
    named = {name for text in asked for name in re.findall(r"\btrainlet_\w+", text)}
    assert named <= served
    assert {name for name in served if not name.startswith("trainlet_http_seconds")} <= named
