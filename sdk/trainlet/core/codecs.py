"""How Python values travel between steps: as JSON that says what it is, never as pickle unless somebody opts in.

Plain JSON encodes as itself, so ints stay ints. Everything else is an object with the key `$trainlet` that names its
kind. Big values move to the store as content-addressed blobs; the JSON then holds only their digest.

This module must not know who sends a value or why. Loading never imports anything but the type that a value names, and
that type must be a dataclass, pydantic model, named tuple or enum.
"""

from __future__ import annotations

import base64
import binascii
import contextlib
import dataclasses
import datetime
import enum
import importlib
import io
import json
import math
import sys
import tempfile
from pathlib import Path, PurePath
from typing import Any

from pydantic import BaseModel, ValidationError

from trainlet.core import artifacts
from trainlet.core.errors import PlatformError, UserError
from trainlet.core.models import canonical_json, sha256_hex
from trainlet.core.protocols import ObjectStore

TAG = "$trainlet"
INLINE_BYTES = 64 * 1024


def encode(
    value: Any, store: ObjectStore, *, allow_pickle: bool = False, inline_bytes: int = INLINE_BYTES, name: str = "value"
) -> Any:
    """Return the JSON form of a value; files and arrays go to the store.

    Raises UserError that names the place inside the value when something cannot travel.
    """
    return offload(_encode(value, _Encoder(store, allow_pickle), name), store, inline_bytes)


def offload(encoded: Any, store: ObjectStore, inline_bytes: int = INLINE_BYTES) -> Any:
    """Return an encoded value, or a reference to the store where its JSON is longer than that."""
    raw = canonical_json(encoded)
    if len(raw) <= inline_bytes:
        return encoded
    return {TAG: "blob", "digest": _put_blob(raw, store), "size_bytes": len(raw)}


@dataclasses.dataclass(frozen=True, slots=True)
class _Encoder:
    store: ObjectStore
    allow_pickle: bool


def _encode(value: Any, to: _Encoder, where: str) -> Any:
    kind = type(value)
    if value is None or kind in (bool, int, str):
        return value
    if kind is float:
        return value if math.isfinite(value) else {TAG: "float", "value": repr(value)}
    if kind is list:
        return [_encode(item, to, f"{where}[{index}]") for index, item in enumerate(value)]
    if kind is dict:
        return _encode_dict(value, to, where)
    if isinstance(value, artifacts.Artifact):
        return _artifact(value, to)
    if isinstance(value, enum.Enum):
        return {TAG: "enum", "type": _type_name(kind, where), "name": value.name}
    if isinstance(value, tuple):
        items = [_encode(item, to, f"{where}[{index}]") for index, item in enumerate(value)]
        if hasattr(kind, "_fields"):
            return {
                TAG: "namedtuple",
                "type": _type_name(kind, where),
                "fields": dict(zip(kind._fields, items, strict=True)),
            }
        return {TAG: "tuple", "items": items}
    if isinstance(value, set | frozenset):
        parts = [_encode(item, to, f"{where}{{...}}") for item in value]
        return {TAG: "frozenset" if isinstance(value, frozenset) else "set", "items": sorted(parts, key=canonical_json)}
    if isinstance(value, bytes | bytearray):
        return {TAG: "bytes", "base64": base64.b64encode(value).decode()}
    if kind in (datetime.datetime, datetime.date):  # a subclass (pandas' Timestamp) would not come back as itself
        return {TAG: type(value).__name__, "value": value.isoformat()}
    if isinstance(value, datetime.timedelta):
        return {TAG: "timedelta", "value": [value.days, value.seconds, value.microseconds]}
    if isinstance(value, PurePath):
        return {TAG: "path", **_ref(artifacts.put(Path(value), to.store, {}))}
    if isinstance(value, BaseModel):
        fields = {name: _encode(getattr(value, name), to, f"{where}.{name}") for name in kind.model_fields}
        return {TAG: "pydantic", "type": _type_name(kind, where), "fields": fields}
    if dataclasses.is_dataclass(value):
        fields = {
            field.name: _encode(getattr(value, field.name), to, f"{where}.{field.name}")
            for field in dataclasses.fields(value)
            if field.init
        }
        return {TAG: "dataclass", "type": _type_name(kind, where), "fields": fields}
    return _encode_foreign(value, to, where)


def _encode_dict(value: dict[Any, Any], to: _Encoder, where: str) -> Any:
    if all(type(key) is str for key in value) and TAG not in value:
        return {key: _encode(item, to, f"{where}[{key!r}]") for key, item in value.items()}
    pairs = [[_encode(key, to, f"{where} key"), _encode(item, to, f"{where}[{key!r}]")] for key, item in value.items()]
    return {TAG: "dict", "pairs": pairs}


