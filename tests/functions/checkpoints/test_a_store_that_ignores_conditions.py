"""A store that tells every writer that it won has one writer only: who that is, is said by claims and the API's epochs."""

from __future__ import annotations

import dataclasses
import json
import random
from typing import Any

import numpy as np
import pytest
from tests.functions.checkpoints import faulty_stores

from trainlet.core.errors import Fenced, PlatformError, UserError
from trainlet.core.specs import CheckpointPolicy, Keep
from trainlet_functions.checkpoints import Checkpointer, conditions, list_checkpoints, listing, verify
from trainlet_functions.checkpoints.receipts import Ranks
from trainlet_functions.checkpoints.savers import Saver

PREFIX = "runs/r.train"


def writer(store: Any, epoch: int | None, said: list[str] | None = None) -> tuple[Checkpointer, np.ndarray[Any, Any]]:
    weights = np.zeros(20)
    heard = said if said is not None else []
    made = Checkpointer(
        store,
        PREFIX,
        epoch,
        policy=CheckpointPolicy(every_s=1e9, keep=Keep(last=2)),
        emit=lambda kind, fields: heard.append(str(fields.get("message", ""))),
    )
    made.register(weights=weights)
    return made, weights


def saved(made: Checkpointer, weights: np.ndarray[Any, Any], step: int) -> None:
    weights[:] = step
    made.save(step)


def test_one_writer_saves_and_restores_and_is_told_what_the_store_does() -> None:
    store, said = faulty_stores.CarelessStore(), list[str]()
    first, weights = writer(store, 1, said)
    for step in (1, 2, 3):
        saved(first, weights, step)
    assert sum("ignores the condition of a PUT" in line for line in said) == 1
    assert json.loads(store.get("store.json"))["create_once"] is False
    second, weights = writer(store, 2)
    start = second.restore()
    assert start is not None and start.step == 3 and set(weights) == {3.0}
    saved(second, weights, 4)
    assert [note.step for note in list_checkpoints(store, PREFIX)] == [4, 3] and verify(store, PREFIX) == []


def test_a_second_script_is_refused_until_the_first_lets_go() -> None:
    store = faulty_stores.CarelessStore()
    first, weights = writer(store, None)
    saved(first, weights, 1)
    second, _ = writer(store, None)
    with pytest.raises(UserError, match=r"is being written by process \d+ on .*one writer.*unlock r.train"):
        second.restore()
    with pytest.raises(UserError, match="is being written by"):
        listing.pin(store, PREFIX, 1)
    saved(first, weights, 2)
    first.close()
    listing.pin(store, PREFIX, 1)
    again, weights = writer(store, None)
    start = again.restore()
    assert start is not None and start.step == 2
    assert listing.tags(store, PREFIX) == {"pin.1": 1}


def test_a_dead_script_is_forgotten_by_hand_and_shut_out_if_it_is_not() -> None:
    store = faulty_stores.CarelessStore()
    first, weights = writer(store, None)
    saved(first, weights, 1)
    assert listing.unlock(store, PREFIX) == 1
    second, others = writer(store, None)
    second.restore()
    with pytest.raises(Fenced, match="superseded"):
        saved(first, weights, 2)
    saved(second, others, 3)
    assert [note.step for note in list_checkpoints(store, PREFIX)] == [3, 1]


def test_an_epoch_that_the_api_gave_to_one_attempt_is_refused_to_another_process() -> None:
    store = faulty_stores.CarelessStore()
    first, weights = writer(store, 3)
    saved(first, weights, 1)
    with pytest.raises(UserError, match=r"attempt 3"):
        writer(store, 3)[0].restore()
    with pytest.raises(Fenced):
        writer(store, 2)[0].restore()
    saved(first, weights, 2)


def test_ranks_are_refused() -> None:
    store = faulty_stores.CarelessStore()
    for rank in (0, 1):
        with pytest.raises(UserError, match=r"2 ranks cannot save into memory:.*one writer only"):
            Saver(store, PREFIX, 1, ranks=Ranks(rank, 2)).acquire()


class Pausing:
    """A store whose writer sleeps before one of its calls while another one takes over, and then goes on."""

    def __init__(self, store: Any, at: int, meanwhile: Any) -> None:
        self._store, self._left, self._meanwhile, self.url = store, at, meanwhile, store.url

    def __getattr__(self, name: str) -> Any:
        def call(*arguments: Any, **named: Any) -> Any:
            self._left -= 1
            if self._left == 0:
                self._meanwhile()
            return getattr(self._store, name)(*arguments, **named)

        return call


@pytest.mark.parametrize("at", range(1, 13))
def test_a_zombie_that_wakes_at_any_call_changes_nothing_that_anybody_reads(at: int) -> None:
    store = faulty_stores.CarelessStore()
    made, weights = writer(store, 1)
    saved(made, weights, 1)
    found: list[int] = []
    newer, others = writer(store, 2)

    def take_over() -> None:
        start = newer.restore()
        assert start is not None
        found.append(start.step)
        for step in (10, 11, 12):
            saved(newer, others, step)

    pausing = Pausing(store, at, take_over)
    saver: Any = made._link._saver  # type: ignore[union-attr]
    saver._store = saver._log._store = pausing
    saver._log._claim = dataclasses.replace(saver._log._claim, store=pausing)
    acknowledged = 1
    try:
        saved(made, weights, 2)
        acknowledged = 2
    except (Fenced, PlatformError):
        pass
    if found:
        assert found[0] >= acknowledged, "else it was told that something is saved which nobody finds"
        assert [note.step for note in list_checkpoints(store, PREFIX)] == [12, 11, found[0]]
        saved(newer, others, 13)
    assert verify(store, PREFIX) == []


def test_attempts_at_random_lose_nothing_where_the_lie_is_known() -> None:
    store, dice, acknowledged = faulty_stores.CarelessStore(), random.Random(5), 0
    writers: list[tuple[Checkpointer, Any]] = []
    for turn in range(1, 120):
        if not writers or dice.random() < 0.15:
            writers.append(writer(store, len(writers) + 1))
            start = writers[-1][0].restore()
            assert (start.step if start else 0) == acknowledged
        made, weights = dice.choice(writers[-3:])
        try:
            saved(made, weights, turn)
        except Fenced:
            continue
        assert made is writers[-1][0]
        acknowledged = turn
    assert len(writers) > 10 and verify(store, PREFIX) == []


def test_another_look_at_a_store_corrects_what_was_noted() -> None:
    store = faulty_stores.CarefulStore()
    assert conditions.broken(store) == ""
    conditions.correct(store, "2 of 8 writers won")
    assert conditions.broken(store) == "2 of 8 writers won"
    conditions.correct(store, "")
    assert conditions.broken(store) == ""
