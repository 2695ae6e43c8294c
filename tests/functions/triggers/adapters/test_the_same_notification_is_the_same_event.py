"""What vendors send becomes CloudEvents that say the same, and the same again has the same id, whichever way it came.

The files in `notifications` have the shapes that the vendors document; those of SeaweedFS are as a filer sends them.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import hypothesis
import pytest
from hypothesis import strategies as st

from trainlet.core.errors import NotFoundError, UserError
from trainlet.core.events import Event
from trainlet_functions.triggers import adapters

FOLDER = Path(__file__).parent / "notifications"
KEY = "images/red flower+1.png"


def raw(name: str) -> bytes:
    return (FOLDER / f"{name}.json").read_bytes()


def convert(adapter: str, name: str, **headers: str) -> list[Event]:
    return adapters.convert(adapter, {key.replace("_", "-"): value for key, value in headers.items()}, raw(name))


def one(adapter: str, name: str, **headers: str) -> Event:
    (event,) = convert(adapter, name, **headers)
    return event


@pytest.mark.parametrize("store", ["aws_put", "eventbridge_created", "minio_put", "ceph_put", "seaweedfs_create"])
def test_every_store_tells_of_a_new_object_in_the_same_words(store: str) -> None:
    event = one("s3", store)
    assert (event.type, event.source, event.subject) == ("com.amazonaws.s3.objectcreated", "s3://digits-raw", KEY)
    assert event.data["uri"] == f"s3://digits-raw/{KEY}"
    assert (event.data["bucket"], event.data["key"], event.data["size_bytes"]) == ("digits-raw", KEY, 5120)
    assert event.data["etag"] == "a6bb7bde3251ca2d810d32dadd9e8ae7"
    assert event.id == one("s3", store).id


@pytest.mark.parametrize("way", ["eventbridge_created", "sns_notification", "sqs_of_lambda", "sqs_received_sns"])
def test_T5_a_change_is_one_event_whichever_way_it_is_told(way: str) -> None:
    direct = one("s3", "aws_put")
    assert one("s3", way).id == direct.id
    wrapped = {"specversion": "1.0", "type": "aws.sqs", "source": "q", "id": "x", "data": json.loads(raw(way))}
    headers = {"content-type": "application/cloudevents+json"}
    (through_a_source,) = adapters.convert("s3", headers, json.dumps(wrapped).encode())
    assert through_a_source.id == direct.id


def test_a_removed_object_is_another_event() -> None:
    removed = one("s3", "aws_delete")
    assert removed.type == "com.amazonaws.s3.objectremoved"
    assert removed.id != one("s3", "aws_put").id


def test_what_is_no_change_of_an_object_is_no_event() -> None:
    for name in ("aws_test", "seaweedfs_attributes", "seaweedfs_folder", "seaweedfs_part"):
        assert convert("s3", name) == [], name
    assert adapters.convert("github", {"x-github-event": "ping"}, b'{"zen": "x"}') == []
    running = {"run_id": "r", "state": "RUNNING"}
    assert adapters.convert("kfp", {}, json.dumps(running).encode()) == []


def test_a_renamed_file_is_a_new_object_where_it_is_now() -> None:
    assert one("s3", "seaweedfs_rename").data["uri"] == "s3://digits-raw/kept/b.png"


def test_a_topic_that_asks_shows_the_url_to_open() -> None:
    event = one("s3", "sns_confirmation")
    assert event.type == "com.amazonaws.sns.subscriptionconfirmation"
    assert event.data["subscribe_url"].startswith("https://sns.")


def test_an_alert_that_is_repeated_is_the_same_event_and_its_end_is_another() -> None:
    firing, again, over = (one("alertmanager", f"alertmanager_{name}") for name in ("firing", "repeated", "resolved"))
    assert firing.type == "io.prometheus.alertmanager.alert.firing"
    assert firing.data["labels"]["model"] == "digits"
    assert (firing.attributes["alertname"], firing.attributes["severity"]) == ("FeatureDrift", "warning")
    assert firing.id == again.id and firing.data != again.data
    assert over.id != firing.id and over.type.endswith(".resolved")
    back = json.loads(raw("alertmanager_firing"))
    back["alerts"][0]["startsAt"] = "2026-12-01T08:00:00Z"
    (second,) = adapters.convert("alertmanager", {}, json.dumps(back).encode())
    assert second.id != firing.id


def test_a_registered_model_has_the_uri_that_mlflow_loads() -> None:
    version, alias = one("mlflow", "mlflow_version"), one("mlflow", "mlflow_alias")
    assert (version.type, version.data["uri"]) == ("org.mlflow.model_version.created", "models:/digits/7")
    assert (alias.type, alias.data["uri"]) == ("org.mlflow.model_version_alias.created", "models:/digits@champion")
    assert version.subject == "digits"


def test_a_merged_change_names_its_repository_and_a_redelivery_is_the_same() -> None:
    first = one("github", "github_merged", x_github_event="pull_request", x_github_delivery="d1")
    again = one("github", "github_merged", x_github_event="pull_request", x_github_delivery="d2")
    assert (first.type, first.source) == ("com.github.pull_request.closed", "https://github.com/acme/digits")
    assert first.subject == "12" and first.data["pull_request"]["merged"] is True
    assert first.id == again.id
    push = one("github", "github_push", x_github_event="push")
    assert (push.type, push.subject) == ("com.github.push", "refs/heads/main")


def test_a_pipeline_run_ends_once_whoever_tells_it() -> None:
    run, workflow = one("kfp", "kfp_run"), one("kfp", "argo_workflow")
    assert run.type == workflow.type == "org.kubeflow.pipelines.run.succeeded"
    assert run.id == workflow.id
    assert run.data["run_id"] == run.subject
    retried = {**json.loads(raw("kfp_run")), "finished_at": "2026-11-30T10:00:00Z"}
    assert adapters.convert("kfp", {}, json.dumps(retried).encode())[0].id != run.id


@pytest.mark.parametrize(
    ("adapter", "body", "says"),
    [
        ("s3", b"{", "no valid JSON"),
        ("s3", b"3", "no S3 notification"),
        ("s3", b"{}", "it has no Records"),
        ("s3", b'{"Records": [{"eventName": "ObjectCreated:Put", "s3": {"bucket": {}}}]}', "s3.bucket.name"),
        ("s3", b'{"Messages": [{"MessageId": "1", "Body": "no json"}]}', "message of SQS or SNS"),
        ("s3", b"[[[[[[[[]]]]]]]]" * 1, "more than 5 envelopes"),
        ("alertmanager", b'{"receiver": "r", "alerts": [{"status": "odd", "startsAt": "x"}]}', "alerts.0.status"),
        ("mlflow", b'{"entity": "Model Version", "action": "created"}', "entity"),
        ("github", b"{}", "X-GitHub-Event"),
        ("kfp", b"{}", "run_id"),
    ],
)
def test_what_is_not_the_vendors_is_refused_with_the_place(adapter: str, body: bytes, says: str) -> None:
    with pytest.raises(UserError, match=says):
        adapters.convert(adapter, {}, body)


def test_an_adapter_that_there_is_not_is_named_with_those_that_there_are() -> None:
    with pytest.raises(NotFoundError, match="alertmanager"):
        adapters.convert("alertmanger", {}, b"{}")


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=12), inner, max_size=4),
    max_leaves=20,
)
FORMS = {name.stem: json.loads(name.read_bytes()) for name in sorted(FOLDER.glob("*.json"))}


@st.composite
def damaged(draw: st.DrawFn) -> tuple[str, bytes]:
    """Return a notification with one value somewhere in it replaced by anything."""
    form = json.loads(json.dumps(FORMS[draw(st.sampled_from(sorted(FORMS)))]))
    at: Any = form
    while True:
        keys = sorted(at) if isinstance(at, dict) else list(range(len(at)))
        if not keys:
            break
        key = draw(st.sampled_from(keys))
        if not isinstance(at[key], dict | list) or draw(st.booleans()):
            at[key] = draw(json_values)
            break
        at = at[key]
    return draw(st.sampled_from(sorted(adapters.ADAPTERS))), json.dumps(form).encode()


@hypothesis.given(damaged())
@hypothesis.settings(max_examples=300, deadline=None)
def test_whatever_comes_is_valid_events_or_a_clear_refusal(given: tuple[str, bytes]) -> None:
    adapter, body = given
    try:
        first = adapters.convert(adapter, {"x-github-event": "push"}, body)
    except UserError as refused:
        assert len(str(refused)) > 20
        return
    assert [event.id for event in first] == [
        event.id for event in adapters.convert(adapter, {"x-github-event": "push"}, body)
    ]