def _encode_foreign(value: Any, to: _Encoder, where: str) -> Any:
    """Encode what other libraries define, recognised without importing them."""
    numpy = sys.modules.get("numpy")
    if numpy is not None and isinstance(value, numpy.ndarray | numpy.generic):
        if isinstance(value, numpy.ndarray) and not value.dtype.hasobject:
            return {TAG: "ndarray", **_ref(_put_array(value, to.store))}
        if isinstance(value, numpy.generic) and not value.dtype.hasobject:
            return {TAG: "scalar", "dtype": value.dtype.str, "base64": base64.b64encode(value.tobytes()).decode()}
    if isinstance(value, int | float | str):  # subclasses such as IntEnum members were handled above
        return _encode(next(base for base in (int, float, str) if isinstance(value, base))(value), to, where)
    if to.allow_pickle:
        import pickle

        return {TAG: "pickle", "digest": _put_blob(pickle.dumps(value, protocol=5), to.store)}
    kind = f"{type(value).__module__}.{type(value).__qualname__}"
    raise UserError(
        f"{where} is a {kind}, which cannot travel between steps. Return JSON values, arrays, dataclasses or files "
        "(tl.Model, tl.Dataset), or set allow_pickle=True on the step, which lets whoever can write to the store run "
        "code in the steps that read it."
    )


def decode(data: Any, store: ObjectStore, *, workdir: Path | None = None, allow_pickle: bool = False) -> Any:
    """Return the Python value. Files are fetched into `workdir` when they are first used.

    Raises PlatformError for damaged data, UserError for a type that this process does not have or a refused pickle.
    """
    return _decode(data, store, workdir or Path(tempfile.gettempdir()) / "trainlet", allow_pickle)


def _decode(data: Any, store: ObjectStore, workdir: Path, allow_pickle: bool) -> Any:
    def inner(part: Any) -> Any:
        return _decode(part, store, workdir, allow_pickle)

    if isinstance(data, list):
        return [inner(item) for item in data]
    if not isinstance(data, dict):
        return data
    kind = data.get(TAG)
    if kind is None:
        return {key: inner(item) for key, item in data.items()}
    try:
        match kind:
            case "float":
                return float(data["value"])
            case "tuple":
                return tuple(inner(item) for item in data["items"])
            case "set":
                return {inner(item) for item in data["items"]}
            case "frozenset":
                return frozenset(inner(item) for item in data["items"])
            case "dict":
                return {inner(key): inner(item) for key, item in data["pairs"]}
            case "bytes":
                return base64.b64decode(data["base64"], validate=True)
            case "datetime":
                return datetime.datetime.fromisoformat(data["value"])
            case "date":
                return datetime.date.fromisoformat(data["value"])
            case "timedelta":
                days, seconds, microseconds = data["value"]
                return datetime.timedelta(days, seconds, microseconds)
            case "blob":
                return inner(load_blob(data, store))
            case "path":
                return artifacts.fetch(_read_ref(data), store, workdir)
            case "artifact":
                return artifacts.KINDS[data["class"]].from_ref(_read_ref(data), store, workdir)
            case "ndarray" | "scalar":
                return _decode_numpy(kind, data, store)
            case "enum":
                return _find_type(data["type"], enum.Enum)[data["name"]]
            case "dataclass" | "pydantic" | "namedtuple":
                return _build(kind, data["type"], {key: inner(item) for key, item in data["fields"].items()})
            case "pickle":
                return _unpickle(data, store, allow_pickle)
    except (KeyError, TypeError, ValueError, ValidationError, binascii.Error) as error:
        if isinstance(error, UserError):
            raise
        raise PlatformError(f"A value of kind {kind!r} is damaged or does not fit its type: {error}") from error
    raise PlatformError(f"A value has the unknown kind {kind!r}: it comes from a newer trainlet. Update this one.")


def select(data: Any, path: tuple[str | int, ...], store: ObjectStore) -> Any:
    """Return the part of an encoded value that keys, indices and field names lead to, still encoded.

    Raises UserError that says which part is missing.
    """
    for index, part in enumerate(path):
        data = resolve(data, store)
        inside = data
        if isinstance(data, dict) and TAG in data:
            kind = data[TAG]
            if kind in ("dataclass", "pydantic", "namedtuple"):
                fields = data["fields"]
                inside = list(fields.values()) if isinstance(part, int) else fields
            elif kind == "tuple":
                inside = data["items"]
            elif kind == "artifact" and part == "metadata":
                data = data["metadata"]
                continue
            elif kind == "dict":
                inside = {key: item for key, item in data["pairs"] if isinstance(key, str | int)}
        try:
            data = inside[part]
        except (KeyError, IndexError, TypeError):
            trail = "".join(f"[{step!r}]" for step in path[: index + 1])
            have = f" It has {', '.join(map(repr, list(inside)[:8]))}." if isinstance(inside, dict) else ""
            raise UserError(f"The result has no part {trail}.{have}") from None
    return data


