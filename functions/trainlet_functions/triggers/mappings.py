"""From an event to the parameters of a run: found by a path, checked against the pipeline's types, joined over many events.

What an event gives is a value and nothing else: it is encoded as such, and where it is a URI it must lie in one of the
places that the subscription names. Code, images, budgets and secrets are of the program that was deployed (S1).
"""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping, Sequence
from typing import Any

import jsonschema
from jsonschema.exceptions import SchemaError, best_match

from trainlet.core.errors import UserError
from trainlet.core.events import Event
from trainlet.core.triggers import Parameter
from trainlet_functions.triggers import paths, uris

_MOST_SCHEMA_CHARACTERS = 20_000
_SHOWN = 200  # characters of a message that may hold a value of any size


def check(params: Mapping[str, Parameter], places: Sequence[str]) -> None:
    """Raise UserError for a path, a schema, a default or a place that is wrong whatever event comes."""
    uris.check(places)
    for name, one in params.items():
        if one.path is not None:
            paths.parse(one.path, f"Parameter {name}")
        _validator(_text(one.json_schema), name)
        if one.has_default or one.path is None:
            _fits(name, one, one.default, "the default", whole=one.path is not None)


def values(params: Mapping[str, Parameter], places: Sequence[str], event: Event) -> dict[str, Any]:
    """Return what one event gives to each parameter; a list of values for one that is joined over events.

    Raises UserError that names the parameter, the path and what is wrong with what was found.
    """
    form = event.to_json()
    return {name: _value(name, one, places, form) for name, one in params.items()}


def join(params: Mapping[str, Parameter], found: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the parameters of a run for the values of its events: of lists all, else the last."""
    return {
        name: [value for each in found for value in each[name]] if one.many else found[-1][name]
        for name, one in params.items()
    }


def _value(name: str, one: Parameter, places: Sequence[str], form: dict[str, Any]) -> Any:
    if one.path is None:
        return one.default
    path = paths.parse(one.path, f"Parameter {name}")
    found = path.find(form)
    if found is paths.MISSING:
        if not one.has_default:
            raise UserError(f"Parameter {name}: {one.path} finds nothing in the event. Give it a default.")
        return _listed(name, one, one.default) if one.many else one.default
    uris.check_value(f"Parameter {name}: {one.path}", found, places)
    if not one.many:
        _fits(name, one, found, one.path)
        return found
    if path.single and not (isinstance(found, list) and not _valid(name, one, found)):
        found = [found]  # one value; a list that is no value of its own is a list of values
    for value in found:
        _fits(name, one, value, one.path)
    return found


def _listed(name: str, one: Parameter, default: Any) -> list[Any]:
    return default if isinstance(default, list) and not _valid(name, one, default) else [default]


def _valid(name: str, one: Parameter, value: Any) -> bool:
    return bool(_validator(_text(one.json_schema), name).is_valid(value))


def _fits(name: str, one: Parameter, value: Any, where: str, *, whole: bool = False) -> None:
    """Raise UserError when a value is none of the parameter; `whole`: a joined one may also be a list of values."""
    if whole and one.many and isinstance(value, list) and all(_valid(name, one, item) for item in value):
        return
    error = best_match(_validator(_text(one.json_schema), name).iter_errors(value))
    if error is not None:
        at = "".join(f"[{part!r}]" for part in error.absolute_path)
        message = error.message if len(error.message) <= _SHOWN else error.message[:_SHOWN] + " ..."
        raise UserError(f"Parameter {name}: {where} gives what does not fit{' at ' + at if at else ''}: {message}.")


def _text(schema: Mapping[str, Any]) -> str:
    return json.dumps(schema, sort_keys=True)


@functools.lru_cache(maxsize=1024)
def _validator(schema: str, name: str) -> jsonschema.Draft202012Validator:
    if len(schema) > _MOST_SCHEMA_CHARACTERS:
        raise UserError(
            f"Parameter {name}: its schema has {len(schema)} characters; at most {_MOST_SCHEMA_CHARACTERS}."
        )
    form = json.loads(schema)
    try:
        jsonschema.Draft202012Validator.check_schema(form)
    except SchemaError as error:
        raise UserError(f"Parameter {name}: its schema is no JSON Schema: {error.message[:_SHOWN]}.") from None
    if _refers_outside(form):
        raise UserError(f"Parameter {name}: its schema refers to another document; only '#/...' is followed.")
    return jsonschema.Draft202012Validator(form)


def _refers_outside(form: Any) -> bool:
    """Say whether a schema would have another document fetched: nothing an API does for whoever registers a trigger."""
    if isinstance(form, list):
        return any(map(_refers_outside, form))
    if not isinstance(form, dict):
        return False
    references = [form[key] for key in ("$ref", "$dynamicRef") if isinstance(form.get(key), str)]
    return any(not one.startswith("#") for one in references) or any(map(_refers_outside, form.values()))
