"""`trainlet up`: a platform of this terminal, for its user only, which ends with Ctrl-C; another goes when it is idle."""

from __future__ import annotations

import functools
import importlib
import json
import os
import re
import signal
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from tests.waiting import eventually

import trainlet as tl
from trainlet_functions import processes

pytestmark = [pytest.mark.timeout(200), pytest.mark.xdist_group("cli")]

TRAINLET = str(Path(sys.executable).with_name("trainlet"))


@pytest.fixture
def own(tmp_path: Path, isolated_environment: None, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A home of this test's own."""
    home = tmp_path / "own"
    monkeypatch.setenv("TRAINLET_HOME", str(home))
    monkeypatch.setenv("TRAINLET_VIRTUAL_GPUS", "1")
    yield home
    for process in psutil.process_iter(["cmdline"]):
        if str(home) in (process.info["cmdline"] or []):
            process.kill()
            psutil.wait_procs([process], timeout=10)
    processes.kill_marked("TRAINLET_HOME", str(home))


def test_up_says_its_address_listens_for_this_user_only_and_ctrl_c_ends_it(own: Path) -> None:
    with subprocess.Popen(
        [TRAINLET, "up"],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        start_new_session=True,
        # The background jobs of a shell ignore SIGINT, and so would this.
        preexec_fn=functools.partial(signal.signal, signal.SIGINT, signal.SIG_DFL),
    ) as process:
        assert process.stdout is not None
        said = process.stdout.readline()
        found = re.fullmatch(r"dashboard: (http://127\.0\.0\.1:\d+)/\?token=(\S+)\n", said)
        assert found, said
        note = own / "platform.json"
        known = json.loads(note.read_text())
        assert (known["url"], known["token"]) == found.groups()
        assert stat.S_IMODE(note.stat().st_mode) == 0o600
        assert stat.S_IMODE(own.stat().st_mode) == 0o700
        platform = psutil.Process(known["pid"])
        listening = [at.laddr.ip for at in platform.net_connections("tcp") if at.status == psutil.CONN_LISTEN]
        assert listening == ["127.0.0.1"]
        assert [run.id for run in tl.runs.list()] == []
        os.killpg(process.pid, signal.SIGINT)  # as a terminal does: everybody in the foreground
        process.stdout.read()
    assert process.returncode == 0
    assert not platform.is_running() and not note.exists()


def test_up_tells_programs_where_it_is_and_ends_with_its_platform_when_it_is_terminated(own: Path) -> None:
    with subprocess.Popen(
        [TRAINLET, "up", "--json"], stdout=subprocess.PIPE, text=True, start_new_session=True
    ) as process:
        assert process.stdout is not None
        said = ""
        while not said.endswith("}\n"):
            said += process.stdout.readline() or "}\n"
        told = json.loads(said)
        known = json.loads((own / "platform.json").read_text())
        assert {name: told[name] for name in ("url", "token", "pid")} == {n: known[n] for n in ("url", "token", "pid")}
        assert told["dashboard"] == f"{known['url']}/?token={known['token']}"
        process.terminate()
        process.stdout.read()
    assert process.returncode == 0
    assert not psutil.pid_exists(told["pid"]) and not (own / "platform.json").exists()


SOURCE = """
import trainlet as tl

@tl.step(gpu="A100")
def tells(*, ctx: tl.Context = tl.INJECTED) -> int:
    ctx.logger.warning("%s of %d", "one", 2)
    ctx.metrics(3, loss=0.25)
    ctx.progress(1, 4, "warming up")
    return ctx.attempt
"""


def test_a_step_is_heard_and_then_everything_scales_to_zero(
    own: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRAINLET_WARM_S", "1")
    monkeypatch.setenv("TRAINLET_IDLE_S", "8")
    (tmp_path / "telling.py").write_text(SOURCE)
    monkeypatch.syspath_prepend(str(tmp_path))
    run = importlib.import_module("telling").tells.spawn()
    assert run.result(120) == 1
    (task,) = run.tasks
    assert task.metrics == {"loss": 0.25}
    assert task.progress == {"done": 1, "total": 4, "message": "warming up"}
    assert [line.text for line in run.logs() if "one of 2" in line.text]
    platform = psutil.Process(json.loads((own / "platform.json").read_text())["pid"])
    eventually(lambda: not list((own / "workers").iterdir()))
    assert platform.is_running(), "the worker went by itself"
    eventually(lambda: not platform.is_running() or platform.status() == psutil.STATUS_ZOMBIE)
    assert not (own / "platform.json").exists()
    assert "stopping because of idleness" in (own / "platform.log").read_text()
