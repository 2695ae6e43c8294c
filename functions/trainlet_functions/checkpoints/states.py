"""From live objects to tensors and JSON, and back: what `register` takes.

Tensors leave the tree of a state as references by name, so the tree is JSON. Keys of dictionaries keep their types
(PyTorch's optimizers use ints). What would need pickle is refused, with its place in the state.
"""

from __future__ import annotations

import sys
from typing import Any

from trainlet.core.errors import UserError
from trainlet_functions.checkpoints.packs import DTYPES

TAG = "$ck"
Tensors = dict[str, Any]


def capture(name: str, value: Any) -> tuple[Any, Tensors]:
    """Return (tree, arrays) of a registered object."""
    tensors: Tensors = {}
    return _split(_state_of(name, value), name, tensors), tensors


def load(name: str, value: Any, tree: Any, tensors: Tensors) -> None:
    """Put a restored state into the registered object, in place. Raises UserError when it does not fit."""
    state = _join(tree, tensors)
    if _is_array(value):
        _copy_into(name, value, state)
    elif _is_generator(value):
        value.bit_generator.state = state
    elif hasattr(value, "load_state_dict"):
        try:
            value.load_state_dict(state)
        except (RuntimeError, KeyError, ValueError, TypeError) as error:
            raise UserError(f"The checkpoint does not fit {name!r}: {error}") from error
    elif isinstance(value, dict):
        _merge(name, value, state)
    elif isinstance(value, list):
        value[:] = state
    else:
        raise UserError(f"{name!r} is a {type(value).__name__}, which cannot be restored in place.")


def _state_of(name: str, value: Any) -> Any:
    if _is_array(value) or isinstance(value, dict | list):
        return value
    if _is_generator(value):
        return value.bit_generator.state
    if hasattr(value, "state_dict") and hasattr(value, "load_state_dict"):
        return value.state_dict()
    raise UserError(
        f"ctx.checkpoint.register({name}=...) got a {type(value).__name__}. It takes arrays, dicts and lists of JSON values "
        "and arrays, numpy random generators, and objects with state_dict and load_state_dict."
    )


def _split(value: Any, where: str, tensors: Tensors) -> Any:
    if value is None or type(value) in (bool, int, float, str):
        return {TAG: "float", "value": repr(value)} if type(value) is float and value - value != 0 else value
    if _is_array(value):
        array = _to_numpy(value)
        if array.dtype.hasobject or str(_dtype(value)) not in DTYPES:
            raise UserError(f"{where} is an array of {array.dtype}, which cannot be saved without pickle.")
        tensors[where] = value
        kind = "torch" if _is_torch(value) else "numpy"
        return {TAG: "tensor", "name": where, "as": kind}
    if isinstance(value, dict):
        if all(type(key) is str for key in value) and TAG not in value:
            return {key: _split(item, f"{where}.{key}", tensors) for key, item in value.items()}
        pairs = [[_split(key, where, tensors), _split(item, f"{where}.{key}", tensors)] for key, item in value.items()]
        return {TAG: "dict", "pairs": pairs}
    if isinstance(value, list):
        return [_split(item, f"{where}.{index}", tensors) for index, item in enumerate(value)]
    if isinstance(value, tuple):
        return {TAG: "tuple", "items": [_split(item, f"{where}.{index}", tensors) for index, item in enumerate(value)]}
    numpy = sys.modules.get("numpy")
    if numpy is not None and isinstance(value, numpy.generic):
        return _split(value.item(), where, tensors)
    raise UserError(
        f"{where} is a {type(value).__module__}.{type(value).__qualname__}, which cannot be saved without pickle. "
        "Keep arrays, numbers, strings, lists and dicts in what you register."
    )


def _join(tree: Any, tensors: Tensors) -> Any:
    if isinstance(tree, list):
        return [_join(item, tensors) for item in tree]
    if not isinstance(tree, dict):
        return tree
    match tree.get(TAG):
        case None:
            return {key: _join(item, tensors) for key, item in tree.items()}
        case "tensor":
            return tensors[tree["name"]] if tree["as"] == "numpy" else _to_torch(tensors[tree["name"]])
        case "float":
            return float(tree["value"])
        case "tuple":
            return tuple(_join(item, tensors) for item in tree["items"])
        case "dict":
            return {_join(key, tensors): _join(item, tensors) for key, item in tree["pairs"]}
        case other:
            raise UserError(f"The checkpoint holds a {other!r}, which this trainlet does not know: update it.")


def raw_bytes(value: Any) -> tuple[str, tuple[int, ...], memoryview]:
    """Return (dtype name, shape, bytes) of an array or tensor, without a copy when it is contiguous on the CPU."""
    import numpy

    array = numpy.ascontiguousarray(_to_numpy(value))
    return _dtype(value), tuple(value.shape), array.reshape(-1).view(numpy.uint8).data


def from_bytes(dtype: str, shape: tuple[int, ...], data: bytes) -> Any:
    """Return a NumPy array over the bytes; bfloat16 comes as int16 marked by its dtype name in `_to_torch`."""
    import numpy

    if dtype == "bfloat16":
        return _BFloat16(numpy.frombuffer(data, dtype=numpy.int16).reshape(shape))
    return numpy.frombuffer(data, dtype=numpy.dtype(dtype)).reshape(shape).copy()


class _BFloat16:
    """Carries the bits of a bfloat16 tensor: NumPy has no such type."""

    def __init__(self, bits: Any) -> None:
        self.bits = bits
        self.shape = bits.shape


def _dtype(value: Any) -> str:
    return str(value.dtype).removeprefix("torch.")


def _is_torch(value: Any) -> bool:
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(value, torch.Tensor)


def _is_array(value: Any) -> bool:
    numpy = sys.modules.get("numpy")
    return _is_torch(value) or (numpy is not None and isinstance(value, numpy.ndarray))


def _is_generator(value: Any) -> bool:
    numpy = sys.modules.get("numpy")
    return numpy is not None and isinstance(value, numpy.random.Generator)


def _to_numpy(value: Any) -> Any:
    if not _is_torch(value):
        return value
    tensor = value.detach().cpu()
    return (tensor.view(sys.modules["torch"].int16) if _dtype(value) == "bfloat16" else tensor).numpy()


def _to_torch(value: Any) -> Any:
    import torch

    if isinstance(value, _BFloat16):
        return torch.from_numpy(value.bits.copy()).view(torch.bfloat16)
    return torch.from_numpy(value)


def _copy_into(name: str, value: Any, state: Any) -> None:
    if tuple(value.shape) != tuple(state.shape) or _dtype(value) != _dtype(state):
        raise UserError(
            f"{name!r} has shape {tuple(value.shape)} of {_dtype(value)}, the checkpoint has {tuple(state.shape)} of "
            f"{_dtype(state)}. Register the array that you saved."
        )
    if _is_torch(value):
        with sys.modules["torch"].no_grad():
            value.copy_(state)
    else:
        value[...] = state


def _merge(name: str, value: dict[Any, Any], state: Any) -> None:
    """Restore a dict: arrays that are already there are filled in place, everything else is replaced."""
    if not isinstance(state, dict):
        raise UserError(f"{name!r} is a dict, the checkpoint has a {type(state).__name__} under that name.")
    kept = {key: item for key, item in value.items() if _is_array(item) and key in state}
    for key, item in kept.items():
        _copy_into(f"{name}.{key}", item, state[key])
    value.clear()
    value.update({key: kept.get(key, item) for key, item in state.items()})
