"""CloudEvents and allocations say what the charges say, to the nano, however often they are sent."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainlet.core.bills import Period, Row
from trainlet.core.errors import PlatformError, UserError
from trainlet_functions.exports import allocations, cloudevents

JULY = Period(2026, 7)


def test_I14_events_sum_to_the_charges_and_have_the_same_ids_each_time(rows: list[Row]) -> None:
    found = list(cloudevents.events(rows, "/c1"))
    assert sum(int(event["data"]["cost_nano"]) for event in found) == sum(row.cost_nano or 0 for row in rows)
    assert sum(int(event["data"]["seconds"]) for event in found) == sum(row.seconds for row in rows)
    ids = [event["id"] for event in found]
    assert len(set(ids)) == len(ids)
    assert [event["id"] for event in cloudevents.events(rows, "/c1")] == ids
    assert {event["type"] for event in found} == set(cloudevents._TYPES.values())


def test_an_event_is_what_a_meter_takes(make: Any) -> None:
    first = next(cloudevents.events([make(0, share=1680, cost_nano=1_200_000_000, tags={"team": "a"})], "/c1"))
    assert {name: first[name] for name in ("specversion", "source", "subject", "time")} == {
        "specversion": "1.0",
        "source": "/c1",
        "subject": "vision",
        "time": "2026-07-01T00:00:00Z",
    }
    data = first["data"]
    assert (data["seconds"], data["gpu_seconds"], data["gpus"]) == ("60", "20", "0.333333333")
    assert (data["cost_nano"], data["share"], data["tag_team"]) == ("20000000", "1680/5040", "a")
    assert all(isinstance(value, str) for value in data.values())


@given(st.integers(0, 3599), st.integers(1, 3600), st.integers(-(10**15), 10**15))
def test_I14_any_cut_at_minutes_loses_nothing(at: int, length: int, cost: int) -> None:
    start = JULY.start_s + at
    known = {"id": "a", "project": "p", "period": "2026-07", "kind": "usage", "currency": "USD", "list_cost_nano": cost}
    row = Row(**known, start_s=start, end_s=start + length, cost_nano=cost)
    pieces = [event["data"] for event in cloudevents.events([row], "/c1")]
    assert sum(int(piece["cost_nano"]) for piece in pieces) == cost
    assert sum(int(piece["seconds"]) for piece in pieces) == length


def test_a_sink_that_fails_for_a_while_gets_every_event_once_or_again(
    make: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cloudevents.time, "sleep", lambda seconds: None)
    answers, taken = iter([0, 503, 204, 429, 204, 200] + [202] * 50), {}

    def post(body: bytes, media: str) -> int:
        status = next(answers)
        assert media == "application/cloudevents-batch+json"
        if status in (200, 202, 204):
            taken.update({event["id"]: event for event in json.loads(body)})
        return status

    sent = cloudevents.send(cloudevents.events([make(n) for n in range(4)], "/c1"), post)
    assert sent == len(taken) == 240


def test_a_sink_that_refuses_or_stays_away_is_told_in_words(make: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cloudevents.time, "sleep", lambda seconds: None)
    with pytest.raises(UserError, match="HTTP 401 after 0 events"):
        cloudevents.send(cloudevents.events([make(0)], "/c1"), lambda body, media: 401)
    with pytest.raises(PlatformError, match="does not answer"):
        cloudevents.send(cloudevents.events([make(0)], "/c1"), lambda body, media: 0)


@pytest.mark.parametrize("by", ["project", "run", "sku"])
def test_allocations_are_exact_beside_their_pictures(rows: list[Row], by: Any) -> None:
    found = allocations.allocations(rows, by)
    every = [one for day in found["data"] for one in day.values()]
    metered = [row for row in rows if row.kind != "rounding"]
    assert sum(one["x_CostNano"] for one in every) == sum(row.cost_nano or 0 for row in metered)
    assert sum(one["x_DeviceSeconds"] for one in every) == sum(row.seconds for row in metered)
    for one in every:
        assert Decimal(one["x_CostNano"]).scaleb(-9) == pytest.approx(Decimal(str(one["gpuCost"])))
        assert one["window"]["start"] <= one["start"] < one["end"] <= one["window"]["end"]
