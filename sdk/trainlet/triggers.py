"""The decorators `@tl.on_event` and `@tl.on_schedule`: what starts a pipeline by itself, written above `@tl.pipeline`.

Everything is checked when the decorator runs, against the pipeline that it stands on: the filter, the schedule, every
path and the parameter that it is for. `trainlet deploy` registers what is written here; nothing starts before.
"""

from __future__ import annotations

import copy
import json
import re
import types
import typing
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ParamSpec, TypeVar

from pydantic import BaseModel, TypeAdapter, ValidationError

from trainlet import locations
from trainlet.core import durations, events, hints, specs
from trainlet.core import triggers as wire
from trainlet.core.errors import UserError
from trainlet.pipelines import Pipeline

P = ParamSpec("P")
R = TypeVar("R")
_CONCURRENCY = typing.get_args(wire.Concurrency)
_CATCH_UP = typing.get_args(wire.CatchUp)
_PERIODS = {"s": 1.0, "second": 1.0, "m": 60.0, "min": 60.0, "minute": 60.0, "h": 3600.0, "hour": 3600.0,
            "d": 86400.0, "day": 86400.0, "w": 604800.0, "week": 604800.0}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Trigger:
    """One decorator: its name in the project, and what it registers without the program."""

    name: str | None
    slug: str
    fields: Mapping[str, Any]
    schedule: bool

    def spec(self, program: wire.Program) -> wire.Subscription | wire.Schedule:
        """Return what is registered for a program."""
        kind = wire.Schedule if self.schedule else wire.Subscription
        return kind.model_validate({"program": program, **self.fields})


@dataclass(frozen=True, slots=True)
class _Decorator:
    """What `tl.on_event(...)` and `tl.on_schedule(...)` return."""

    label: str
    make: Any

    def __call__(self, pipeline: Pipeline[P, R]) -> Pipeline[P, R]:
        if not isinstance(pipeline, Pipeline):
            name = getattr(pipeline, "__name__", repr(pipeline))
            raise UserError(
                f"{locations.caller()}: @{self.label}(...) is on {name}, which is no pipeline. "
                f"Write it above @tl.pipeline, which must be the decorator next to the def."
            )
        with_it = copy.copy(pipeline)
        with_it.triggers = (self.make(pipeline), *pipeline.triggers)
        return with_it


def on_event(
    type: str,
    *,
    source: str | None = None,
    where: str | None = None,
    filters: Sequence[Mapping[str, Any]] = (),
    params: Mapping[str, Any] | None = None,
    name: str | None = None,
    window: str | float | None = None,
    max_batch: int | None = None,
    debounce: str | float | None = None,
    rate: str | None = None,
    concurrency: str = "allow",
    jitter: str | float | None = None,
    max_failures: int | None = 3,
    rest: str | float = "10m",
    max_repeats: int = 0,
    budget: str | None = None,
    run_budget: str | float | None = None,
    poll: str | float | None = None,
    example: Mapping[str, Any] | None = None,
) -> _Decorator:
    """Start the pipeline when a CloudEvent of this type comes; a type that ends in `*` stands for all that begin so.

    `where` is CESQL, `filters` are Knative's dialects. `params` maps parameters to paths into the event: `$.data.uri`,
    `/data/uri`, `{"path": ..., "default": ...}`, or anything else as a constant. With `window`, `debounce` or `max_batch`
    one run gets many events, and a parameter that is a list gets a value of each. `poll` looks at `source` (a folder or
    `s3://bucket/prefix`) that often. `budget` is like "50 USD/day"; after `max_failures` failures in a row nothing starts
    for `rest`. Raises UserError when the decorator runs, for anything that could never work.
    """
    at = locations.caller()
    label = "tl.on_event"
    if isinstance(type, Pipeline) or not isinstance(type, str):
        raise UserError(f'{at}: @{label} needs the type of an event: @{label}("com.example.created").')
    if not type.strip() or type != type.strip():
        raise UserError(f'{at}: @{label}({type!r}) names no type of event, such as "com.example.created".')
    every_s = None if poll is None else durations.parse_duration_s(poll, f"{at}: poll=")
    place = _place(source, every_s, at)
    flow = _flow(
        at, window, max_batch, debounce, rate, concurrency, jitter, max_failures, rest, max_repeats, budget, run_budget
    )
    dialects = _filters(type, place, where, filters)
    _compile(dialects, at)

    def make(pipeline: Pipeline[Any, Any]) -> Trigger:
        mapped = _parameters(at, label, pipeline, params or {}, flow)
        fields = {
            "filters": dialects,
            "params": mapped,
            "flow": flow,
            "poll": None if every_s is None else _valid(at, "poll=", wire.Poll, url=place, every_s=every_s),
            "example": None if example is None else dict(example),
        }
        trigger = Trigger(_name(at, name), type.rstrip("*.").rpartition(".")[2], fields, schedule=False)
        _check_example(at, dialects, mapped, example)
        return trigger

    return _Decorator(label, make)


