"""What other tools have saved comes in, what was saved here goes out, and neither runs code."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import trainlet as tl
from trainlet.client.stores import open_store
from trainlet_functions.checkpoints import Checkpointer

torch = pytest.importorskip("torch")


def model() -> Any:
    torch.manual_seed(1)
    made = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.BatchNorm1d(4), torch.nn.Linear(4, 2))
    made[2].to(torch.bfloat16)
    return made


def trained() -> tuple[Any, Any]:
    made = model()
    optimizer = torch.optim.AdamW(made.parameters(), lr=0.5)
    for one in made.parameters():
        one.grad = torch.ones_like(one)
    optimizer.step()
    return made, optimizer


@pytest.fixture
def store(tmp_path: Path) -> str:
    return str(tmp_path / "store")


def restored(store: str, **objects: Any) -> int:
    ck = Checkpointer(open_store(store), "runs/new", 99)
    ck.register(**objects)
    start = ck.restore()
    assert start is not None
    return start.step


def same(one: Any, other: Any) -> bool:
    return all(torch.equal(value, other.state_dict()[name]) for name, value in one.state_dict().items())


def write(kind: str, path: Path, made: Any, optimizer: Any) -> Path:
    """Save as another tool does."""
    if kind == "torch":
        torch.save({"model": made.state_dict(), "optimizer": optimizer.state_dict(), "step": 7}, path)
    elif kind == "dcp":
        import torch.distributed.checkpoint as dcp

        state = {"model": made.state_dict(), "optimizer": optimizer.state_dict(), "step": 7}
        dcp.save(state, checkpoint_id=str(path), no_dist=True)
    else:
        from safetensors.torch import save_file

        if kind == "hf":
            path.mkdir()
        save_file(made.state_dict(), path / "model.safetensors" if kind == "hf" else path)
    return path


@pytest.mark.parametrize("kind", ["safetensors", "hf", "torch", "dcp"])
def test_weights_of_another_tool_are_the_beginning_of_a_run(store: str, tmp_path: Path, kind: str) -> None:
    made, optimizer = trained()
    path = write(kind, tmp_path / f"other.{'safetensors' if kind == 'safetensors' else 'x'}", made, optimizer)
    names = tl.checkpoints.import_("new", path, step=7, store=store)
    fresh, again = model(), torch.optim.AdamW(model().parameters(), lr=0.1)
    assert set(names) == ({"model"} if kind in ("safetensors", "hf") else {"model", "optimizer", "extra"})
    assert restored(store, model=fresh) == 7 and same(fresh, made)
    if kind == "torch":
        restored(store, optimizer=again)
        assert again.param_groups[0]["lr"] == 0.5


@pytest.mark.parametrize("kind", ["hf", "torch", "dcp"])
def test_what_was_saved_here_is_read_by_the_tool_itself(store: str, tmp_path: Path, kind: Any) -> None:
    made, optimizer = trained()
    ck = Checkpointer(open_store(store), "runs/new", 1)
    ck.register(model=made, optimizer=optimizer, extra=np.arange(3))
    ck.save(5)
    path = tmp_path / "out"
    assert tl.checkpoints.export("new", path, format=kind, store=store) == 5
    fresh = model()
    if kind == "hf":
        from safetensors.torch import load_file

        fresh.load_state_dict(load_file(path / "model.safetensors"))
    elif kind == "torch":
        found = torch.load(path, weights_only=True)
        fresh.load_state_dict(found["model"])
        assert found["optimizer"]["param_groups"][0]["lr"] == 0.5
    else:
        import torch.distributed.checkpoint as dcp

        state = {"model": fresh.state_dict()}
        dcp.load(state, checkpoint_id=str(path), no_dist=True)
        fresh.load_state_dict(state["model"])
    assert same(fresh, made)


class Evil:
    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return Path.touch, (self.path,)


@pytest.mark.parametrize("kind", ["torch", "dcp"])
def test_I17_a_file_that_would_run_code_is_refused(store: str, tmp_path: Path, kind: str) -> None:
    mark = tmp_path / "mark"
    path = tmp_path / "evil"
    if kind == "torch":
        torch.save({"model": Evil(mark)}, path)
    else:
        write("dcp", path, *trained())
        (path / ".metadata").write_bytes(pickle.dumps(Evil(mark)))
    with pytest.raises(tl.UserError, match="without running code"):
        tl.checkpoints.import_("new", path, store=store)
    assert not mark.exists()
