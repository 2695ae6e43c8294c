"""`trainlet run` and the commands about runs, as a person (or a script) uses them."""

from __future__ import annotations

import functools
import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

pytestmark = [pytest.mark.timeout(150), pytest.mark.xdist_group("cli")]

TRAINLET = str(Path(sys.executable).with_name("trainlet"))
FLOW = """
import time
import trainlet as tl


@tl.step(gpu="A100", checkpoint=tl.Checkpoint(every=0.05))
def count(steps: int, pace: float, *, ctx: tl.Context = tl.INJECTED) -> int:
    state = {"sum": 0}
    ctx.checkpoint.register(state=state)
    start = ctx.checkpoint.restore()
    for step in range(start.step if start else 0, steps):
        state["sum"] += step
        print(f"step {step}")
        ctx.progress(step + 1, steps)
        time.sleep(pace)
        ctx.checkpoint.step(step + 1)
    return state["sum"]


@tl.step
def fails(x: int) -> int:
    print("about to fail")
    return x // 0


@tl.pipeline
def counting(steps: int = 3, pace: float = 0.0, label: str = "") -> int:
    return count(steps, pace)


@tl.pipeline
def failing(x: int = 1) -> int:
    return fails(x)


@tl.pipeline
def labelled(label: str) -> str:
    return show(label)


@tl.step
def show(label: str) -> str:
    return label
"""


@pytest.fixture(autouse=True)
def flow(write):
    write("flow.py", FLOW)


def run_id(text: str) -> str:
    found = re.search(r"^run (\S+)", text, re.MULTILINE)
    assert found, text
    return found[1]


def test_a_run_shows_states_lines_and_the_bill(trainlet):
    done = trainlet("run", "flow.py:counting", "-p", "steps=4", "-p", "pace=0.5")
    assert done.returncode == 0, done.stderr
    name = run_id(done.stdout)
    assert re.search(r"^\d\d:\d\d:\d\d count running: ", done.stdout, re.MULTILINE)
    assert re.search(r"^\d\d:\d\d:\d\d \[count\] step 3$", done.stdout, re.MULTILINE)
    table = next(line for line in done.stdout.splitlines() if line.startswith("count\t"))
    assert table.split("\t")[1:3] == ["succeeded", "1 succeeded"] and "A100-80GB (virtual)" in table
    assert "result: 6" in done.stdout and "virtual devices" in done.stdout

    listed = json.loads(trainlet("runs", "--json").stdout)
    assert name in [one["id"] for one in listed]
    lines = [json.loads(line)["text"] for line in trainlet("logs", name, "--json").stdout.splitlines()]
    assert lines == [f"step {step}" for step in range(4)]
    assert trainlet("logs", name, "--task", "count").stdout.count("[count] step") == 4
    bill = json.loads(trainlet("usage", name, "--json").stdout)
    assert bill["virtual"] and bill["rows"][0]["node"] == "count"
    assert "count" in trainlet("usage", name).stdout
    assert "flow-count" in [one["name"] for one in json.loads(trainlet("functions", "--json").stdout)]


def test_a_failed_run_exits_1_and_shows_the_persons_lines_on_one_screen(trainlet):
    done = trainlet("run", "flow.py:failing")
    assert done.returncode == 1
    assert "fails failed at flow.py:23: ZeroDivisionError" in done.stderr
    assert "return x // 0" in done.stderr and "trainlet logs failing-" in done.stderr
    assert len(done.stderr.splitlines()) <= 40
    assert "sdk/trainlet" not in done.stderr
    assert "[fails] about to fail" in done.stdout


def test_json_is_all_that_is_on_stdout(trainlet):
    done = trainlet("run", "flow.py:counting", "--json")
    view = json.loads(done.stdout)
    assert view["state"] == "succeeded" and view["outputs"] == {"result": 3}
    assert [task["state"] for task in view["tasks"]] == ["succeeded"]
    failed = trainlet("run", "flow.py:failing", "--json")
    assert failed.returncode == 1 and json.loads(failed.stdout)["error"]["kind"] == "user"


def test_a_text_parameter_stays_text_whatever_it_looks_like(trainlet):
    done = trainlet("run", "flow.py:labelled", "-p", "label=007", "--json")
    assert json.loads(done.stdout)["outputs"] == {"result": "007"}


