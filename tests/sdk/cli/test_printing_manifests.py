"""`trainlet manifests` prints what the training API would apply."""

from __future__ import annotations

import pytest
import yaml

pytestmark = [pytest.mark.timeout(150), pytest.mark.xdist_group("cli")]

CLUSTER = """
image: registry.example/worker:1
api_url: http://trainlet-api.trainlet:8080
store_url: s3://trainlet
dead_letter_url: http://trainlet-api.trainlet:8080/v1/dead-letters
public_key: cHVibGljIGtleQ==
gpus: {gpus: {H100: }}
max_timeout_s: 86400
"""
FLOW = """
import trainlet as tl


@tl.step(timeout="1h")
def prepare(n: int) -> int:
    return n


@tl.step(gpu="H100:2", timeout="2h", backend="job")
def train(n: int) -> int:
    return n


@tl.step(timeout="1h")
def unused(n: int) -> int:
    return n


@tl.pipeline
def training(n: int) -> int:
    return train.with_options(gpu="H100:4")(prepare(n))
"""


TRIGGERED = """
import trainlet as tl


@tl.step(timeout="1h")
def train(data: str) -> str:
    return data


@tl.on_event(
    "com.amazonaws.s3.objectcreated", source="s3://digits", where="subject LIKE 'images/%'",
    filters=[{"data": {"$.size_bytes": {"gt": 0}}}], params={"data": "$.data.uri"},
)
@tl.on_event("dev.trainlet.object.created", source="/data", poll="10s", params={"data": "$.data.path"}, name="looks")
@tl.on_schedule("0 3 * * *", tz="Europe/Berlin", params={"data": "all"})
@tl.on_schedule("every 90m", params={"data": "all"}, name="odd")
@tl.pipeline
def retrain(data: str) -> str:
    return train(data)
"""


def test_the_triggers_of_a_file_become_what_the_broker_and_the_clock_can_know(trainlet, write, folder):
    write("flow.py", TRIGGERED)
    write("cluster.yaml", CLUSTER + "open_events: true\n")
    done = trainlet("manifests", "flow.py")
    assert done.returncode == 0, done.stderr
    made = {(one["kind"], one["metadata"]["name"]): one for one in yaml.safe_load_all(done.stdout)}
    trigger = made["Trigger", "on.retrain-objectcreated"]["spec"]
    assert trigger["filters"] == [
        {"exact": {"type": "com.amazonaws.s3.objectcreated", "source": "s3://digits"}},
        {"cesql": "subject LIKE 'images/%'"},
    ]
    assert trigger["subscriber"]["uri"].endswith("/v1/projects/default/brokered/retrain-objectcreated")
    assert made["PingSource", "retrain-schedule"]["spec"]["timezone"] == "Europe/Berlin"
    names = {name for kind, name in made if kind in ("Trigger", "PingSource")}
    assert names == {"flow-train", "on.retrain-objectcreated", "retrain-schedule"}


@pytest.fixture
def folder(write):
    write("cluster.yaml", CLUSTER)
    write("flow.py", FLOW)


def test_all_steps_of_a_file_become_objects_with_the_options_of_its_pipeline(trainlet, folder):
    done = trainlet("manifests", "flow.py", "--project", "vision")
    assert done.returncode == 0, done.stderr
    made = list(yaml.safe_load_all(done.stdout))
    assert {one["metadata"]["namespace"] for one in made} == {"trainlet-vision"}
    found = {(one["kind"], one["metadata"]["name"]): one for one in made}
    assert {("Service", "flow-prepare"), ("JobSink", "flow-train"), ("Service", "flow-unused")} <= set(found)
    pod = found["JobSink", "flow-train"]["spec"]["job"]["spec"]["template"]["spec"]
    assert pod["containers"][0]["resources"]["limits"] == {"nvidia.com/gpu": "4"}


