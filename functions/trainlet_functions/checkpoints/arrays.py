"""Arrays of NumPy and PyTorch, and shards of them, seen as one thing: a type, a shape, and memory to copy from or into.

Neither library is imported here unless the caller has it: an array of a library that is not loaded cannot exist.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Any

from trainlet.core.errors import UserError
from trainlet_functions.checkpoints import layouts


@dataclass(frozen=True, slots=True)
class Shard:
    """One rank's block of an array that many ranks hold together: where it begins in the whole, and the whole's shape."""

    array: Any
    offset: tuple[int, ...]
    shape: tuple[int, ...]

    def __post_init__(self) -> None:
        local = tuple(self.array.shape)
        fits = len(local) == len(self.offset) == len(self.shape) and all(
            first >= 0 and first + size <= whole
            for first, size, whole in zip(self.offset, local, self.shape, strict=True)
        )
        if not fits:
            raise UserError(f"A shard of shape {local} at {self.offset} does not lie inside of {self.shape}.")


def is_array(value: Any) -> bool:
    """Say whether this is an array, a tensor, or a shard."""
    numpy = sys.modules.get("numpy")
    return isinstance(value, Shard) or is_torch(value) or (numpy is not None and isinstance(value, numpy.ndarray))


def is_torch(value: Any) -> bool:
    """Say whether this is a tensor of PyTorch."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(value, torch.Tensor)


def is_distributed(value: Any) -> bool:
    """Say whether this is a tensor that several processes hold together."""
    return is_torch(value) and hasattr(value, "to_local")


def dtype_of(value: Any) -> str:
    """Return the name of the element type, the same for both libraries."""
    return str(local_of(value).dtype).removeprefix("torch.")


def local_of(value: Any) -> Any:
    """Return the plain array of this process behind a shard or a distributed tensor."""
    if isinstance(value, Shard):
        return value.array
    if is_distributed(value):
        return value.to_local()
    return value


def place_of(value: Any) -> tuple[tuple[int, ...], tuple[int, ...] | None]:
    """Return (offset, shape of the whole) of a shard; ((), None) for what is whole itself."""
    if isinstance(value, Shard):
        return value.offset, value.shape
    if is_distributed(value) and not all(one.is_replicate() for one in value.placements):
        from torch.distributed.tensor._utils import compute_local_shape_and_global_offset

        _, offset = compute_local_shape_and_global_offset(value.shape, value.device_mesh, value.placements)
        return tuple(offset), tuple(value.shape)
    return (), None


def whole_shape(value: Any) -> tuple[int, ...]:
    """Return the shape of the whole array that this is, or is a shard of."""
    whole = place_of(value)[1]
    return tuple(local_of(value).shape) if whole is None else whole


def describe(name: str, value: Any) -> layouts.Tensor:
    """Return what a layout needs to know."""
    offset, whole = place_of(value)
    return layouts.Tensor(name, dtype_of(value), tuple(local_of(value).shape), offset, whole)


def size_of(value: Any) -> int:
    """Return the bytes of the data in this process."""
    return describe("", value).size_bytes


def copy_out(found: dict[str, Any], layout: layouts.Layout, memory: memoryview) -> None:
    """Copy arrays to their places in staged memory."""
    for piece in layout.pieces:
        if piece.end == piece.begin:
            continue
        source = local_of(found[piece.tensor.name])
        rows = source[piece.rows[0] : piece.rows[1]] if piece.tensor.shape else source
        copy(rows, view(memory[piece.begin : piece.end], piece.tensor.dtype, piece.shape))


def view(data: memoryview, dtype: str, shape: tuple[int, ...]) -> Any:
    """Return bytes as a NumPy array; bfloat16, which NumPy lacks, as int16 with the same bits."""
    import numpy

    kind = numpy.dtype(numpy.int16 if dtype == "bfloat16" else dtype)
    return numpy.frombuffer(data, dtype=kind).reshape(shape)


def copy(source: Any, target: Any) -> None:
    """Copy elements between arrays of the same shape and type, of whichever library they are."""
    if is_torch(source) or is_torch(target):
        torch = sys.modules["torch"]
        with torch.no_grad():
            _as_torch(target).copy_(_as_torch(source))
    else:
        target[...] = source


def new(dtype: str, shape: tuple[int, ...], kind: str) -> Any:
    """Return an array without content, of NumPy or of PyTorch."""
    if kind == "torch":
        try:
            import torch
        except ImportError:
            raise UserError("The checkpoint holds tensors of PyTorch: pip install 'trainlet[torch]'") from None
        return torch.empty(shape, dtype=getattr(torch, dtype))
    import numpy

    if dtype == "bfloat16":
        raise UserError("bfloat16 needs PyTorch.")
    return numpy.empty(shape, dtype=dtype)


def new_like(model: Any, dtype: str) -> Any:
    """Return a distributed tensor without content, spread as another one is."""
    torch = sys.modules["torch"]
    return torch.empty_like(model.detach(), dtype=getattr(torch, dtype))


def _as_torch(value: Any) -> Any:
    """Return a tensor over the same memory; a NumPy array stands for bfloat16 when it holds int16."""
    if is_torch(value):
        plain = value.detach()
        return plain.view(sys.modules["torch"].int16) if dtype_of(value) == "bfloat16" else plain
    array = value
    if not array.flags.writeable:
        array = array.copy()
    return sys.modules["torch"].from_numpy(array)
