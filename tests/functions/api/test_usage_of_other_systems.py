"""`/v1/events` takes usage that others metered, in the envelope of our own workers; each event counts once."""

from __future__ import annotations

import time
from typing import Any

import pytest

from trainlet.core.wire import Device, LeaseEvent

BATCH = "application/cloudevents-batch+json"


@pytest.fixture
def admin(stand: Any, http: Any, person: Any) -> Any:
    return type(person)(http, stand.token("admin"))


def events(*held_s: int, **changes: Any) -> list[dict[str, Any]]:
    begin_ns = (int(time.time()) - 10_000) * 10**9
    made = []
    for seq, seconds in enumerate(held_s):
        named = {"task": "job-7", "epoch": 1, "run_id": "job-7", "function": "slurm", "lease": "slurm-7"}
        usage = LeaseEvent.model_validate(
            {
                "id": f"slurm-7:{seq}",
                "seq": seq,
                "kind": "close" if seconds == max(held_s) else "heartbeat",
                "device": Device(uuid="GPU-x", sku="A100-80GB"),
                "anchor_ns": begin_ns,
                "elapsed_ns": seconds * 10**9,
                **named,
            }
        ).model_dump(mode="json")
        head = {"specversion": "1.0", "type": "dev.trainlet.lease.reading", "source": "urn:slurm:c1", "id": usage["id"]}
        made.append({**head, "data": {**usage, **changes}})
    return made


def post(caller: Any, batch: list[dict[str, Any]]) -> Any:
    return caller("POST", "/v1/events", batch, Content_Type=BATCH)


def test_usage_of_another_system_is_billed_once_in_any_order(admin: Any, person: Any) -> None:
    batch = events(10, 60, 300)
    assert post(admin, batch[1:]).status_code in (202, 204)
    assert post(admin, [*batch, *batch[::-1]]).status_code in (202, 204)
    report = person("GET", "/v1/usage?run=job-7").json
    assert (report["gpu_seconds"], report["unpriced_skus"]) == (300, [])
    totals = person("GET", "/v1/usage/totals?run=job-7&group_by=step,sku").json["items"]
    assert sum(one["parts"] for one in totals) == 300 * 5040
    assert {one["group"]["step"] for one in totals} == {"slurm"}


def test_usage_that_is_none_is_refused_whole_and_in_words(admin: Any, person: Any) -> None:
    batch = [*events(10, 60), *[{**one, "id": "bad"} for one in events(70, elapsed_ns=-1)]]
    answer = post(admin, batch)
    assert answer.status_code == 422 and "elapsed_ns" in answer.json["detail"]
    assert person("GET", "/v1/usage?run=job-7").json["gpu_seconds"] == 0


def test_only_an_admin_brings_usage_in(person: Any) -> None:
    assert post(person, events(10)).status_code == 403