def test_one_step_can_be_named(trainlet, folder):
    done = trainlet("manifests", "flow.py:unused", "--cluster", "cluster.yaml")
    assert {one["metadata"]["name"] for one in yaml.safe_load_all(done.stdout)} == {"flow-unused"}


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("@tl.step(timeout='1h')\ndef Train_It(): ...\n@tl.step(timeout='1h')\ndef train__it(): ...",
         "Train_It and train__it would both be the function 'steps-train-it'"),
        ("@tl.step(gpu='A100', timeout='1h')\ndef train(): ...", "A100-80GB, which this cluster's GPU catalogue lacks"),
        ("@tl.step(timeout='2d')\ndef train(): ...", "at most 86400 s is allowed"),
        ("@tl.step\ndef train(): ...", "Step steps-train does not fit this cluster. It has no timeout="),
        ("@tl.step(name='Big Model')\ndef train(): ...", 'Write name="big-model"'),
        ("x = 1", "no @tl.step"),
    ],
)  # fmt: skip
def test_a_step_that_the_cluster_cannot_run_prints_nothing(trainlet, write, folder, source, said):
    write("steps.py", f"import trainlet as tl\n{source}\n")
    done = trainlet("manifests", "steps.py")
    assert (done.returncode, done.stdout) == (2, "") and said in done.stderr, done.stderr
    assert "Traceback" not in done.stderr


def test_the_public_key_comes_from_the_settings_or_from_the_signing_key(trainlet, write, folder, tmp_path):
    write("cluster.yaml", CLUSTER.replace("public_key: cHVibGljIGtleQ==\n", ""))
    done = trainlet("manifests", "flow.py")
    assert done.returncode == 2 and "--signing-key signing.key" in done.stderr
    (tmp_path / "signing.key").write_bytes(bytes(range(32)))
    (tmp_path / "signing.key").chmod(0o600)
    done = trainlet("manifests", "flow.py:unused", "--signing-key", "signing.key")
    (service,) = (one for one in yaml.safe_load_all(done.stdout) if one["kind"] == "Service")
    found = {one["name"]: one.get("value") for one in service["spec"]["template"]["spec"]["containers"][0]["env"]}
    assert found["TRAINLET_PUBLIC_KEY"] == "A6EHv/POEL4dcN0Y50vAmWfk1jCbpQ1fHdyGZBJVMbg="  # of RFC 8032's curve


def test_without_settings_it_says_what_to_pass(trainlet, write):
    write("flow.py", FLOW)
    done = trainlet("manifests", "flow.py")
    assert done.returncode == 2 and "Pass --cluster FILE" in done.stderr


def test_wrong_settings_are_said_with_the_file(trainlet, write):
    write("flow.py", FLOW)
    write("cluster.yaml", CLUSTER + "drain: 5\n")
    done = trainlet("manifests", "flow.py")
    assert done.returncode == 2 and "cluster.yaml: drain is no setting. Did you mean 'drain_s'" in done.stderr


def test_an_install_is_printed_from_settings_to_start_from(trainlet, tmp_path):
    assert trainlet("install", "--settings").returncode == 0
    done = trainlet("install", "--dry-run", "--project", "vision", "--image", "registry.example/api:2")
    assert done.returncode == 0, done.stderr
    made = list(yaml.safe_load_all(done.stdout))
    (deployment,) = (one for one in made if one["kind"] == "Deployment")
    assert deployment["spec"]["template"]["spec"]["containers"][0]["image"] == "registry.example/api:2"
    (config,) = (one for one in made if one["kind"] == "ConfigMap")
    assert config["data"]["cluster.yaml"] == (tmp_path / "cluster.yaml").read_text()
    assert "    gpus: gpus.yaml" in done.stdout, "a file in a ConfigMap stays readable"


def test_settings_that_were_edited_are_never_replaced(trainlet, tmp_path, folder):
    done = trainlet("install", "--settings")
    assert done.returncode == 2 and "cluster.yaml is here already" in done.stderr
    assert (tmp_path / "cluster.yaml").read_text() == CLUSTER
    assert not (tmp_path / "gpus.yaml").exists()
