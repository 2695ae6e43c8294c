"""`tl.checkpoint` outside of a step: a sidecar saves, and outlives the script."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

import trainlet as tl

SCRIPT = """
import sys, time, numpy as np, trainlet as tl
weights = np.zeros(1000)
ck = tl.checkpoint("mine", store=sys.argv[1], every="1h")
ck.register(weights=weights)
ck.restore()
for step in range(1, 10_000):
    weights[:] = step
    ck.step(step)
    print(step, flush=True)
    time.sleep(0.02)
"""


def restored(store: str) -> int:
    weights = np.zeros(1000)
    with tl.checkpoint("mine", store=store) as ck:
        ck.register(weights=weights)
        progress = ck.restore()
    assert progress is None or set(weights) == {float(progress.step)}
    return progress.step if progress else 0


def test_saving_goes_through_the_sidecar(tmp_path: Path) -> None:
    store = str(tmp_path)
    weights = np.zeros(1000)
    with tl.checkpoint("mine", store=store, every=1e-3) as ck:
        ck.register(weights=weights)
        assert ck.restore() is None
        for step in (1, 2, 3):
            weights[:] = step
            ck.step(step)
        ck.save(4)
        weights[:] = 0
        again = ck.restore()
        assert again is not None and again.step == 4
        assert set(weights) == {3.0}
    assert tl.checkpoints.ls("mine", store=store)[0].step == 4
    assert tl.checkpoints.verify("mine", store=store) == []


def test_C1_a_killed_script_leaves_its_newest_staged_state(tmp_path: Path) -> None:
    store = str(tmp_path)
    with subprocess.Popen([sys.executable, "-c", SCRIPT, store], stdout=subprocess.PIPE, text=True) as script:
        assert script.stdout is not None
        for _ in range(30):
            script.stdout.readline()
        script.send_signal(signal.SIGKILL)
    deadline = time.monotonic() + 60
    while not tl.checkpoints.ls("mine", store=store):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    assert restored(store) >= 1
    assert tl.checkpoints.ls("mine", store=store)[0].reason == "lost"


def test_another_rank_than_the_first_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANK", "1")
    with pytest.raises(tl.UserError, match=r"rank 1.*Save on rank 0"):
        tl.checkpoint("mine", store=str(tmp_path / "store"))