def on_schedule(
    when: str,
    *,
    tz: str = "UTC",
    catch_up: str = "latest",
    params: Mapping[str, Any] | None = None,
    name: str | None = None,
    concurrency: str = "forbid",
    jitter: str | float | None = None,
    max_failures: int | None = 3,
    rest: str | float = "10m",
    budget: str | None = None,
    run_budget: str | float | None = None,
) -> _Decorator:
    """Start the pipeline at the moments of a cron expression in a time zone, or of an interval such as "every 6h".

    `catch_up` says what becomes of moments that were missed: "all", "latest" or "none". Parameters are constants, or
    paths into the event of the moment, such as `$.data.at`. The other options are those of `tl.on_event`.
    """
    at = locations.caller()
    label = "tl.on_schedule"
    if not isinstance(when, str):
        raise UserError(f'{at}: @{label} needs a schedule: @{label}("0 3 * * *") or @{label}("every 6h").')
    if catch_up not in _CATCH_UP:
        raise UserError(f"{at}: catch_up={catch_up!r}. {durations.nearest(str(catch_up), _CATCH_UP)}")
    flow = _flow(at, None, None, None, None, concurrency, jitter, max_failures, rest, 0, budget, run_budget)
    _parse_schedule(when, tz, at)

    def make(pipeline: Pipeline[Any, Any]) -> Trigger:
        mapped = _parameters(at, label, pipeline, params or {}, flow)
        fields = {"when": when, "tz": tz, "catch_up": catch_up, "params": mapped, "flow": flow}
        return Trigger(_name(at, name), "schedule", fields, schedule=True)

    return _Decorator(label, make)


def named(pipeline: Pipeline[Any, Any]) -> dict[str, Trigger]:
    """Return the triggers of a pipeline by their names in the project: given ones, else pipeline and type."""
    found: dict[str, Trigger] = {}
    for trigger in pipeline.triggers:
        base = trigger.name or specs.dns_label(f"{pipeline.name[:40]}-{trigger.slug}")
        name, number = base, 2
        while name in found:
            if trigger.name is not None:
                raise UserError(f"Pipeline {pipeline.name!r} has two triggers {name!r}. Give one another name=.")
            name, number = f"{base[:58]}-{number}", number + 1
        found[name] = trigger
    return found


def tried(trigger: Trigger, event: events.Event) -> dict[str, Any]:
    """Say what a subscription would make of an event: whether it matches and why not, its parameters, or an error."""
    from trainlet_functions.triggers import plain as mappings

    matches, why = True, ""
    for dialect in trigger.fields["filters"]:
        if not _compile([dialect], "").matches(event):
            matches, why = False, f"the filter {json.dumps(dialect)} does not hold"
            break
    params: dict[str, Any] = {}
    error = ""
    for name, one in trigger.fields["params"].items() if matches else ():
        try:
            value = mappings.value(name, one, event.to_json())
            params[name] = [value] if one.many else value
        except UserError as wrong:
            error = error or str(wrong)
    return {"matches": matches, "why": why, "params": params, "error": error}


def _filters(
    kind: str, source: str | None, where: str | None, more: Sequence[Mapping[str, Any]]
) -> list[dict[str, Any]]:
    exact = {} if source is None else {"source": source}
    dialects: list[dict[str, Any]] = []
    if kind.endswith("*"):
        if kind != "*":
            dialects.append({"prefix": {"type": kind[:-1]}})
    else:
        exact = {"type": kind, **exact}
    if exact:
        dialects.insert(0, {"exact": exact})
    if where is not None:
        dialects.append({"cesql": where})
    return [*dialects, *(dict(one) for one in more)] or [{"cesql": "EXISTS type"}]


def _compile(dialects: list[dict[str, Any]], at: str) -> Any:
    from trainlet_functions.triggers import filters as compiler

    try:
        return compiler.compile(dialects)
    except UserError as error:
        raise UserError(f"{at}: {error}") from None


def _parse_schedule(when: str, tz: str, at: str) -> None:
    from datetime import UTC, datetime

    from trainlet_functions.triggers import moments

    try:
        if moments.parse(when, tz=tz).next_after(datetime.now(UTC)) is None:
            raise UserError(f"{when!r} in {tz} has no next moment.")
    except UserError as error:
        raise UserError(f"{at}: {error}") from None


def _check_example(
    at: str, dialects: list[dict[str, Any]], mapped: Mapping[str, wire.Parameter], example: Mapping[str, Any] | None
) -> None:
    if example is None:
        return
    from trainlet_functions.triggers import plain as mappings

    try:
        event = events.from_json(dict(example), "example=")
        if not _compile(dialects, at).matches(event):
            raise UserError("the filter does not match example=. Correct one of them.")
        for name, one in mapped.items():
            mappings.value(name, one, event.to_json())
    except UserError as error:
        raise UserError(f"{at}: {error}") from None


