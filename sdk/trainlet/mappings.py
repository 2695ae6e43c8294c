"""What gives the parameters of a triggered run: paths into the event with the types of the pipeline's signature, or constants.

Everything is checked when the decorator runs. An event holds JSON, so a parameter that it fills is annotated with what
JSON has; a step turns a text into anything else. It must not know filters or schedules.
"""

from __future__ import annotations

import types
import typing
from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import TypeAdapter, ValidationError

from trainlet.core import durations, events, hints
from trainlet.core import triggers as wire
from trainlet.core.errors import UserError
from trainlet.pipelines import Pipeline

_PLAIN: tuple[Any, ...] = (Any, object, str, int, float, bool, None, types.NoneType, list, dict)
_HELD = (list, dict, typing.Union, types.UnionType, Sequence, Mapping)


def parameters(
    at: str, label: str, pipeline: Pipeline[Any, Any], params: Mapping[str, Any], places: Sequence[str] = ()
) -> dict[str, wire.Parameter]:
    """Return how the parameters of a pipeline come out of an event; raises UserError at the decorator's place."""
    from trainlet_functions.triggers import mappings

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
        mapped[name] = _parameter(at, name, value, annotations.get(name, Any))
    try:
        mappings.check(mapped, places)
    except UserError as error:
        raise UserError(f"{at}: {error}") from None
    return mapped


def _parameter(at: str, name: str, value: Any, annotation: Any) -> wire.Parameter:
    path, default, has_default = None, value, True
    if isinstance(value, Mapping) and set(value) <= {"path", "default"} and "path" in value:
        path, default, has_default = str(value["path"]), value.get("default"), "default" in value
    elif isinstance(value, Mapping) and set(value) == {"value"}:
        default = value["value"]
    elif isinstance(value, str) and value.startswith(("$", "/")):
        path, default, has_default = value, None, False
    if path is None:
        _check_constant(at, name, default, annotation)
        return wire.Parameter(default=default, has_default=True)
    if not _is_plain(annotation):
        raise UserError(
            f"{at}: params: {name} is annotated as {_spelled(annotation)}, and an event holds JSON. Annotate what {path} "
            "gives, such as str or dict[str, float], and make the rest of it in a step."
        )
    many = _is_list(annotation)
    schema = _schema(_item(annotation) if many else annotation)
    return wire.Parameter(path=path, default=default, has_default=has_default, many=many, json_schema=schema)


def values(
    params: Mapping[str, wire.Parameter], places: Sequence[str], event: events.Event
) -> tuple[dict[str, Any], str]:
    """Return what an event gives, and the first thing that is wrong."""
    from trainlet_functions.triggers import mappings

    found: dict[str, Any] = {}
    wrong = ""
    for name, one in params.items():
        try:
            found |= mappings.join({name: one}, [mappings.values({name: one}, places, event)])
        except UserError as error:
            wrong = wrong or str(error)
    return found, wrong


def _is_plain(annotation: Any) -> bool:
    """Say whether JSON gives values of an annotation as they are; one that cannot be read takes what comes."""
    if isinstance(annotation, str) or annotation in _PLAIN:
        return True
    origin, inner = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is typing.Annotated:
        return _is_plain(inner[0])
    if origin is typing.Literal:
        return all(isinstance(one, str | int | types.NoneType) for one in inner)
    return (origin in _HELD or annotation in _HELD) and all(map(_is_plain, inner))


def _spelled(annotation: Any) -> str:
    return annotation.__name__ if isinstance(annotation, type) else str(annotation)


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
        raise UserError(
            f"{at}: params: {name}={value!r} does not fit {_spelled(annotation)}: {error.errors()[0]['msg']}. "
            'A path into the event begins with "$." or "/".'
        ) from None
