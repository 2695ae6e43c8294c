"""What a person gets wrong is said in one screen, with the nearest right thing, and an exit code."""

from __future__ import annotations

import json
import socket

import pytest

pytestmark = [pytest.mark.timeout(150), pytest.mark.xdist_group("cli")]

FLOW = """
import trainlet as tl


@tl.step
def double(x: int, *, ctx: tl.Context = tl.INJECTED) -> int:
    return 2 * x


@tl.pipeline
def training(rate: float, x: int = 1) -> int:
    return double(x)
"""


@pytest.fixture(autouse=True)
def flow(write):
    write("flow.py", FLOW)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["run", "flow.py:trainin"], "Did you mean 'training'"),
        (["run", "flow.py", "-p", "rat=1"], "Did you mean 'rate'"),
        (["run", "flow.py", "-p", "rate"], "not name=value"),
        (["run", "flow.py", "-p", "rate=fast"], "rate=fast does not fit float"),
        (["run", "flow.py", "-p", "rate=1", "-p", "x=1.5"], "x=1.5 does not fit int"),
        (["run", "flow.py"], "without a value: rate"),
        (["run", "flow.py:double", "-p", "ctx=1"], "no parameter 'ctx'"),
        (["run", "nowhere.py"], "no file 'nowhere.py'"),
        (["run", "notes.txt"], "no Python file"),
        (["run", "json.py"], "Rename the file"),
        (["run", "empty.py"], "no @tl.pipeline and no @tl.step"),
        (["run", "several.py"], "name one, such as several.py:one"),
        (["run"], "Missing argument"),
        (["rums"], "No such command"),
        (["compile", "flow.py:double", "-o", "out.yaml"], "only a @tl.pipeline compiles"),
    ],
)
def test_it_exits_2_and_says_what_is_right(trainlet, write, arguments, said):
    write("notes.txt", "")
    if "json.py" in arguments:
        write("json.py", "")
    write("empty.py", "x = 1")
    write("several.py", "import trainlet as tl\n@tl.pipeline\ndef one(): ...\n@tl.pipeline\ndef two(): ...\n")
    done = trainlet(*arguments)
    assert done.returncode == 2 and said in done.stderr, done.stderr
    assert "Traceback" not in done.stderr and done.stdout == ""


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("import nothing_like_it", "ModuleNotFoundError: No module named 'nothing_like_it'"),
        ("def f(:\n", "SyntaxError"),
        ("x = 1\ny = x / 0", 'broken.py", line 2'),
        ("import trainlet as tl\n@tl.step(gpu='A10O')\ndef f(): ...", "Did you mean 'A10'"),
    ],
)
def test_a_file_that_cannot_be_imported_shows_the_persons_lines_only(trainlet, write, source, said):
    write("broken.py", source)
    done = trainlet("run", "broken.py")
    assert done.returncode == 2 and said in done.stderr, done.stderr
    assert "sdk/trainlet" not in done.stderr and "importlib" not in done.stderr


def test_debug_shows_the_whole_traceback(trainlet):
    done = trainlet("run", "nowhere.py", TRAINLET_DEBUG="1")
    assert done.returncode == 2 and "cli/loading.py" in done.stderr


def test_an_unknown_run_names_the_newest(trainlet):
    trainlet("run", "flow.py", "-p", "rate=1")
    done = trainlet("logs", "training-nothere1")
    assert done.returncode == 2 and "The newest: training-" in done.stderr


def test_an_api_that_nobody_serves_exits_3(trainlet):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        done = trainlet("runs", TRAINLET_API=f"http://127.0.0.1:{taken.getsockname()[1]}")
    assert done.returncode == 3 and "does not answer" in done.stderr and "Traceback" not in done.stderr


def test_help_documents_the_exit_codes(trainlet):
    said = " ".join(trainlet("--help").stdout.split())
    for part in ("0 done", "1 the run failed", "2 wrong use", "3 the platform", "130 interrupted"):
        assert part in said


def test_an_imported_pipeline_is_not_taken_for_the_files_own(trainlet, write):
    write("mine.py", "import trainlet as tl\nfrom flow import training, double\n"
          "@tl.pipeline\ndef own() -> int:\n    return double(4)\n")  # fmt: skip
    done = trainlet("run", "mine.py", "--local")
    assert done.stdout.splitlines()[-1:] == ["result: 8"], done.stderr


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_shells_get_a_completion_script(trainlet, shell):
    done = trainlet("completion", shell)
    assert done.returncode == 0 and "_TRAINLET_COMPLETE" in done.stdout


def test_doctor_says_what_it_saw_and_shows_no_token(trainlet, home):
    done = trainlet("doctor", "--json")
    found = {one["check"]: one for one in json.loads(done.stdout)}
    assert done.returncode == 0
    assert {"python", "home", "disk", "training API", "store", "devices"} <= set(found)
    assert found["devices"]["state"] == "warn" and "TRAINLET_VIRTUAL_GPUS" in found["devices"]["fix"]
    token = json.loads((home / "platform.json").read_text())["token"]
    assert token not in done.stdout


def test_doctor_exits_3_when_the_api_is_away_and_says_what_to_check(trainlet):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        done = trainlet("doctor", TRAINLET_API=f"http://127.0.0.1:{taken.getsockname()[1]}")
    assert done.returncode == 3 and "check TRAINLET_API" in done.stdout