def _place(source: str | None, every_s: float | None, at: str) -> str | None:
    """Return the source as the poller will name it: a folder becomes a file: URL."""
    if every_s is None:
        return source
    if source is None:
        raise UserError(f'{at}: poll= needs a source= to look at: a folder, or "s3://bucket/prefix".')
    if re.match(r"[a-z0-9]+://", source):
        return source.rstrip("/")
    from pathlib import Path

    return Path(source).absolute().as_uri().rstrip("/")


def _name(at: str, name: str | None) -> str | None:
    if name is not None and not re.fullmatch(specs.NAME_PATTERN, name):
        raise UserError(f"{at}: name={name!r} is no name: use a-z, 0-9 and '-', at most 63, a letter first.")
    return name


def _flow(
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
    if concurrency not in _CONCURRENCY:
        raise UserError(f"{at}: concurrency={concurrency!r}. {durations.nearest(str(concurrency), _CONCURRENCY)}")

    def seconds(what: str, value: Any) -> float | None:
        return None if value is None else durations.parse_duration_s(value, f"{at}: {what}=")

    many = window is not None or debounce is not None
    breaker = None
    if max_failures is not None:
        breaker = _valid(at, "max_failures=", wire.Breaker, failures=max_failures, rest_s=seconds("rest", rest))
    return _valid(
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


M = TypeVar("M", bound=BaseModel)


def _valid(at: str, what: str, model: type[M], **fields: Any) -> M:
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
    return _valid(at, "rate=", wire.Rate, count=int(count), per_s=_period(at, "rate", text, period))


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


def _parameters(
    at: str, label: str, pipeline: Pipeline[Any, Any], params: Mapping[str, Any], flow: wire.Flow
) -> dict[str, wire.Parameter]:
    known = pipeline.signature.parameters
    annotations = hints.annotations_of(pipeline._function)
    for name in params:
        if name not in known:
            hint = durations.nearest(name, list(known)) if known else "It takes none."
            raise UserError(f"{at}: params: pipeline {pipeline.name!r} has no parameter {name!r}. {hint}")
    missing = [name for name, one in known.items() if one.default is one.empty and name not in params]
    if missing:
        raise UserError(
            f"{at}: pipeline {pipeline.name!r} needs {', '.join(missing)}, and nothing gives it. "
            f'Map it: @{label}(..., params={{"{missing[0]}": "$.data..."}}), or give it a default.'
        )
    mapped: dict[str, wire.Parameter] = {}
    for name, value in params.items():
        mapped[name] = _parameter(at, name, value, annotations.get(name, Any), flow)
    return mapped


def _parameter(at: str, name: str, value: Any, annotation: Any, flow: wire.Flow) -> wire.Parameter:
    path, default, has_default = None, value, True
    if isinstance(value, Mapping) and set(value) <= {"path", "default"} and "path" in value:
        path, default, has_default = str(value["path"]), value.get("default"), "default" in value
    elif isinstance(value, Mapping) and set(value) == {"value"}:
        default = value["value"]
    elif isinstance(value, str) and value.startswith(("$", "/")):
        path, default, has_default = value, None, False
    many = path is not None and flow.max_batch > 1 and _is_list(annotation)
    schema = _schema(_item(annotation) if many else annotation)
    if path is None:
        _check_constant(at, name, default, annotation)
    return wire.Parameter(path=path, default=default, has_default=has_default, many=many, json_schema=schema)


def _is_list(annotation: Any) -> bool:
    return annotation is list or typing.get_origin(annotation) is list


def _item(annotation: Any) -> Any:
    return next(iter(typing.get_args(annotation)), Any)


def _schema(annotation: Any) -> dict[str, Any]:
    """Return the JSON Schema of what a parameter takes; nothing for a type that has none."""
    if annotation is Any or isinstance(annotation, str | types.NoneType):
        return {}
    try:
        return TypeAdapter(annotation).json_schema()
    except Exception:  # noqa: BLE001 - a type that pydantic cannot describe takes what comes
        return {}


def _check_constant(at: str, name: str, value: Any, annotation: Any) -> None:
    if annotation is Any or isinstance(annotation, str):
        return
    try:
        adapter: TypeAdapter[Any] = TypeAdapter(annotation)
    except Exception:  # noqa: BLE001 - a type that pydantic does not know takes what was written
        return
    try:
        adapter.validate_python(value)
    except ValidationError as error:
        kind = getattr(annotation, "__name__", None) or str(annotation)
        raise UserError(
            f"{at}: params: {name}={value!r} does not fit {kind}: {error.errors()[0]['msg']}. "
            'A path into the event begins with "$." or "/".'
        ) from None
