"""Knative's own webhooks take every object, in code: their defaulting and validation, built from `validation/`.

`TRAINLET_TEST_KNATIVE_VALIDATE` is the path of that program; without it these tests are skipped.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from trainlet.core.triggers import Watch
from trainlet_knative.backend import covers
from trainlet_knative.clusters import Cluster
from trainlet_knative.diagnosis import serving
from trainlet_knative.objects import trigger_objects
from trainlet_knative.objects.names import FUNCTION, TRIGGER

PROGRAM = os.environ.get("TRAINLET_TEST_KNATIVE_VALIDATE")
GOLDEN = Path(__file__).parent / "golden"
FILES = sorted(set(GOLDEN.glob("*.yaml")) - set(GOLDEN.glob("install_*.yaml")))
KNATIVE = ("Service", "Trigger", "JobSink", "EventPolicy", "PingSource")
pytestmark = pytest.mark.skipif(not PROGRAM, reason="TRAINLET_TEST_KNATIVE_VALIDATE names no program")


SPOKEN = [
    "0 3 * * *", "*/5 8-18 * * MON-FRI", "0 0 1,15 * 5", "30 2 * JAN-MAR,dec 7", "0-30/10 * * * 1-5/2", "0 0 * * */7",
    "@daily", "@ANNUALLY", "every 6h", "every 1m", "every 30m", "every 1d",
]  # fmt: skip


def validate(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([str(PROGRAM), *arguments], capture_output=True, text=True, timeout=60, check=False)


@pytest.fixture
def flags(cluster: Cluster) -> list[str]:
    """Return the features that doctor asks an admin to turn on."""
    wanted = cluster.model_copy(update={"package_cache": "packages"})  # one of the files has it
    return [f"{flag}=enabled" for flag in serving.needed_features(wanted)]


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_knative_takes_the_objects_and_keeps_them_as_they_were_sent(file: Path, flags: list[str]) -> None:
    """What Knative writes otherwise would look like drift at every round, and be applied again for ever."""
    done = validate(*flags, str(file))
    assert done.returncode == 0, done.stderr
    sent = {named(one): one for one in yaml.safe_load_all(file.read_text()) if is_knatives(one)}
    kept = {named(one): one for one in yaml.safe_load_all(done.stdout)}
    assert sent.keys() == kept.keys()
    assert [name for name in sent if not covers(kept[name], sent[name])] == []


def test_without_the_flags_that_doctor_asks_for_a_service_is_refused(flags: list[str]) -> None:
    for flag in ("kubernetes.podspec-nodeselector", "kubernetes.podspec-tolerations"):
        others = [one for one in flags if not one.startswith(flag)]
        done = validate(*others, str(GOLDEN / "gpu_step.yaml"))
        assert done.returncode == 1 and "must not set the field" in done.stderr
    for flag in ("kubernetes.podspec-persistent-volume-claim", "kubernetes.podspec-persistent-volume-write"):
        others = [one for one in flags if not one.startswith(flag)]
        assert "support is disabled" in validate(*others, str(GOLDEN / "slice.yaml")).stderr
    assert "affinity" in validate(str(GOLDEN / "either_gpu_on_spot.yaml")).stderr


def test_a_wrong_annotation_is_refused(flags: list[str], tmp_path: Path) -> None:
    """A check of the check."""
    text = (GOLDEN / "gpu_step.yaml").read_text().replace("scale-down-delay: 60s", "scale-down-delay: 2h")
    (tmp_path / "wrong.yaml").write_text(text)
    done = validate(*flags, str(tmp_path / "wrong.yaml"))
    assert done.returncode == 1 and "scale-down-delay" in done.stderr


@pytest.mark.parametrize("tz", ["UTC", "Europe/Berlin", "Australia/Lord_Howe"])
def test_knatives_clock_reads_every_schedule_that_it_is_given(cluster: Cluster, tmp_path: Path, tz: str) -> None:
    opened = cluster.model_copy(update={"open_events": True})
    watches = [Watch(name=f"s{number}", when=when, tz=tz) for number, when in enumerate(SPOKEN)]
    made = [one for watch in watches for one in trigger_objects(opened, "default", watch)]
    assert len(made) == len(SPOKEN)
    (tmp_path / "all.yaml").write_text(yaml.safe_dump_all(made))
    done = validate(str(tmp_path / "all.yaml"))
    assert done.returncode == 0, done.stderr


def named(one: dict[str, Any]) -> tuple[str, str]:
    return one["kind"], one["metadata"]["name"]


def is_knatives(one: dict[str, Any]) -> bool:
    return one["kind"] in KNATIVE and bool({FUNCTION, TRIGGER} & one["metadata"].get("labels", {}).keys())
