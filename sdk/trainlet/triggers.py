"""The decorators `@tl.on_event` and `@tl.on_schedule`: what starts a pipeline by itself, written above `@tl.pipeline`.

Everything is checked when the decorator runs, against the pipeline that it stands on: the filter, the schedule, every
path and the parameter that it is for. `trainlet deploy` registers what is written here; nothing starts before.
"""

from __future__ import annotations

import copy
import json
import re
import typing
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ParamSpec, TypeVar

from trainlet import flows, locations, mappings
from trainlet.core import durations, events, specs
from trainlet.core import triggers as wire
from trainlet.core.errors import UserError
from trainlet.pipelines import Pipeline

P = ParamSpec("P")
R = TypeVar("R")
_CATCH_UP = typing.get_args(wire.CatchUp)


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
    places: Sequence[str] | None = None,
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
    kubeflow: Mapping[str, str] | None = None,
    example: Mapping[str, Any] | None = None,
) -> _Decorator:
    """Start the pipeline when a CloudEvent of this type comes; a type that ends in `*` stands for all that begin so.

    `where` is CESQL, `filters` are Knative's dialects. `params` maps parameters to paths into the event: `$.data.uri`,
    `/data/uri`, `{"path": ..., "default": ...}`, or anything else as a constant; what an event gives must fit the annotation.
    With `window`, `debounce` or `max_batch` one run gets many events, and a parameter that is a list gets the values of all.
    URIs in an event must lie in `places`; by default in `source`, where that is a bucket or folder. `poll` looks at
    `source` (a folder or `s3://bucket/prefix`) that often. `budget` is like "50 USD/day"; after `max_failures` failures in
    a row nothing starts for `rest`. With `kubeflow={"pipeline": ..., "version": ..., "experiment": ..., "service_account":
    ...}` the run is one of that pipeline on the API's Kubeflow Pipelines. Raises UserError when the decorator runs, for
    anything that could never work.
    """
    at = locations.caller()
    label = "tl.on_event"
    if isinstance(type, Pipeline) or not isinstance(type, str):
        raise UserError(f'{at}: @{label} needs the type of an event: @{label}("com.example.created").')
    if not type.strip() or type != type.strip():
        raise UserError(f'{at}: @{label}({type!r}) names no type of event, such as "com.example.created".')
    every_s = None if poll is None else durations.parse_duration_s(poll, f"{at}: poll=")
    place = _place(source, every_s, at)
    allowed = _allowed(place, places)
    flow = flows.flow(
        at, window, max_batch, debounce, rate, concurrency, jitter, max_failures, rest, max_repeats, budget, run_budget
    )
    there = _kubeflow(at, kubeflow)
    dialects = _filters(type, place, where, filters)
    _compile(dialects, at)

    def make(pipeline: Pipeline[Any, Any]) -> Trigger:
        mapped = mappings.parameters(at, label, pipeline, params or {}, allowed)
        fields = {
            "filters": dialects,
            "places": allowed,
            "params": mapped,
            "flow": flow,
            "kubeflow": there,
            "poll": None if every_s is None else flows.valid(at, "poll=", wire.Poll, url=place, every_s=every_s),
            "example": None if example is None else dict(example),
        }
        trigger = Trigger(_name(at, name), type.rstrip("*.").rpartition(".")[2], fields, schedule=False)
        _check_example(at, trigger)
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
    kubeflow: Mapping[str, str] | None = None,
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
    flow = flows.flow(at, None, None, None, None, concurrency, jitter, max_failures, rest, 0, budget, run_budget)
    _parse_schedule(when, tz, at)
    there = _kubeflow(at, kubeflow)

    def make(pipeline: Pipeline[Any, Any]) -> Trigger:
        mapped = mappings.parameters(at, label, pipeline, params or {})
        fields = {
            "when": when, "tz": tz, "catch_up": catch_up, "params": mapped, "flow": flow, "kubeflow": there
        }  # fmt: skip
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
    for dialect in trigger.fields["filters"]:
        if not _compile([dialect], "").matches(event):
            why = f"the filter {json.dumps(dialect)} does not hold"
            return {"matches": False, "why": why, "params": {}, "error": ""}
    params, error = mappings.values(trigger.fields["params"], trigger.fields["places"], event)
    return {"matches": True, "why": "", "params": params, "error": error}


def _kubeflow(at: str, given: Mapping[str, str] | None) -> wire.Kubeflow | None:
    if given is None:
        return None
    known = list(wire.Kubeflow.model_fields)
    unknown = [name for name in given if name not in known]
    if unknown or "pipeline" not in given:
        hint = durations.nearest(str(unknown[0]), known) if unknown else 'Name the pipeline: {"pipeline": "digits"}.'
        raise UserError(f"{at}: kubeflow={dict(given)!r}: {hint}")
    return flows.valid(at, "kubeflow=", wire.Kubeflow, **given)


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


def _check_example(at: str, trigger: Trigger) -> None:
    example = trigger.fields["example"]
    if example is None:
        return
    try:
        found = tried(trigger, events.from_json(example, "example="))
        if not found["matches"]:
            raise UserError(f"example= does not match: {found['why']}. Correct one of them.")
        if found["error"]:
            raise UserError(f"example=: {found['error']}")
    except UserError as error:
        raise UserError(f"{at}: {error}") from None


def _allowed(source: str | None, places: Sequence[str] | None) -> list[str]:
    """Return where values of an event may point: what is given, else the source where that is a place itself."""
    if places is not None:
        return [places] if isinstance(places, str) else list(places)
    return [source] if source is not None and re.match(r"(s3|gs|az|file)://.", source) else []


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
