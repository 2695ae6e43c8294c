"""Values between steps come back as they were, and what cannot travel says where it is."""

from __future__ import annotations

import dataclasses
import datetime
import enum
import math
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pydantic
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trainlet.client.stores import DirectoryStore
from trainlet.core import codecs
from trainlet.core.artifacts import Dataset, Model
from trainlet.core.errors import PlatformError, UserError


class Color(enum.Enum):
    RED = "red"


class Point(NamedTuple):
    x: int
    y: float


@dataclasses.dataclass
class Result:
    loss: float
    parts: tuple[int, ...]


class Config(pydantic.BaseModel):
    lr: float
    names: list[str]


@pytest.fixture
def store(tmp_path: Path) -> DirectoryStore:
    return DirectoryStore(tmp_path / "store")


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner) | st.tuples(inner, inner),
    max_leaves=20,
)


@settings(deadline=None)
@given(value=JSON)
def test_json_values_and_tuples_keep_their_types(tmp_path_factory: pytest.TempPathFactory, value: Any) -> None:
    store = DirectoryStore(tmp_path_factory.getbasetemp() / "shared-store")
    back = codecs.decode(codecs.encode(value, store), store)
    assert back == value
    assert repr(back) == repr(value)


@pytest.mark.parametrize(
    "value",
    [
        {1, 2},
        frozenset({"a"}),
        b"\x00\xff",
        {1: "a", (1, 2): "b"},
        {"$trainlet": "not ours"},
        Color.RED,
        Point(1, 2.5),
        Result(0.5, (1, 2)),
        Config(lr=0.1, names=["a"]),
        datetime.datetime(2026, 1, 2, tzinfo=datetime.UTC),
        datetime.date(2026, 1, 2),
        datetime.timedelta(days=1, microseconds=3),
        np.float32(1.5),
        math.inf,
    ],
    ids=lambda value: type(value).__name__,
)
def test_other_values_come_back_equal_and_of_their_type(store: DirectoryStore, value: Any) -> None:
    back = codecs.decode(codecs.encode([value], store), store)[0]
    assert back == value and type(back) is type(value)


def test_arrays_come_back_with_dtype_and_shape(store: DirectoryStore) -> None:
    array = np.arange(6, dtype=np.int16).reshape(2, 3)
    back = codecs.decode(codecs.encode({"a": array}, store), store)["a"]
    assert back.dtype == array.dtype and (back == array).all()


def test_big_values_go_to_the_store(store: DirectoryStore) -> None:
    value = list(range(50_000))
    encoded = codecs.encode(value, store)
    assert encoded["$trainlet"] == "blob"
    assert codecs.decode(encoded, store) == value
    assert codecs.select(encoded, (7,), store) == 7


def test_a_folder_travels_with_its_metadata_and_is_stored_once(store: DirectoryStore, tmp_path: Path) -> None:
    data = Dataset(rows=2)
    (data.path / "deep").mkdir()
    (data.path / "deep" / "a.txt").write_text("same")
    (data.path / "b.txt").write_text("same")
    encoded = codecs.encode(data, store)
    back = codecs.decode(encoded, store, workdir=tmp_path / "work")
    assert isinstance(back, Dataset) and back.metadata == {"rows": 2}
    assert (back.path / "deep" / "a.txt").read_text() == "same"
    assert len(list(store.list("blobs/"))) == 1
    assert codecs.select(encoded, ("metadata", "rows"), store) == 2
    assert codecs.encode(back, store) == encoded


def test_a_file_travels_under_its_name(store: DirectoryStore, tmp_path: Path) -> None:
    (tmp_path / "model.bin").write_bytes(b"weights")
    encoded = codecs.encode(Model.from_path(tmp_path / "model.bin", accuracy=0.9), store)
    back = codecs.decode(encoded, store, workdir=tmp_path / "work")
    assert back.path.name == "model.bin" and back.path.read_bytes() == b"weights"


def test_what_cannot_travel_is_named_with_its_place(store: DirectoryStore) -> None:
    with pytest.raises(UserError, match=r"the result\['models'\]\[1\] is a builtins\.object.*allow_pickle"):
        codecs.encode({"models": [1, object()]}, store, name="the result")


def test_paths_travel_with_what_they_name(store: DirectoryStore, tmp_path: Path) -> None:
    file, folder = tmp_path / "there" / "words.txt", tmp_path / "there" / "tree"
    (folder / "deep").mkdir(parents=True)
    file.write_text("words")
    (folder / "deep" / "leaf.bin").write_bytes(b"\0leaf")
    (folder / "top").write_text("top")
    encoded = codecs.encode({"file": file, "folder": [folder]}, store)
    for gone in (file, folder / "deep" / "leaf.bin", folder / "top"):
        gone.unlink()
    back = codecs.decode(encoded, store, workdir=tmp_path / "here")
    (tree,) = back["folder"]
    assert isinstance(back["file"], Path) and back["file"].is_relative_to(tmp_path / "here")
    assert back["file"].read_text() == "words"
    found = {path.relative_to(tree).as_posix(): path.read_bytes() for path in tree.rglob("*") if path.is_file()}
    assert found == {"deep/leaf.bin": b"\0leaf", "top": b"top"}


def test_a_pickle_is_read_only_by_those_who_opt_in(store: DirectoryStore) -> None:
    encoded = codecs.encode(slice(1, 2), store, allow_pickle=True)
    with pytest.raises(UserError, match="allow_pickle=True"):
        codecs.decode(encoded, store)
    assert codecs.decode(encoded, store, allow_pickle=True) == slice(1, 2)


@pytest.mark.parametrize("path", ["../evil", "/etc/passwd", "a/../../b", ""])
def test_a_folder_that_names_a_file_outside_is_refused(store: DirectoryStore, tmp_path: Path, path: str) -> None:
    from trainlet.core.models import canonical_json, sha256_hex

    tree = canonical_json([{"path": path, "sha256": "0" * 64, "size_bytes": 0}])
    digest = sha256_hex(tree)
    store.create(f"trees/{digest}.json", tree)
    encoded = {"$trainlet": "artifact", "class": "Dataset", "digest": digest, "form": "folder", "size_bytes": 0}
    with pytest.raises(PlatformError, match="outside of the folder"):
        _ = codecs.decode(encoded, store, workdir=tmp_path / "work").path


@pytest.mark.parametrize(
    "data",
    [
        {"$trainlet": "from the future"},
        {"$trainlet": "ndarray", "digest": "../../etc/passwd"},
        {"$trainlet": "tuple"},
        {"$trainlet": "artifact", "class": "Nope", "digest": "0" * 64, "form": "file", "size_bytes": 0},
    ],
)
def test_damaged_values_are_refused(store: DirectoryStore, data: Any) -> None:
    with pytest.raises(PlatformError):
        codecs.decode(data, store)


def test_a_type_that_is_no_data_type_is_never_called(store: DirectoryStore) -> None:
    with pytest.raises(UserError, match="not a data type"):
        codecs.decode({"$trainlet": "dataclass", "type": "os:system", "fields": {}}, store)