def test_local_runs_here_and_a_failure_is_the_persons_own_traceback(trainlet):
    done = trainlet("run", "flow.py:counting", "--local")
    assert (done.returncode, done.stdout.splitlines()[-1]) == (0, "result: 3")
    failed = trainlet("run", "flow.py:failing", "--local")
    assert failed.returncode == 1
    assert failed.stderr.startswith("Traceback") and "ZeroDivisionError" in failed.stderr
    assert "sdk/trainlet" not in failed.stderr and "The step 'fails' failed." in failed.stderr


def test_ctrl_c_cancels_and_says_how_to_resume_and_resume_goes_on(trainlet, home, tmp_path):
    command = [TRAINLET, "run", "flow.py:counting"]
    with subprocess.Popen(
        [*command, "-p", "steps=300", "-p", "pace=0.05"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=tmp_path,
        # The background jobs of a shell ignore SIGINT, and so would this.
        preexec_fn=functools.partial(signal.signal, signal.SIGINT, signal.SIG_DFL),
    ) as process:
        assert process.stdout is not None and process.stderr is not None
        name = run_id(process.stdout.readline())
        while "step 5" not in process.stdout.readline():
            pass
        process.send_signal(signal.SIGINT)
        rest = process.stderr.read()
        process.stdout.read()
    assert process.returncode == 130, rest
    assert rest.split() == f"Run {name} was cancelled. Continue it with: trainlet resume {name}".split()
    deadline = time.monotonic() + 20
    while json.loads(trainlet("runs", "--json").stdout)[0]["task_counts"] != {"canceled": 1}:
        assert time.monotonic() < deadline
    done = trainlet("resume", name)
    assert done.returncode == 0, done.stderr
    assert "result: 44850" in done.stdout and "from step" in done.stdout


def test_cancel_from_another_process_ends_the_follower_with_1(trainlet, home, tmp_path):
    command = [TRAINLET, "run", "flow.py:counting"]
    with subprocess.Popen(
        [*command, "-p", "steps=4000", "-p", "pace=0.05"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=tmp_path,
    ) as process:
        assert process.stdout is not None and process.stderr is not None
        name = run_id(process.stdout.readline())
        while "step 1" not in process.stdout.readline():
            pass
        cancelled = trainlet("cancel", name)
        assert cancelled.returncode == 0 and f"{name} is canceled" in cancelled.stdout
        process.stdout.read()
        said = process.stderr.read()
    assert process.returncode == 1 and "was cancelled" in said


def test_a_script_follows_the_log_cancels_and_resumes_a_run_of_another_process(trainlet, home, tmp_path):
    steps = 400  # long enough for three commands to start on a slow machine
    command = [TRAINLET, "run", "flow.py:counting", "-p", f"steps={steps}", "-p", "pace=0.05"]
    quiet = {"stderr": subprocess.DEVNULL, "text": True, "cwd": tmp_path}
    with subprocess.Popen(command, stdout=subprocess.PIPE, **quiet) as running:
        assert running.stdout is not None
        name = run_id(running.stdout.readline())
        with subprocess.Popen([TRAINLET, "logs", "-f", name, "--json"], stdout=subprocess.PIPE, **quiet) as following:
            assert following.stdout is not None
            first = [json.loads(following.stdout.readline()) for _ in range(5)]
            assert [line["text"] for line in first] == [f"step {step}" for step in range(5)]
            cancelled = trainlet("cancel", name, "--json")
            assert cancelled.returncode == 0, cancelled.stderr
            assert json.loads(cancelled.stdout)["id"] == name
            assert json.loads(cancelled.stdout)["state"] == "canceled"
            following.stdout.read()
        assert following.returncode == 0, "the log ends with its run"
        running.stdout.read()
    resumed = trainlet("resume", name, "--json")
    assert resumed.returncode == 0, resumed.stderr
    view = json.loads(resumed.stdout)
    assert (view["id"], view["state"], view["outputs"]) == (name, "succeeded", {"result": sum(range(steps))})
    assert [one["state"] for one in view["tasks"][0]["attempts"]] == ["canceled", "succeeded"]


def test_a_reader_that_goes_away_is_no_error(trainlet, home, tmp_path):
    name = run_id(trainlet("run", "flow.py:counting", "-p", "steps=200").stdout)
    shell = f"{TRAINLET} logs {name} | head -n 1"
    done = subprocess.run(
        ["bash", "-c", shell], capture_output=True, text=True, timeout=120, check=False, env=os.environ
    )
    assert done.stdout.count("\n") == 1 and done.stderr == ""
