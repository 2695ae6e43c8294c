"""`trainlet deploy`, `trigger test`, `events` and `triggers`: a trigger is tried, deployed, fed, paused and removed."""

from __future__ import annotations

import json

import pytest

pytestmark = [pytest.mark.timeout(240), pytest.mark.xdist_group("cli")]

FLOW = """
import trainlet as tl


@tl.step
def train(files: list[str]) -> int:
    return len(files)


@tl.on_event(
    "com.amazonaws.s3.objectcreated",
    source="s3://digits-raw",
    where="subject LIKE 'images/%'",
    params={"files": "$.data.uri"},
    window="1h",
    max_batch=2,
    name="on-images",
)
@tl.on_schedule("0 3 1 1 *", tz="Europe/Berlin", params={"files": ["all"]}, name="yearly")
@tl.pipeline
def retrain(files: list[str]) -> int:
    return train(files)
"""
EVENT = {
    "type": "com.amazonaws.s3.objectcreated",
    "source": "s3://digits-raw",
    "subject": "images/1.png",
    "data": {"uri": "s3://digits-raw/images/1.png"},
}


@pytest.fixture
def folder(write):
    write("flow.py", FLOW)
    for name, change in {
        "good.json": {"id": "1"},
        "second.json": {"id": "2", "data": {"uri": "s3://digits-raw/images/2.png"}},
        "text.json": {"id": "3", "subject": "texts/1.txt"},
        "elsewhere.json": {"id": "4", "data": {"uri": "s3://secrets/1.png"}},
    }.items():
        write(name, json.dumps({**EVENT, **change}))
    write("broken.json", "{")


def test_a_trigger_is_tried_without_a_deployment_and_starts_nothing(trainlet, folder):
    done = trainlet("trigger", "test", "flow.py", "good.json")
    assert done.returncode == 0, done.stderr
    assert "on-images: matches, and would start retrain" in done.stdout
    assert "files = ['s3://digits-raw/images/1.png']" in done.stdout
    missed = trainlet("trigger", "test", "flow.py", "text.json")
    assert missed.returncode == 1 and "does not hold" in missed.stdout and "images/%" in missed.stdout
    wrong = trainlet("trigger", "test", "flow.py", "elsewhere.json", "--json")
    assert wrong.returncode == 1
    found = json.loads(wrong.stdout)["on-images"]
    assert found["matches"] is True and "lies in none of s3://digits-raw" in found["error"]
    broken = trainlet("trigger", "test", "flow.py", "broken.json")
    assert broken.returncode == 2 and "broken.json is no JSON" in broken.stderr and "Traceback" not in broken.stderr


def test_what_is_deployed_takes_events_once_and_says_why_they_wait(trainlet, write, folder):
    first = trainlet("deploy", "flow.py")
    assert first.returncode == 0, first.stderr
    assert "on-images: new subscription of retrain" in first.stdout and "yearly: new schedule" in first.stdout
    for new in (1, 0):
        sent = trainlet("events", "send", "good.json", "--json")
        assert sent.returncode == 0, sent.stderr
        assert json.loads(sent.stdout)["new"] == new
    (view,) = [one for one in json.loads(trainlet("triggers", "--json").stdout) if one["name"] == "on-images"]
    assert view["waiting"] == 1 and "collecting events" in view["reason"]
    paused = trainlet("triggers", "pause", "on-images", "--reason", "the labels are wrong")
    assert "on-images is paused: the labels are wrong, 1 events wait" in paused.stdout
    assert trainlet("events", "send", "second.json").returncode == 0
    assert "is active" in trainlet("triggers", "resume", "on-images").stdout
    unknown = trainlet("triggers", "pause", "on-image")
    assert unknown.returncode == 2 and "Did you mean 'on-images'" in unknown.stderr
    listed = trainlet("events").stdout
    head, newest, *_ = [line.split("\t") for line in listed.splitlines()]
    assert head == ["event", "received (UTC)", "type", "source", "subject", "id", "trigger", "verdict"]
    assert newest[2:7] == ["com.amazonaws.s3.objectcreated", "s3://digits-raw", "images/1.png", "2", "on-images"]
    assert newest[7].startswith("run retrain-")
    schedule = FLOW[FLOW.index("@tl.on_schedule") : FLOW.index("@tl.pipeline")]
    write("flow.py", FLOW.replace(schedule, ""))
    assert "yearly: removed" in trainlet("deploy", "flow.py").stdout
    assert "on-images is removed" in trainlet("triggers", "remove", "on-images").stdout
