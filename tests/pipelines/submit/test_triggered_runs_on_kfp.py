"""A triggered run that KFP does: started once whatever is lost on the way, followed to its end, stopped with ours."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from trainlet.core.errors import PlatformError
from trainlet.core.triggers import KubeflowStart
from trainlet_pipelines.kubeflow import triggered
from trainlet_pipelines.kubeflow.runs import Server

PARAMETERS = {"data": {"parameterType": "STRING"}, "epochs": {"parameterType": "NUMBER_INTEGER", "isOptional": True}}
SPEC = {
    "pipelineInfo": {"name": "digits"},
    "root": {"dag": {"tasks": {}}, "inputDefinitions": {"parameters": PARAMETERS}},
    "schemaVersion": "2.1.0",
    "sdkVersion": "kfp-2.17.3",
}
RUN = "retrain-0123456789ab"
START = KubeflowStart(pipeline="digits", experiment="nightly", service_account="trainer", parameters=["data"])


class Api:
    """The training API, as far as one run goes."""

    def __init__(self) -> None:
        self.state = "running"
        self.finished: list[Any] = []
        self.done_by: list[str] = []

    def get_run(self, run_id: str) -> Any:
        return SimpleNamespace(id=run_id, state=self.state, params={"data": "s3://b/1", "epochs": 5})

    def _call(self, method: str, path: str, reply: Any, body: Any) -> None:
        assert (method, path) == ("PUT", f"/v1/firings/{RUN}/kubeflow-run")
        self.done_by.append(body.id)

    def finish_run(self, run_id: str, body: Any) -> None:
        self.state = body.state
        self.finished.append(body)


class Pauses:
    """What happens in the pauses between two looks, one thing each; then the driver is asked to stop."""

    def __init__(self, *actions: Callable[[], Any]) -> None:
        self._actions = list(actions)

    def wait(self, seconds: float) -> bool:
        if not self._actions:
            return True
        self._actions.pop(0)()
        return False


@pytest.fixture
def server(kfp_server: Any) -> Iterator[Server]:
    kfp_server.versions = {("digits", "v1"): SPEC, ("digits", "v2"): SPEC, ("other", "v1"): SPEC}
    made = Server(kfp_server.host, token="secret")
    yield made
    made.close()


@pytest.fixture
def api() -> Api:
    return Api()


def drive(api: Any, server: Any, *pauses: Callable[[], Any], start: KubeflowStart = START) -> None:
    triggered.drive(api, server, None, RUN, start, Pauses(*pauses))  # type: ignore[arg-type]


def test_the_run_is_of_the_version_experiment_and_account_that_were_asked_for(
    api: Api, server: Server, kfp_server: Any
) -> None:
    drive(api, server, lambda: [kfp_server.move(one, "SUCCEEDED") for one in kfp_server.runs])
    (run,) = kfp_server.runs.values()
    assert run.display_name == RUN and run.service_account == "trainer"
    assert run.pipeline_version_reference.pipeline_version_id == "id-of-v2", "the newest, where none is named"
    assert kfp_server.experiments[run.experiment_id].display_name == "nightly"
    assert run.runtime_config.parameters == {"data": "s3://b/1"}, "what the event gave, and no default of ours"
    assert [body.state for body in api.finished] == ["succeeded"] and run.run_id in api.finished[0].reason


def test_T5_a_driver_that_dies_after_the_start_and_its_successor_start_one_run(
    api: Api, server: Server, kfp_server: Any
) -> None:
    for _ in range(3):
        drive(api, server)
    assert len(kfp_server.runs) == 1 and api.finished == []


def test_T5_an_answer_that_is_lost_starts_nothing_twice(
    api: Api, server: Server, kfp_server: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    start = server.start_version

    def lost(*arguments: Any) -> str:
        start(*arguments)
        raise PlatformError("the connection broke")

    monkeypatch.setattr(server, "start_version", lost)
    drive(api, server, lambda: None)
    assert len(kfp_server.runs) == 1


def test_T5_of_two_drivers_at_the_same_moment_one_run_stays(
    api: Api, server: Server, kfp_server: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other one starts its run after we looked, and before ours is made."""
    start = server.start_version

    def both(*arguments: Any) -> str:
        start(*arguments)
        return start(*arguments)

    monkeypatch.setattr(server, "start_version", both)
    drive(api, server)
    drive(api, server)
    first, second = sorted(kfp_server.runs.values(), key=lambda one: (one.created_at, one.run_id))
    assert (first.state, second.state) == ("RUNNING", "FAILED")


def test_a_run_that_is_cancelled_here_is_stopped_there(api: Api, server: Server, kfp_server: Any) -> None:
    drive(api, server, lambda: setattr(api, "state", "canceled"))
    (run,) = kfp_server.runs.values()
    assert [one.state for one in run.state_history][-2:] == ["CANCELING", "FAILED"]
    drive(api, server)
    assert [one.state for one in run.state_history].count("CANCELING") == 1


def test_the_end_there_is_the_end_here_with_what_failed_and_where_to_look(
    api: Api, server: Server, kfp_server: Any
) -> None:
    def fail() -> None:
        (run_id,) = kfp_server.runs
        kfp_server.move(run_id, "FAILED", "boom", {"train": "FAILED"})

    drive(api, server, fail)
    (body,) = api.finished
    assert body.state == "failed" and "failed at train: boom" in body.reason and "runs/details" in body.reason


def test_a_kfp_that_is_away_is_waited_for(api: Api, server: Server, kfp_server: Any) -> None:
    kfp_server.broken = True
    drive(api, server, lambda: None, lambda: setattr(kfp_server, "broken", False))
    assert api.finished == [] and len(kfp_server.runs) == 1


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"pipeline": "didgits"}, "no pipeline 'didgits'"),
        ({"version": "v9"}, "no version 'v9'"),
        ({"parameters": ["epochs"]}, "missing"),
    ],
)
def test_T8_what_kfp_does_not_have_or_take_ends_the_run_in_words(
    api: Api, server: Server, change: dict[str, Any], said: str
) -> None:
    drive(api, server, start=START.model_copy(update=change))
    (body,) = api.finished
    assert body.state == "failed" and said in body.reason


def test_a_token_that_is_refused_for_a_while_loses_no_run(api: Api, server: Server, kfp_server: Any) -> None:
    def renew() -> None:
        server._token = "secret"
        kfp_server.move(next(iter(kfp_server.runs)), "SUCCEEDED")

    drive(api, server, lambda: setattr(server, "_token", "old"), renew)
    assert [body.state for body in api.finished] == ["succeeded"]
