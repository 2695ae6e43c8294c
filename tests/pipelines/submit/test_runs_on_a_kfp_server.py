"""Starting, looking at, waiting for, stopping and retrying runs; and servers that say no."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from trainlet.client import ApiUnreachable
from trainlet.core.errors import AccessError, NotFoundError, StepFailed, UserError
from trainlet_pipelines.kubeflow.runs import KubeflowRun, Server

SPEC = {
    "pipelineInfo": {"name": "p"},
    "root": {"dag": {"tasks": {}}, "inputDefinitions": {"parameters": {"lr": {"parameterType": "NUMBER_DOUBLE"}}}},
    "schemaVersion": "2.1.0",
    "sdkVersion": "kfp-2.17.3",
}


@pytest.fixture
def server(kfp_server: Any) -> Iterator[Server]:
    made = Server(kfp_server.host, token="secret")
    yield made
    made.close()


def started(server: Server) -> KubeflowRun:
    return KubeflowRun(server, server.start(SPEC, "a run", {"lr": 0.5}))


def test_a_run_is_started_in_an_experiment_that_is_made_once(server: Server, kfp_server: Any) -> None:
    first, second = started(server), started(server)
    assert first.id != second.id and first.state == "running"
    assert [one.display_name for one in kfp_server.experiments.values()] == ["Default"]
    assert kfp_server.runs[first.id].runtime_config.parameters == {"lr": 0.5}
    assert first.url == f"{kfp_server.host}/#/runs/details/{first.id}"


def test_waiting_ends_with_the_run_and_names_the_failed_tasks(server: Server, kfp_server: Any) -> None:
    run = started(server)
    moves = [("RUNNING", "", {}), ("FAILED", "boom", {"train": "FAILED", "prepare": "SUCCEEDED"})]
    run._pause = lambda seconds: kfp_server.move(run.id, *moves.pop(0))
    with pytest.raises(StepFailed, match=r"failed at train: boom.*runs/details"):
        run.wait()
    assert moves == []


def test_a_terminated_run_counts_as_cancelled_and_ends_the_wait(server: Server) -> None:
    run = started(server)
    run.cancel()
    assert run.state == "canceled"
    with pytest.raises(StepFailed) as failure:
        run.wait()
    assert failure.value.kind == "canceled"


def test_a_run_that_failed_after_a_retry_is_not_taken_for_cancelled(server: Server, kfp_server: Any) -> None:
    run = started(server)
    run.cancel()
    run.retry()
    assert run.state == "running"
    kfp_server.move(run.id, "FAILED", "boom")
    assert run.state == "failed"


def test_a_run_that_takes_longer_goes_on(server: Server) -> None:
    with pytest.raises(TimeoutError, match="it goes on"):
        started(server).wait(timeout=0)


def test_runs_are_listed_the_newest_first(server: Server) -> None:
    ids = [started(server).id for _ in range(3)]
    assert [one.id for one in server.list(2)] == ids[:0:-1]


def test_a_wrong_token_is_said_with_what_to_do(kfp_server: Any) -> None:
    server = Server(kfp_server.host, token="old")
    with pytest.raises(AccessError, match=r"refuses the token.*Get a new one"):
        server.list()
    server.close()


def test_a_projected_token_is_read_anew_for_each_call(
    kfp_server: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    token = tmp_path / "token"
    token.write_text("old\n")
    monkeypatch.setenv("KF_PIPELINES_SA_TOKEN_PATH", str(token))
    server = Server(kfp_server.host)
    with pytest.raises(AccessError):
        server.list()
    token.write_text("secret\n")
    assert server.list() == []
    server.close()


def test_an_unknown_run_and_refused_parameters_are_clear(server: Server) -> None:
    with pytest.raises(NotFoundError, match="does not know that"):
        server.get("nothing")
    with pytest.raises(UserError, match="unknown \\['rate'\\], missing \\['lr'\\]"):
        server.start(SPEC, "a run", {"rate": 1})
    with pytest.raises(UserError, match="takes 20000 bytes; KFP accepts 10000"):
        server.start(SPEC, "a run", {"lr": "x" * 20_000})


def test_a_server_that_is_not_there_and_an_address_that_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KF_PIPELINES_ENDPOINT", raising=False)
    server = Server("http://127.0.0.1:9")
    with pytest.raises(ApiUnreachable, match="does not answer"):
        server.list()
    server.close()
    for host in ("", "kubeflow.example"):
        with pytest.raises(UserError, match="is no URL"):
            Server(host)
