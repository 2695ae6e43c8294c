"""Checkpoints of other tools, in and out: safetensors, Hugging Face folders, `torch.save` files, PyTorch's DCP folders.

Nothing that is read here may run code: `torch.save` files are loaded with `weights_only`, and the metadata of DCP, which is
a pickle, by an unpickler that knows the few classes it is made of.
"""

from __future__ import annotations

import io
import json
import math
import mmap
import pickle
from pathlib import Path
from typing import Any, Literal

from trainlet.core.errors import NotFoundError, PlatformError, UserError
from trainlet.core.protocols import ObjectStore
from trainlet_functions.checkpoints import arrays, layouts, listing, manifests, restoring
from trainlet_functions.checkpoints.checkpointer import Checkpointer
from trainlet_functions.checkpoints.log import Commit, Log, State

Format = Literal["safetensors", "hf", "torch", "dcp"]
INDEX = "model.safetensors.index.json"
MAX_HEADER = 100 << 20
_NAMES = {short: name for name, (short, _) in layouts.DTYPES.items()}
_SAFE = {
    "torch": {"Size", "device", *(name for name in layouts.DTYPES if name != "bool"), "bool"},
    "torch.serialization": {"_get_layout"},
    "collections": {"OrderedDict"},
    "builtins": {"set", "frozenset"},
    "pathlib": {"PosixPath", "PurePosixPath", "Path"},
    "torch.distributed.checkpoint.filesystem": {"_StorageInfo", "_StoragePrefix"},
    "torch.distributed.checkpoint.metadata": {
        "BytesStorageMetadata",
        "ChunkStorageMetadata",
        "Metadata",
        "MetadataIndex",
        "StorageMeta",
        "TensorProperties",
        "TensorStorageMetadata",
        "_MEM_FORMAT_ENCODING",
    },
}


def export(store: ObjectStore, prefix: str, path: Path, kind: Format, step: int | None, only: str | None) -> int:
    """Write a checkpoint (the newest, or that of a step) for another tool; returns its step.

    `only` is one registered object, which stands alone in what is written; `hf` needs one and takes `model` for it.
    """
    if kind == "safetensors" and only is None:
        return listing.export(store, prefix, path, step)
    found_step, objects = read(store, prefix, step)
    if kind == "hf":
        only = only or "model"
    if only is not None and only not in objects:
        raise NotFoundError(f"Step {found_step} has no {only!r}; it has {', '.join(objects)}.")
    state = objects if only is None else objects[only]
    if kind == "torch":
        torch = _torch("format='torch'")
        torch.save(_tensors(state, torch), path)
    elif kind == "dcp":
        torch = _torch("format='dcp'")
        import torch.distributed.checkpoint as dcp

        dcp.save(_tensors(state, torch), checkpoint_id=str(path), no_dist=True)
    else:
        if kind == "hf":
            path.mkdir(parents=True, exist_ok=True)
            path /= "model.safetensors"
        _write(path, {name: value for name, value in state.items() if arrays.is_array(value)}, {"format": "pt"})
    return found_step


def read(store: ObjectStore, prefix: str, step: int | None = None) -> tuple[int, dict[str, Any]]:
    """Return (step, the registered objects as new arrays and JSON) of the newest verified checkpoint, or of a step's.

    A reader holds nothing: the run may remove what it reads meanwhile. So when something cannot be read and the log has
    changed, it looks again, before it takes anything older for the newest.
    """
    log = Log(store, prefix)
    state, damaged = log.refresh(), set[str]()
    while True:
        candidates = [one for one in state.commits if one.manifest not in damaged]
        commit = next(reversed(candidates), None) if step is None else listing.find(state, prefix, step)
        if commit is None and not state.commits:
            raise NotFoundError(f"There is no checkpoint under {prefix}.")
        if commit is None or commit.manifest in damaged:
            newest = state.commits[-1].step if step is None else step
            raise PlatformError(f"The checkpoint of step {newest} is damaged; `verify` shows which are whole.")
        found = _read(store, prefix, state, commit)
        if found is not None:
            return commit.step, found
        before, state = state, log.refresh()
        if state == before:
            damaged.add(commit.manifest)


