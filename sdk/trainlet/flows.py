"""The options of a trigger that say when its events become a run: windows, rates, concurrency, budgets.

People write "10m", "4/h" and "50 USD/day"; this module turns them into the values of `trainlet.core.triggers`. What is
wrong is a UserError that names the line of the decorator. It must not know pipelines or events.
"""

from __future__ import annotations

import typing
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from trainlet.core import durations
from trainlet.core import triggers as wire
from trainlet.core.errors import UserError

_CONCURRENCY = typing.get_args(wire.Concurrency)
_PERIODS = {"s": 1.0, "second": 1.0, "m": 60.0, "min": 60.0, "minute": 60.0, "h": 3600.0, "hour": 3600.0,
            "d": 86400.0, "day": 86400.0, "w": 604800.0, "week": 604800.0}  # fmt: skip
M = TypeVar("M", bound=BaseModel)


def flow(
    at: str,
    window: Any,
    max_batch: Any,
    debounce: Any,
    rate: Any,
    concurrency: str,
    jitter: Any,
    max_failures: Any,
    rest: Any,
    max_repeats: Any,
    budget: Any,
    run_budget: Any,
) -> wire.Flow:
    """Return the flow control that the options of a decorator at a place ask for; raises UserError."""
    if concurrency not in _CONCURRENCY:
        raise UserError(f"{at}: concurrency={concurrency!r}. {durations.nearest(str(concurrency), _CONCURRENCY)}")

    def seconds(what: str, value: Any) -> float | None:
        return None if value is None else durations.parse_duration_s(value, f"{at}: {what}=")

    many = window is not None or debounce is not None
    breaker = None
    if max_failures is not None:
        breaker = valid(at, "max_failures=", wire.Breaker, failures=max_failures, rest_s=seconds("rest", rest))
    return valid(
        at,
        "",
        wire.Flow,
        window_s=seconds("window", window),
        max_batch=max_batch if max_batch is not None else (1000 if many else 1),
        debounce_s=seconds("debounce", debounce),
        rate=None if rate is None else _rate(at, rate),
        concurrency=concurrency,
        jitter_s=seconds("jitter", jitter),
        breaker=breaker,
        max_repeats=max_repeats,
        budget=None if budget is None else _allowance(at, budget),
        run_budget_nano=None if run_budget is None else durations.parse_money_nano(run_budget, f"{at}: run_budget="),
    )


def valid(at: str, what: str, model: type[M], **fields: Any) -> M:
    """Return a model of fields; raises UserError that names the option."""
    try:
        return model.model_validate(fields)
    except ValidationError as error:
        first = error.errors()[0]
        field = what or f"{str(first['loc'][0]).removesuffix('_s')}="
        raise UserError(f"{at}: {field}{first['input']!r} is not valid: {first['msg']}.") from None


def _rate(at: str, text: Any) -> wire.Rate:
    count, slash, period = str(text).partition("/")
    if not slash or not count.strip().isdecimal():
        raise UserError(f'{at}: rate={text!r} is no rate. Write runs per period: "4/h", "10/day".')
    return valid(at, "rate=", wire.Rate, count=int(count), per_s=_period(at, "rate", text, period))


def _allowance(at: str, text: Any) -> wire.Allowance:
    amount, slash, period = str(text).rpartition("/")
    if not slash:
        raise UserError(f'{at}: budget={text!r} has no period. Write "50 USD/day"; run_budget= is for each run.')
    nano = durations.parse_money_nano(amount.strip(), f"{at}: budget=")
    return wire.Allowance(nano=nano, per_s=_period(at, "budget", text, period))


def _period(at: str, what: str, text: Any, period: str) -> float:
    word = period.strip().lower()
    if word in _PERIODS:
        return _PERIODS[word]
    if word[:1].isdecimal():
        return durations.parse_duration_s(word, f"{at}: {what}=")
    raise UserError(f"{at}: {what}={text!r}: {period!r} is no period. {durations.nearest(word, list(_PERIODS))}")
