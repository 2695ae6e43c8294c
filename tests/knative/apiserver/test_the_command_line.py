"""An admin's commands against a real server: look, install, look again."""

from __future__ import annotations

import base64
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from trainlet_knative import installs

pytestmark = pytest.mark.xdist_group("the namespace of the API")


def trainlet(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [str(Path(sys.executable).with_name("trainlet")), *arguments]
    env = {**os.environ, "KUBECONFIG": os.environ["TRAINLET_TEST_ENVTEST"]}
    return subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, timeout=120, check=False)


def test_install_says_what_it_did_and_what_is_left_to_do(server: Any, project: str, tmp_path: Path) -> None:
    secret = f"/api/v1/namespaces/{installs.NAMESPACE}/secrets/{installs.SECRET}"
    server.admin.delete(secret)
    assert trainlet(tmp_path, "install", "--settings").returncode == 0
    first = trainlet(tmp_path, "install", "--project", project)
    assert first.returncode == 3 and f"created Namespace trainlet-{project}" in first.stdout, first.stderr
    assert "lacks bootstrap-token, database-url, signing.key" in first.stderr
    value = base64.b64encode(b"x").decode()
    data = dict.fromkeys(("bootstrap-token", "database-url", "signing.key"), value)
    metadata = {"name": installs.SECRET, "namespace": installs.NAMESPACE}
    server.admin.apply({"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "data": data}, "test")
    second = trainlet(tmp_path, "install", "--project", project)
    assert second.returncode == 0, second.stderr
    assert {line.partition(" ")[0] for line in second.stdout.splitlines()} == {"unchanged"}
    server.admin.delete(secret)


def test_doctor_looks_at_the_cluster_and_exits_with_3_while_something_is_bad(
    server: Any, project: str, tmp_path: Path
) -> None:
    done = trainlet(tmp_path, "doctor", "--cluster", "--project", project, "--json")
    assert done.returncode == 3, done.stderr
    found = {one["check"]: one for one in json.loads(done.stdout)}
    assert found["rights"]["state"] == "ok", "this caller is the admin"
    assert found[f"project {project}"]["fix"] == f"trainlet install --project {project}"
    text = trainlet(tmp_path, "doctor", "--cluster", "--project", project).stdout
    assert f"     fix: trainlet install --project {project}" in text
    assert trainlet(tmp_path, "doctor", "--project", project).returncode == 2