def _read(store: ObjectStore, prefix: str, state: State, commit: Commit) -> dict[str, Any] | None:
    try:
        holders = {name: _Holder() for name in manifests.read(store, prefix, commit).trees}
    except (PlatformError, FileNotFoundError):
        return None
    alone = state.model_copy(update={"commits": (commit,)})
    if restoring.restore(store, prefix, alone, dict(holders)) is None:
        return None
    return {name: holder.state for name, holder in holders.items()}


def bring_in(store: ObjectStore, prefix: str, path: Path, step: int) -> dict[str, Any]:
    """Commit what another tool has saved as the checkpoint of a step; returns the objects by name."""
    objects = load(path)
    made = Checkpointer(store, prefix, None)
    made.register(**objects)
    try:
        made.save(step, reason="imported")
    finally:
        made.close()
    return objects


def load(path: Path) -> dict[str, Any]:
    """Return what a file or folder of another tool holds, by the name under which it is registered.

    Tensors alone are one object, `model`. Of a dictionary of parts (`model`, `optimizer`, ...) each part is one, and its
    plain values together are `extra`.
    """
    if not path.exists():
        raise NotFoundError(f"There is nothing at {path}.")
    if path.is_dir():
        if (path / ".metadata").is_file():
            return _named(_load_dcp(path))
        if (path / INDEX).is_file():
            names = set(json.loads((path / INDEX).read_text())["weight_map"].values())
            if any(Path(name).name != name for name in names):
                raise UserError(f"{path / INDEX} names a file outside of its folder.")
        else:
            names = {"model.safetensors"}
        return {"model": {key: value for name in sorted(names) for key, value in _load_file(path / name).items()}}
    if path.suffix == ".safetensors":
        return {"model": _load_file(path)}
    try:
        return _named(_torch(f"importing {path.name}").load(path, weights_only=True, map_location="cpu"))
    except (pickle.UnpicklingError, RuntimeError, EOFError) as error:
        first = str(error).splitlines()[0]
        raise UserError(f"{path} cannot be imported without running code from it, or is damaged: {first}") from error


class _Holder:
    """Takes whatever a checkpoint has under a name."""

    def __init__(self) -> None:
        self.state: Any = {}

    def state_dict(self) -> dict[str, Any]:
        return {}

    def load_state_dict(self, state: Any) -> None:
        self.state = state


def _named(state: Any) -> dict[str, Any]:
    if not isinstance(state, dict):
        raise UserError(f"It holds a {type(state).__name__}, not a dictionary of tensors or of parts.")
    if any(arrays.is_array(value) for value in state.values()) or not all(str(name).isidentifier() for name in state):
        return {"model": dict(state)}
    parts = {name: value for name, value in state.items() if isinstance(value, dict | list)}
    rest = {name: value for name, value in state.items() if name not in parts}
    return {**parts, **({"extra": rest} if rest else {})}


