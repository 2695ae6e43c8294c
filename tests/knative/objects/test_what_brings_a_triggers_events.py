"""A subscription is a Trigger that asks what the API asks; a schedule is a PingSource where both clocks agree."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainlet.core import envelopes, events
from trainlet.core.errors import UserError
from trainlet.core.triggers import Watch
from trainlet_functions.triggers import filters, moments
from trainlet_knative.clusters import Cluster
from trainlet_knative.objects import trigger_objects
from trainlet_knative.objects.crons import translate

START = datetime(2027, 1, 1, tzinfo=UTC)


def made(cluster: Cluster, watch: Watch, **settings: Any) -> list[dict[str, Any]]:
    return trigger_objects(cluster.model_copy(update=settings), "default", watch)


def test_without_an_admins_word_brokers_bring_nothing(cluster: Cluster) -> None:
    for watch in (Watch(name="a", filters=[{"exact": {"type": "t"}}]), Watch(name="b", when="@daily")):
        assert made(cluster, watch) == []
        assert len(made(cluster, watch, open_events=True)) == 1


def test_the_trigger_of_a_subscription_has_another_name_than_any_functions(cluster: Cluster) -> None:
    (one,) = made(cluster, Watch(name="train", filters=[{"exact": {"type": "t"}}]), open_events=True)
    assert one["metadata"]["name"] == "on.train"


@pytest.mark.parametrize(
    ("kind", "asked"), [({"prefix": {"source": "/"}}, True), ({"exact": {"type": "com.example.created"}}, False)]
)
def test_wake_ups_of_workers_stay_out_of_a_filter_that_leaves_the_type_open(
    cluster: Cluster, kind: dict[str, Any], asked: bool
) -> None:
    (one,) = made(cluster, Watch(name="a", filters=[kind]), open_events=True)
    wake_up = events.make(envelopes.WAKE_UP, "/projects/default", "1")
    assert not filters.compile(one["spec"]["filters"]).matches(wake_up)
    assert (len(one["spec"]["filters"]) == 2) is asked


@pytest.mark.parametrize(
    ("when", "spoken"),
    [
        ("0 3 * * *", "0 3 * * *"),
        ("30 6 * * mon-fri", "30 6 * * MON-FRI"),
        ("0 0 * * 7", "0 0 * * 0"),
        ("0 0 * * 1,7", "0 0 * * 1,0"),
        ("@Daily", "@daily"),
        ("every 1h", "0 * * * *"),
        ("every 20m", "*/20 * * * *"),
        ("every 1d", "0 0 * * *"),
        ("0 3 L * *", None),
        ("0 3 * * 5#2", None),
        ("0 3 * * 1-7", None),
        ("0 0 */2 * 1", None),
        ("0 0 1 * */2", None),
        ("5/10 * * * *", None),
        ("every 90m", None),
        ("every 7h", None),
        ("every 30s", None),
        ("every 2d", None),
    ],
)
def test_a_schedule_is_told_to_knative_only_where_both_mean_the_same(when: str, spoken: str | None) -> None:
    found = translate(when, "UTC")
    assert (found and found[0]) == spoken


def test_the_zone_goes_along_and_an_interval_has_none() -> None:
    assert translate("0 3 * * *", "Europe/Berlin") == ("0 3 * * *", "Europe/Berlin")
    assert translate("every 6h", "Europe/Berlin") == ("0 */6 * * *", "UTC")


fields = st.one_of(
    st.just("*"),
    st.integers(2, 30).map(lambda n: f"*/{n}"),
    st.lists(st.integers(0, 12).map(str), min_size=1, max_size=3).map(",".join),
    st.tuples(st.integers(1, 5), st.integers(6, 7)).map(lambda pair: f"{pair[0]}-{pair[1]}"),
)


@given(st.one_of(st.lists(fields, min_size=5, max_size=5).map(" ".join), st.integers(1, 3000).map("every {}m".format)))
def test_what_is_told_has_the_same_moments_by_a_clock_that_is_never_moved(when: str) -> None:
    try:
        ours = moments.parse(when)
    except UserError:
        return
    told = translate(when, "UTC")
    if told is None:
        return
    until = START + timedelta(days=800)
    theirs = moments.parse(told[0], tz=told[1])
    assert list(ours.between(START, until, 20)) == list(theirs.between(START, until, 20))
