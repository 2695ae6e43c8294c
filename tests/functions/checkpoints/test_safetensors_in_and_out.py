"""Files of safetensors come in and go out without PyTorch; what is no such file is told."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import trainlet as tl
from trainlet.client.stores import open_store
from trainlet_functions.checkpoints import Checkpointer


def write(path: Path, arrays: dict[str, np.ndarray], **changes: object) -> Path:
    """Write a file as another tool would."""
    header: dict[str, object] = {"__metadata__": {"by": "somebody"}}
    position = 0
    for name, array in arrays.items():
        end = position + array.nbytes
        header[name] = {"dtype": "F32", "shape": list(array.shape), "data_offsets": [position, end], **changes}
        position = end
    raw = json.dumps(header).encode()
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(len(raw).to_bytes(8, "little") + raw + b"".join(array.tobytes() for array in arrays.values()))
    return path


def restored(store: str) -> np.ndarray:
    weights = np.zeros((2, 3), np.float32)
    ck = Checkpointer(open_store(store), "runs/new", 99)
    model = {"weights": weights, "bias": np.zeros(2, np.float32)}
    ck.register(model=model)
    assert ck.restore() is not None
    return np.concatenate([model["weights"].ravel(), model["bias"]])


def test_a_file_comes_in_and_goes_out_again(tmp_path: Path) -> None:
    store = str(tmp_path / "store")
    weights = np.arange(6, dtype=np.float32).reshape(2, 3)
    bias = np.array([7, 8], np.float32)
    path = write(tmp_path / "a.safetensors", {"weights": weights, "bias": bias})
    assert tl.checkpoints.import_("new", path, step=3, store=store) == ("model",)
    assert list(restored(store)) == [0, 1, 2, 3, 4, 5, 7, 8]
    assert tl.checkpoints.export("new", tmp_path / "out", format="hf", store=store) == 3
    assert tl.checkpoints.import_("again", tmp_path / "out", store=store) == ("model",)
    assert tl.checkpoints.export("again", tmp_path / "b.safetensors", only="model", store=store) == 0
    again = tl.checkpoints.import_("third", tmp_path / "b.safetensors", store=store)
    assert again == ("model",) and tl.checkpoints.verify("third", store=store) == []


def test_a_folder_of_several_files_is_one_model(tmp_path: Path) -> None:
    store = str(tmp_path / "store")
    write(tmp_path / "hf" / "one.safetensors", {"weights": np.ones((2, 3), np.float32)})
    write(tmp_path / "hf" / "two.safetensors", {"bias": np.full(2, 2, np.float32)})
    index = {"weight_map": {"weights": "one.safetensors", "bias": "two.safetensors"}}
    (tmp_path / "hf" / "model.safetensors.index.json").write_text(json.dumps(index))
    tl.checkpoints.import_("new", tmp_path / "hf", store=store)
    assert list(restored(store)) == [1] * 6 + [2] * 2


@pytest.mark.parametrize(
    "changes",
    [{"data_offsets": [0, 1 << 40]}, {"data_offsets": [-24, 0]}, {"shape": [3, 3]}, {"dtype": "F8"}, {"shape": "x"}],
)
def test_I17_a_header_that_lies_is_refused(tmp_path: Path, changes: dict[str, object]) -> None:
    path = write(tmp_path / "a.safetensors", {"weights": np.ones((2, 3), np.float32)}, **changes)
    with pytest.raises(tl.UserError):
        tl.checkpoints.import_("new", path, store=str(tmp_path / "store"))


@pytest.mark.parametrize("raw", [b"", b"x", b"\xff" * 64, (5).to_bytes(8, "little") + b"[1,2]"])
def test_what_is_no_such_file_is_told(tmp_path: Path, raw: bytes) -> None:
    path = tmp_path / "a.safetensors"
    path.write_bytes(raw)
    with pytest.raises(tl.UserError, match=r"a\.safetensors"):
        tl.checkpoints.import_("new", path, store=str(tmp_path / "store"))


def test_a_file_of_an_index_may_not_lie_elsewhere(tmp_path: Path) -> None:
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps({"weight_map": {"w": "../other.safetensors"}}))
    with pytest.raises(tl.UserError, match="outside of its folder"):
        tl.checkpoints.import_("new", tmp_path, store=str(tmp_path / "store"))
