"""How a task's metrics went is kept: each value that is new, thinned evenly when they are many, and never without end."""

from __future__ import annotations

from typing import Any

import pytest
import sqlalchemy as sa
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from trainlet.core.errors import NotFoundError
from trainlet_functions.state import metrics, schema

from .conftest import PROJECT, World


def history(world: World, key: str = "run.step") -> dict[str, list[tuple[float, float]]]:
    with world.database.read() as tx:
        return metrics.history(tx, PROJECT, key).metrics


def told(world: World, values: dict[str, float], after_s: float = 2.0) -> None:
    world.clock.advance(after_s)
    world.beat("run.step", metrics=values)


def test_each_new_value_is_a_point_at_its_time(world: World) -> None:
    world.running("run.step")
    told(world, {"loss": 2.0, "lr": 0.1})
    told(world, {"loss": 1.0, "lr": 0.1})
    world.clock.advance(1.5)
    world.finish("run.step", metrics={"loss": 0.5})
    assert history(world) == {"loss": [(2.0, 2.0), (4.0, 1.0), (5.5, 0.5)], "lr": [(2.0, 0.1)]}


def test_T5_a_heartbeat_that_is_sent_again_makes_no_new_point(world: World) -> None:
    world.running("run.step")
    for _ in range(3):
        told(world, {"loss": 2.0})
    assert history(world) == {"loss": [(2.0, 2.0)]}


def test_values_of_a_later_attempt_follow_those_of_the_first(world: World) -> None:
    world.running("run.step")
    told(world, {"loss": 2.0})
    world.finish("run.step", outcome="preempted", metrics={"loss": 1.0})
    world.claim("run.step", 2)
    world.clock.advance(1.0)
    world.beat("run.step", 2, metrics={"loss": 1.5})
    assert [value for _, value in history(world)["loss"]] == [2.0, 1.0, 1.5]


def test_only_so_many_metrics_of_a_task_have_a_history(world: World) -> None:
    world.running("run.step")
    told(world, {f"metric-{n:03}": float(n) for n in range(metrics.MOST_METRICS + 10)})
    assert len(history(world)) == metrics.MOST_METRICS


def test_S2_another_projects_history_is_not_found(world: World) -> None:
    world.running("run.step")
    with pytest.raises(NotFoundError), world.database.read() as tx:
        metrics.history(tx, "other", "run.step")


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(count=st.integers(1, 100))
def test_however_many_values_come_there_are_few_points_and_the_ends_are_among_them(count: int, world: World) -> None:
    """The bound is lowered, so that the thinning happens several times in a hundred values."""
    key = f"run.{count}"
    with pytest.MonkeyPatch.context() as patch, world.database.write() as tx:
        patch.setattr(metrics, "MOST_POINTS", 8)
        if tx.one(sa.select(schema.series).where(schema.series.c.task == key)) is None:
            for number in range(count):
                metrics.note(tx, key, {"loss": float(number)})
        rows = tx.all(sa.select(schema.points.c.number).where(schema.points.c.task == key).order_by("number"))
        row: Any = tx.one(sa.select(schema.series).where(schema.series.c.task == key))
    numbers = [one.number for one in rows]
    assert numbers == list(range(0, count, row.stride)), "evenly spread, from the first on"
    assert len(numbers) <= 8 and (count <= 8 or len(numbers) > 3)
    assert (row.seen, row.last) == (count - 1, float(count - 1))


def test_the_newest_value_is_shown_also_between_two_points(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metrics, "MOST_POINTS", 4)
    world.running("run.step")
    for number in range(10):
        told(world, {"loss": float(number)})
    shown = [value for _, value in history(world)["loss"]]
    assert shown[0] == 0.0 and shown[-1] == 9.0 and len(shown) <= 5
