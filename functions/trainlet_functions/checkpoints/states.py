"""From live objects to arrays and JSON, and back: what `register` takes.

Arrays leave the tree of a state as references by name, so the tree is JSON. Keys of dictionaries keep their types
(PyTorch's optimizers use ints). What would need pickle is refused, with its place in the state.
"""

from __future__ import annotations

import random
import re
import sys
from collections.abc import Callable
from typing import Any

from trainlet.core.errors import UserError
from trainlet_functions.checkpoints import arrays
from trainlet_functions.checkpoints.layouts import DTYPES

TAG = "$ck"
MAX_DEPTH = 200
Arrays = dict[str, Any]
Fill = Callable[[str, Any], Any]  # (name, the live array or None) -> the restored array, which may be the live one


def capture(name: str, value: Any) -> tuple[Any, Arrays]:
    """Return (tree, arrays) of a registered object; arrays are live, not copied. Raises UserError for what needs pickle."""
    found: Arrays = {}
    return _split(_state_of(name, value), name, found, 0), found


def load(name: str, value: Any, tree: Any, fill: Fill, *, strict: bool = True) -> Any:
    """Put a restored state into the registered object, in place; returns it. Raises UserError when it does not fit.

    `fill` gives the array of a name. It gets the array that is there now, where there is one, to fill it in place.
    """
    live = capture(name, value)[1]
    state = _join(tree, live, fill, 0)
    if arrays.is_array(value):
        return value
    if _is_bits(value):
        value.bit_generator.state = state
    elif isinstance(value, random.Random):
        value.setstate(_tuples(state))
    elif hasattr(value, "load_state_dict"):
        _load_state_dict(name, value, state, strict)
    elif isinstance(value, dict):
        if not isinstance(state, dict):
            raise UserError(f"{name!r} is a dict, the checkpoint has a {type(state).__name__} under that name.")
        value.clear()
        value.update(state)
    elif isinstance(value, list):
        value[:] = state
    return value


def models(name: str, value: Any) -> Callable[[str], Any]:
    """Return what gives, for the name of an array that is not there yet, a distributed tensor that it is to be like.

    An optimizer has no moments before its first step; those of a distributed parameter are spread as the parameter is.
    """
    groups = getattr(value, "param_groups", None)
    parameters = [one for group in groups for one in group["params"]] if isinstance(groups, list) else []

    def model(reference: str) -> Any:
        found = re.match(r"\.state\.(\d+)\.", reference[len(name) :])
        number = int(found[1]) if found else len(parameters)
        parameter = parameters[number] if number < len(parameters) else None
        return parameter if arrays.is_distributed(parameter) else None

    return model


def references(tree: Any) -> list[tuple[str, str]]:
    """Return the (name, library) of every array that a tree refers to."""
    if isinstance(tree, list):
        return [one for item in tree for one in references(item)]
    if not isinstance(tree, dict):
        return []
    if tree.get(TAG) == "tensor":
        return [(str(tree["name"]), str(tree["as"]))]
    return [one for item in tree.values() for one in references(item)]


def _load_state_dict(name: str, value: Any, state: Any, strict: bool) -> None:
    torch = sys.modules.get("torch")
    lenient = {"strict": False} if not strict and torch is not None and isinstance(value, torch.nn.Module) else {}
    try:
        value.load_state_dict(state, **lenient)
    except (RuntimeError, KeyError, ValueError, TypeError) as error:
        raise UserError(f"The checkpoint does not fit {name!r}: {error}") from error


def _state_of(name: str, value: Any) -> Any:
    if arrays.is_array(value) or isinstance(value, dict | list):
        return value
    if _is_bits(value):
        return value.bit_generator.state
    if isinstance(value, random.Random):
        return value.getstate()
    if hasattr(value, "state_dict") and hasattr(value, "load_state_dict"):
        return value.state_dict()
    raise UserError(
        f"ctx.checkpoint.register({name}=...) got a {type(value).__name__}. It takes arrays, dicts and lists of JSON values "
        "and arrays, random generators, and objects with state_dict and load_state_dict."
    )


def _split(value: Any, where: str, found: Arrays, depth: int) -> Any:
    if depth > MAX_DEPTH:
        raise UserError(f"{where} is nested more than {MAX_DEPTH} deep, or contains itself.")
    if value is None or type(value) in (bool, int, float, str):
        return {TAG: "float", "value": repr(value)} if type(value) is float and value - value != 0 else value
    if arrays.is_array(value):
        return _reference(value, where, found)
    if isinstance(value, dict):
        if all(type(key) is str for key in value) and TAG not in value:
            return {key: _split(item, f"{where}.{key}", found, depth + 1) for key, item in value.items()}
        pairs = [
            [_split(key, where, found, depth + 1), _split(item, f"{where}.{key}", found, depth + 1)]
            for key, item in value.items()
        ]
        return {TAG: "dict", "pairs": pairs}
    if isinstance(value, list):
        return [_split(item, f"{where}.{index}", found, depth + 1) for index, item in enumerate(value)]
    if isinstance(value, tuple):
        items = [_split(item, f"{where}.{index}", found, depth + 1) for index, item in enumerate(value)]
        return {TAG: "tuple", "items": items}
    numpy = sys.modules.get("numpy")
    if numpy is not None and isinstance(value, numpy.generic):
        return _split(value.item(), where, found, depth + 1)
    raise UserError(
        f"{where} is a {type(value).__module__}.{type(value).__qualname__}, which cannot be saved without pickle. "
        "Keep arrays, numbers, strings, lists and dicts in what you register, or give the object state_dict() and "
        "load_state_dict() that make it of these."
    )


def _reference(value: Any, where: str, found: Arrays) -> Any:
    dtype = arrays.dtype_of(value)
    if dtype not in DTYPES:
        raise UserError(f"{where} is an array of {dtype}, which cannot be saved without pickle.")
    name, number = where, 1
    while name in found:  # {"a.b": x, "a": {"b": y}} gives the same path twice
        number += 1
        name = f"{where}#{number}"
    found[name] = value
    return {TAG: "tensor", "name": name, "as": "torch" if arrays.is_torch(arrays.local_of(value)) else "numpy"}


def _join(tree: Any, live: Arrays, fill: Fill, depth: int) -> Any:
    if depth > MAX_DEPTH:
        raise UserError(f"The checkpoint is nested more than {MAX_DEPTH} deep.")
    if isinstance(tree, list):
        return [_join(item, live, fill, depth + 1) for item in tree]
    if not isinstance(tree, dict):
        return tree
    match tree.get(TAG):
        case None:
            return {key: _join(item, live, fill, depth + 1) for key, item in tree.items()}
        case "tensor":
            return fill(tree["name"], live.get(tree["name"]))
        case "float":
            return float(tree["value"])
        case "tuple":
            return tuple(_join(item, live, fill, depth + 1) for item in tree["items"])
        case "dict":
            return {
                _join(key, live, fill, depth + 1): _join(item, live, fill, depth + 1) for key, item in tree["pairs"]
            }
        case other:
            raise UserError(f"The checkpoint holds a {other!r}, which this trainlet does not know: update it.")


def _tuples(value: Any) -> Any:
    return tuple(_tuples(item) for item in value) if isinstance(value, list | tuple) else value


def _is_bits(value: Any) -> bool:
    numpy = sys.modules.get("numpy")
    return numpy is not None and isinstance(value, numpy.random.Generator)
