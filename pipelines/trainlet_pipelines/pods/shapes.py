"""What a parameter is on both sides of KFP, whose JSON knows no whole numbers: 2 and 2.0 arrive as the same text.

A *shape* is JSON that says how to read a value back: `int`, `float`, `bool`, `str`, `any` (whole numbers become ints),
`text` (JSON text, or else the text itself), `encoded` (JSON text, always), `["list", shape]`, `["dict", shape]`,
`["optional", shape]` (left out, it is None), `["default", shape]` (left out, the step's own default is used), and
`["artifact", class]` for a file that KFP hands over.
"""

from __future__ import annotations

import json
import math
import types
import typing
from typing import Any

from trainlet.core import artifacts
from trainlet.core.errors import UserError

Shape = Any
SCALARS: dict[str, type] = {"int": int, "float": float, "bool": bool, "str": str}
EXACT = 2**53
"""KFP's numbers are doubles: whole numbers up to this one survive."""


def of(annotation: Any) -> Shape:
    """Return the shape of an annotation; `text` for everything that KFP has no type for."""
    if hasattr(annotation, "__metadata__"):
        return of(annotation.__origin__)
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if isinstance(annotation, types.UnionType) or origin is typing.Union:
        rest = [one for one in arguments if one is not type(None)]
        inner = of(rest[0]) if len(rest) == 1 else "text"
        return ["optional", inner] if len(rest) < len(arguments) and not is_artifact(inner) else inner
    if origin is typing.Literal:
        kinds = {type(one) for one in arguments}
        return of(kinds.pop()) if len(kinds) == 1 else "text"
    for name, kind in SCALARS.items():
        if annotation is kind:
            return name
    if annotation is list or origin is list:
        return ["list", _inner(arguments[0] if arguments else Any)]
    if annotation is dict or (origin is dict and arguments[0] is str):
        return ["dict", _inner(arguments[1] if arguments else Any)]
    if isinstance(annotation, type) and issubclass(annotation, artifacts.Artifact):
        name = next((name for name, kind in artifacts.KINDS.items() if annotation is kind), "Artifact")
        return ["artifact", name]
    return "text"


def _inner(annotation: Any) -> Shape:
    """Return the shape of an element: JSON inside of JSON, so never a text of its own."""
    shape = of(annotation)
    return "any" if shape == "text" or is_artifact(shape) else shape


def of_value(value: Any) -> Shape:
    """Return the shape of a value that has no annotation."""
    return of(type(value)) if type(value) in (bool, int, float, str, list, dict) else "text"


def is_scalar(shape: Shape) -> bool:
    """Say whether this is one number, truth value or text."""
    return isinstance(shape, str) and shape in SCALARS


def is_artifact(shape: Shape) -> bool:
    """Say whether KFP hands this over as a file and not as a parameter."""
    return isinstance(shape, list) and shape[0] == "artifact"


def restore(value: Any, shape: Shape, name: str) -> Any:
    """Return what a KFP parameter stood for; raises UserError when it does not fit."""
    if shape in ("text", "encoded"):
        return _from_text(value, strict=shape == "encoded")
    if isinstance(shape, list) and shape[0] in ("optional", "default"):
        return None if value is None else restore(value, shape[1], name)
    if shape == "any":
        return _whole(value)
    if isinstance(shape, list) and shape[0] == "list" and isinstance(value, list):
        return [restore(one, shape[1], f"{name}[{index}]") for index, one in enumerate(value)]
    if isinstance(shape, list) and shape[0] == "dict" and isinstance(value, dict):
        return {key: restore(one, shape[1], f"{name}[{key!r}]") for key, one in value.items()}
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if shape == "float" and number:
        return float(value)
    if shape == "int" and number and float(value).is_integer():
        return int(value)
    if shape in ("bool", "str") and isinstance(value, SCALARS[shape]):
        return value
    wanted = shape if isinstance(shape, str) else shape[0]
    raise UserError(f"The parameter {name} is {value!r}, which is no {wanted}. Give it a {wanted} in the run's form.")


def _from_text(value: Any, *, strict: bool) -> Any:
    if not isinstance(value, str):
        return _whole(value)
    try:
        return json.loads(value)
    except ValueError:
        if strict:
            raise UserError(f"{value[:80]!r} is not JSON: it was not written by a step of trainlet.") from None
        return value


def _whole(value: Any) -> Any:
    """Make whole numbers of JSON ints, which KFP has turned into doubles."""
    if isinstance(value, float):
        return int(value) if value.is_integer() and abs(value) <= EXACT else value
    if isinstance(value, list):
        return [_whole(one) for one in value]
    if isinstance(value, dict):
        return {key: _whole(one) for key, one in value.items()}
    return value


def to_text(value: Any, name: str) -> str:
    """Return the text of a `text` parameter that reads back as this value."""
    if isinstance(value, str):
        try:
            json.loads(value)
        except ValueError:
            return value
    try:
        return json.dumps(value, separators=(",", ":"), allow_nan=False)
    except (TypeError, ValueError) as error:
        raise UserError(f"{name} is not JSON, so KFP cannot pass it: {error}.") from None


def survives(value: Any) -> bool:
    """Say whether KFP can pass a scalar as a parameter of its own and give back the same."""
    if isinstance(value, str):
        return len(value) <= 1000 and "{{" not in value and "\n" not in value
    if isinstance(value, bool):
        return True
    if isinstance(value, int):
        return abs(value) <= EXACT
    return isinstance(value, float) and math.isfinite(value)
