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

from trainlet.core.wire import Device, LeaseEvent
from trainlet_functions.api import gauges
from trainlet_functions.metering.tables import device_use, leases
from trainlet_functions.state import ledger, schema

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


def use(stand: Any, held_s: int, project: str = "p", **fields: Any) -> None:
    """Let the attempt of a task have used a device, open until now."""
    with stand.database.write() as tx:
        named = {"task": "r.f", "epoch": 1, "run_id": "r", "function": "f", "seq": 1, "kind": "heartbeat"}
        when = {"anchor_ns": tx.now_ns - held_s * 10**9, "elapsed_ns": held_s * 10**9}
        lease = fields.pop("lease", "r.f.1.0")
        device = Device(uuid=f"GPU-{lease}", sku=fields.pop("sku", "A100-80GB"))
        event = {"id": f"{lease}:1", "lease": lease, "device": device, **named, **when, **fields}
        ledger.take(tx, project, [LeaseEvent.model_validate(event)])


def test_usage_is_told_by_project_and_sku_with_what_is_held_and_how_fresh_it_is(
    stand: Any, http: Any, worker: Any, task: str, tmp_path: Path
) -> None:
    worker("POST", f"/v1/attempts/{task}/1:claim", {"worker": "w", "nonce": "n"})
    assert value(http, "trainlet_ledger_lag_seconds") == 0
    use(stand, 100)
    of = {"project": "p", "sku": "A100-80GB"}
    assert value(http, "trainlet_gpu_seconds", **of) == 100
    assert (value(http, "trainlet_cost", **of, currency="USD") or 0) > 0
    assert value(http, "trainlet_gpus_held", **of) == 1
    assert value(http, "trainlet_gpus", sku="any", held="false") == 4
    assert value(http, "trainlet_overdue_leases") == 0
    with stand.database.write() as tx:
        tx.run(leases.update().values(touched_ns=tx.now_ns - 50 * 10**9))
    assert 50 <= (value(http, "trainlet_ledger_lag_seconds") or 0) < 100
    assert value(http, "trainlet_overdue_leases") == 1, "its worker, wherever it is, spools it meanwhile"
    assert value(http, "trainlet_spooled_leases") == 0
    (tmp_path / "workers" / "w").mkdir(parents=True)
    (tmp_path / "workers" / "w" / "usage.json").write_text("[]")
    assert value(http, "trainlet_spooled_leases") == 0


def test_usage_events_that_were_refused_are_counted_by_reason(stand: Any, http: Any, task: str) -> None:
    use(stand, 100)
    use(stand, 100, sku="T4")
    reason = "the same id came with another payload"
    assert value(http, "trainlet_usage_refused", reason=reason) == 1


def test_many_projects_do_not_make_many_series(
    stand: Any, http: Any, task: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gauges, "MOST_SERIES", 2)
    for number in range(5):
        use(stand, 10 + number, project=f"p{number}", lease=f"l{number}")
    found = {labels: amount for (name, labels), amount in samples(http).items() if name == "trainlet_gpu_seconds"}
    assert {dict(labels)["project"]: amount for labels, amount in found.items()} == {"p4": 14, "p3": 13, "other": 33}


def test_alerts_and_dashboard_ask_for_what_there_is(stand: Any, http: Any, worker: Any, task: str) -> None:
    stand.backend.failed_applies = 0
    with stand.database.write() as tx:
        tx.insert(schema.workers, project="p", id="w", function="f", busy=False, silent=False, seen_ns=tx.now_ns)
        row = dict(tx.all(schema.tasks.select())[0]._mapping)
        tx.insert(schema.tasks, **{**row, "key": "r.waits", "state": "queued"})
        tx.insert(schema.tasks, **{**row, "key": "r.announced"})
        tx.insert(device_use, project="p", sku="L4", known_ms=2000, used_ms=1000, energy_mj=5)
    worker("POST", f"/v1/attempts/{task}/1:claim", {"worker": "w", "nonce": "n"})
    use(stand, 5)
    use(stand, 5, sku="T4")
    served = {name for name, _ in samples(http)}
    dashboard = json.loads((MONITORING / "dashboard.json").read_text())
    rules = yaml.safe_load((MONITORING / "alerts.yaml").read_text())["spec"]["groups"][0]["rules"]
    asked = [rule["expr"] for rule in rules]
    asked += [target["expr"] for panel in dashboard["panels"] for target in panel["targets"]]
    named = {name for text in asked for name in re.findall(r"\btrainlet_\w+", text)}
    assert named <= served
    assert {name for name in served if not name.startswith("trainlet_http_seconds")} <= named


def test_how_busy_devices_are_comes_with_the_attempts_token_and_is_told_by_project_and_sku(
    stand: Any, http: Any, worker: Any, task: str
) -> None:
    claim = worker("POST", f"/v1/attempts/{task}/1:claim", {"worker": "w", "nonce": "n"}).json
    lease, begin_ns = f"{task}.1.x", claim["wall_anchor_ns"]
    use(stand, 100, lease=f"{lease}.0", task=task)
    use(stand, 100, lease="other.f.1.0", project="p")
    hour = begin_ns // 10**9 // 3600
    times = {"sampled_ms": 90_000, "known_ms": 80_000, "used_ms": 20_000, "energy_mj": 5000}
    given = [{"lease": name, "hour": hour, **times} for name in (f"{lease}.0", "other.f.1.0")]
    beat = {"worker": "w", "samples": given}
    path = f"/v1/attempts/{task}/1:heartbeat"
    assert worker("POST", path, beat).status_code == 403
    named = {"Authorization": f"Bearer {claim['token']}"}
    for _ in range(2):
        assert http.post(path, json=beat, headers=named).status_code == 200
    of = {"project": "p", "sku": "A100-80GB"}
    assert value(http, "trainlet_gpu_sampled_seconds", **of) == 80, "a repeated one counts once, another's not at all"
    assert value(http, "trainlet_gpu_used_seconds", **of) == 20
    assert value(http, "trainlet_gpu_utilization", **of) == 0.25
    assert value(http, "trainlet_gpu_energy_joules", **of) == 5
    wrong = {"worker": "w", "samples": [{**given[0], "used_ms": 90_000}]}
    told = http.post(path, json=wrong, headers=named)
    assert told.status_code == 422 and "used_ms" in told.text