def _tensors(value: Any, torch: Any) -> Any:
    """Return the same with NumPy's arrays as tensors over the same memory."""
    if isinstance(value, dict):
        return {key: _tensors(item, torch) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(_tensors(item, torch) for item in value)
    return torch.from_numpy(value) if arrays.is_array(value) and not arrays.is_torch(value) else value


def _write(path: Path, tensors: dict[str, Any], metadata: dict[str, str]) -> None:
    described = {name: arrays.describe(name, value) for name, value in tensors.items()}
    header: dict[str, Any] = {"__metadata__": metadata}
    position = 0
    for name, one in described.items():
        end = position + one.size_bytes
        short = layouts.DTYPES[one.dtype][0]
        header[name] = {"dtype": short, "shape": list(one.shape), "data_offsets": [position, end]}
        position = end
    raw = json.dumps(header, separators=(",", ":")).encode()
    raw += b" " * (-len(raw) % 8)
    temporary = path.with_name(f".{path.name}.part")
    try:
        with temporary.open("wb") as file:
            file.write(len(raw).to_bytes(8, "little") + raw)
            for name, one in described.items():
                memory = memoryview(bytearray(one.size_bytes))
                if one.size_bytes:
                    arrays.copy(tensors[name], arrays.view(memory, one.dtype, one.shape))
                file.write(memory)
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def _load_file(path: Path) -> dict[str, Any]:
    """Return the tensors of a `.safetensors` file, over a private map of it."""
    try:
        with path.open("rb") as file:
            data = memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY))
        size = int.from_bytes(data[:8], "little")
        if size > min(MAX_HEADER, len(data) - 8):
            raise ValueError("its header is longer than the file")
        header = json.loads(bytes(data[8 : 8 + size]))
        header.pop("__metadata__", None)
        return {name: _array(data[8 + size :], name, entry) for name, entry in header.items()}
    except FileNotFoundError:
        raise NotFoundError(f"There is no {path}.") from None
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise UserError(f"{path} is no whole safetensors file: {error}") from error


def _array(data: memoryview, name: str, entry: dict[str, Any]) -> Any:
    if entry["dtype"] not in _NAMES:
        raise UserError(f"{name!r} is {entry['dtype']}, which this trainlet does not know.")
    dtype, shape = _NAMES[entry["dtype"]], tuple(int(one) for one in entry["shape"])
    begin, end = (int(one) for one in entry["data_offsets"])
    if not 0 <= begin <= end <= len(data) or end - begin != math.prod(shape) * layouts.DTYPES[dtype][1]:
        raise ValueError(f"{name!r} lies outside of it")
    found = arrays.view(data[begin:end], dtype, shape)
    return _torch("bfloat16").from_numpy(found).view(_torch("bfloat16").bfloat16) if dtype == "bfloat16" else found


class _Metadata(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        if name not in _SAFE.get(module, ()):
            raise pickle.UnpicklingError(f"its metadata names {module}.{name}")
        return super().find_class(module, name)


def _load_dcp(folder: Path) -> Any:
    """Return the state dictionary of a DCP folder; what it holds beside tensors is read with `weights_only`."""
    torch = _torch("importing a DCP folder")
    from torch.distributed.checkpoint import FileSystemReader
    from torch.distributed.checkpoint._nested_dict import set_element
    from torch.distributed.checkpoint.api import CheckpointException
    from torch.distributed.checkpoint.default_planner import _EmptyStateDictLoadPlanner
    from torch.distributed.checkpoint.state_dict_loader import _load_state_dict

    class Reader(FileSystemReader):  # type: ignore[misc]
        def read_metadata(self, *_: Any, **__: Any) -> Any:
            return metadata

    class Planner(_EmptyStateDictLoadPlanner):  # type: ignore[misc]
        def load_bytes(self, read_item: Any, value: Any) -> None:
            name = read_item.dest_index.fqn
            set_element(self.original_state_dict, self.mappings[name], torch.load(value, weights_only=True))

    state: dict[str, Any] = {}
    try:
        metadata = _Metadata(io.BytesIO((folder / ".metadata").read_bytes())).load()
        if any(Path(one.relative_path).name != one.relative_path for one in metadata.storage_data.values()):
            raise pickle.UnpicklingError("its metadata names a file outside of its folder")
        _load_state_dict(state, storage_reader=Reader(str(folder)), planner=Planner(), no_dist=True)
    except (Exception, CheckpointException) as error:
        first = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise UserError(f"{folder} cannot be imported without running code from it, or is damaged: {first}") from error
    return state


def _torch(what: str) -> Any:
    try:
        import torch
    except ImportError:
        raise UserError(f"{what} needs PyTorch: pip install 'trainlet[torch]'") from None
    return torch