def items(data: Any, store: ObjectStore) -> list[Any]:
    """Return the encoded elements of an encoded list, tuple, set or array-less sequence, for `tl.each`."""
    data = resolve(data, store)
    if isinstance(data, list):
        return data
    if isinstance(data, dict) and data.get(TAG) in ("tuple", "set", "frozenset"):
        return list(data["items"])
    kind = data.get(TAG, "dict") if isinstance(data, dict) else type(data).__name__
    raise UserError(f"tl.each needs a list, but got a value of kind {kind}. Return a list from the step.")


def resolve(data: Any, store: ObjectStore) -> Any:
    """Replace a blob reference by the JSON it stands for."""
    while isinstance(data, dict) and data.get(TAG) == "blob":
        data = load_blob(data, store)
    return data


def load_blob(data: dict[str, Any], store: ObjectStore) -> Any:
    """Return the verified JSON behind a blob reference."""
    return json.loads(_get_blob(data["digest"], store))


def _put_blob(raw: bytes, store: ObjectStore) -> str:
    digest = sha256_hex(raw)
    with contextlib.suppress(FileExistsError):
        store.create(artifacts.blob_key(digest), raw)
    return digest


def _get_blob(digest: str, store: ObjectStore) -> bytes:
    raw = store.get(artifacts.blob_key(digest))
    if sha256_hex(raw) != digest:
        raise PlatformError(f"The blob {digest[:12]} in {store.url} is damaged (its sha256 differs).")
    return raw


def _ref(ref: artifacts.ArtifactRef) -> dict[str, Any]:
    return ref.model_dump(mode="json")


def _read_ref(data: dict[str, Any]) -> artifacts.ArtifactRef:
    return artifacts.ArtifactRef.model_validate({k: v for k, v in data.items() if k not in (TAG, "class")})


def _artifact(value: artifacts.Artifact, to: _Encoder) -> dict[str, Any]:
    name = next(name for name, kind in reversed(artifacts.KINDS.items()) if isinstance(value, kind))
    return {TAG: "artifact", "class": name, **_ref(value.store(to.store))}


def _put_array(value: Any, store: ObjectStore) -> artifacts.ArtifactRef:
    import numpy

    buffer = io.BytesIO()
    numpy.save(buffer, value, allow_pickle=False)
    raw = buffer.getvalue()
    return artifacts.ArtifactRef(digest=_put_blob(raw, store), form="file", size_bytes=len(raw))


def _decode_numpy(kind: str, data: dict[str, Any], store: ObjectStore) -> Any:
    try:
        import numpy
    except ImportError as error:
        raise UserError("The value is a NumPy array and this process has no numpy: pip install numpy.") from error
    if kind == "scalar":
        return numpy.frombuffer(base64.b64decode(data["base64"], validate=True), dtype=numpy.dtype(data["dtype"]))[0]
    return numpy.load(io.BytesIO(_get_blob(data["digest"], store)), allow_pickle=False)


def _type_name(kind: type, where: str) -> str:
    if "<locals>" in kind.__qualname__:
        raise UserError(
            f"{where} is a {kind.__qualname__}: define the class at the top of its module so it can travel."
        )
    return f"{kind.__module__}:{kind.__qualname__}"


def _find_type(name: str, base: type | None = None) -> Any:
    module_name, _, qualname = name.partition(":")
    module = sys.modules.get(module_name)
    if module is None:
        try:
            module = importlib.import_module(module_name)
        except ImportError as error:
            raise UserError(f"The value is a {name}, and {module_name} cannot be imported here: {error}.") from error
    found: Any = module
    for part in qualname.split("."):
        found = getattr(found, part, None)
    proper = isinstance(found, type) and (
        issubclass(found, base)
        if base is not None
        else dataclasses.is_dataclass(found) or issubclass(found, BaseModel) or hasattr(found, "_fields")
    )
    if not proper:
        raise UserError(f"The value is a {name}, which is not a data type of {module_name} here.")
    return found


def _build(kind: str, name: str, fields: dict[str, Any]) -> Any:
    found = _find_type(name)
    return found.model_validate(fields) if kind == "pydantic" else found(**fields)


def _unpickle(data: dict[str, Any], store: ObjectStore, allow_pickle: bool) -> Any:
    if not allow_pickle:
        raise UserError(
            "The value was pickled; set allow_pickle=True on the step that reads it, if you trust its source."
        )
    import pickle

    return pickle.loads(_get_blob(data["digest"], store))  # noqa: S301 - the person opted in on this step
