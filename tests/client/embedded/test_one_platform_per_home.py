"""The embedded platform: found, or started; one per home whoever asks; started again when it has gone."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time

import psutil
import pytest

from trainlet.client import ProtocolMismatch, connect, embedded
from trainlet.core.errors import PlatformError, UserError

pytestmark = pytest.mark.timeout(150)
ASK = (
    "from trainlet.client import connect; from trainlet.core.settings import Settings; "
    "print(connect(Settings.from_environment()).get_info().pid)"
)


def kill(pid: int | None) -> None:
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    deadline = time.monotonic() + 10
    while psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE:
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_several_processes_that_ask_at_once_get_one_platform(settings):
    asking = [subprocess.Popen([sys.executable, "-c", ASK], stdout=subprocess.PIPE, text=True) for _ in range(4)]
    pids = {process.communicate(timeout=120)[0].strip() for process in asking}
    assert len(pids) == 1 and pids != {""}
    client = connect(settings)
    assert str(client.get_info().pid) in pids
    client.close()


def test_a_client_starts_a_platform_that_died_anew(settings):
    client = connect(settings)
    first = client.get_info()
    kill(first.pid)
    second = client.get_info()
    assert second.pid != first.pid and second.store_url == first.store_url
    client.close()


def test_a_platform_whose_home_is_gone_ends_and_leaves_the_next_one_alone(settings):
    client = connect(settings)
    first = psutil.Process(client.get_info().pid)
    client.close()
    settings.home.rename(settings.home.with_name("thrown-away"))
    client = connect(settings)
    assert client.get_info().pid != first.pid
    client.close()
    psutil.wait_procs([first], timeout=60)
    assert not first.is_running() or first.status() == psutil.STATUS_ZOMBIE
    assert embedded.find(settings.home) is not None, "the old one took the note of the new one with it"


def test_a_platform_that_cannot_start_says_why(settings, monkeypatch):
    monkeypatch.setenv("TRAINLET_DATABASE_URL", "nonsense://nowhere")
    with pytest.raises(PlatformError, match=r"did not start \(exit \d+\)") as caught:
        connect(settings)
    assert len(str(caught.value).splitlines()) > 1, "the end of its log is shown"


def test_missing_packages_are_named_with_the_command_that_installs_them(settings, monkeypatch):
    monkeypatch.setattr(embedded.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(UserError, match=r"pip install 'trainlet\[server\]'"):
        connect(settings)


def test_a_home_that_cannot_be_is_the_users_to_mend(settings, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="TRAINLET_HOME"):
        connect(settings.model_copy(update={"home": tmp_path / "file" / "home"}))


@pytest.mark.parametrize("text", ["", "{}", "not json", '{"url": 1, "token": 2, "pid": null}'])
def test_a_damaged_note_about_the_platform_is_as_good_as_none(settings, text):
    settings.home.mkdir(parents=True)
    (settings.home / "platform.json").write_text(text)
    assert embedded.find(settings.home) is None


def test_a_note_of_a_dead_process_is_not_followed_to_somebody_elses_port(settings, server):
    server.answers = [(200, {"status": "ok"})]
    settings.home.mkdir(parents=True)
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    note = {"url": server.url, "token": "t", "pid": process.pid}
    (settings.home / "platform.json").write_text(json.dumps(note))
    assert embedded.find(settings.home) is None
    assert server.requests == []


def test_a_platform_of_another_version_is_named_with_its_process(settings, server):
    server.answers = [server.problem("protocol", 400, "You speak protocol 1, this training API speaks 2.")]
    settings.home.mkdir(parents=True)
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        note = {"url": server.url, "token": "t", "pid": process.pid}
        (settings.home / "platform.json").write_text(json.dumps(note))
        with pytest.raises(ProtocolMismatch, match=f"process {process.pid}"):
            embedded.find(settings.home)
        process.kill()


def test_a_training_api_elsewhere_is_used_as_it_is(settings, server):
    server.answers = [(200, {"version": "1", "protocol": 1, "project": "p", "store_url": "s3://bucket"})]
    elsewhere = settings.model_copy(update={"api": server.url + "/", "token": "t"})
    client = connect(elsewhere)
    assert client.get_info().store_url == "s3://bucket"
    assert server.requests[0].headers["authorization"] == "Bearer t"
    assert not settings.home.exists()
    client.close()
