"""Which checkpoints stay: the last ones, the best ones, one an hour for some hours, and whatever is pinned.

Pure: a state goes in, the commits that may go come out. The newest, the tagged, the pinned and the one that training
resumed from never go. Hours are those of the commits' own times: no clock is read.
"""

from __future__ import annotations

from trainlet.core.specs import Keep
from trainlet_functions.checkpoints.log import Commit, State

BEST = "best"
PIN = "pin."
DAMAGED = "damaged."


def superfluous(
    state: State, keep: Keep, rule: tuple[str, str] | None, protected: frozenset[str] = frozenset()
) -> tuple[Commit, ...]:
    """Return the commits that nothing keeps. `rule` is the metric and direction that decide what is best."""
    commits = state.commits
    staying = {one.manifest for one in commits[-max(1, keep.last) :]} | protected
    staying |= {key for tag, key in state.tags.items() if tag == BEST or (keep.pins and tag.startswith(PIN))}
    if rule is not None and keep.best > 0:
        name, direction = rule
        known = [one for one in commits if name in one.metrics]
        known.sort(key=lambda one: one.metrics[name], reverse=direction == "max")
        staying |= {one.manifest for one in known[: keep.best]}
    hours: dict[str, str] = {}
    for one in commits:
        hours[one.at[:13]] = one.manifest  # the last one of each hour, `2026-01-31T12`
    staying |= set(list(hours.values())[-keep.hourly :] if keep.hourly else ())
    return tuple(one for one in commits if one.manifest not in staying)


def without(state: State, removed: frozenset[str]) -> State:
    """Return the state without these commits, and without tags that would point nowhere."""
    return state.model_copy(
        update={
            "commits": tuple(one for one in state.commits if one.manifest not in removed),
            "tags": {tag: key for tag, key in state.tags.items() if key not in removed},
        }
    )
