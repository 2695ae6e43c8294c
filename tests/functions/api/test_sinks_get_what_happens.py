"""`/v1/sinks`: each event of the platform reaches each sink that wants it, signed, whatever one of them does."""

from __future__ import annotations

import base64
import concurrent.futures
import gc
import hashlib
import hmac
import json
import threading
import time
from collections.abc import Callable
from typing import Any

import jsonschema
import pytest

from trainlet.core import lifecycle
from trainlet.core.clocks import ManualClock
from trainlet.core.errors import AccessError, PlatformError
from trainlet_functions.sinks import courier as couriers
from trainlet_functions.sinks import fanout, letters
from trainlet_functions.sinks.addresses import Rule
from trainlet_functions.sinks.courier import Courier
from trainlet_functions.state import outbox, schema
from trainlet_functions.triggers.engine import Engine


@pytest.fixture(autouse=True)
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let no slow machine fail a delivery."""
    monkeypatch.setattr(couriers, "TIMEOUT_S", 100.0)


@pytest.fixture
def clock(stand: Any) -> ManualClock:
    stand.database.clock = ManualClock()
    return stand.database.clock


def deliver(stand: Any) -> None:
    """Hand on what happened, and carry what is due now until nothing is."""
    while fanout.work(stand.database, stand.matcher):
        pass
    while stand.courier.deliver_due():
        stand.courier.settle()


def add(person: Any, receiver: Any, *types: str, name: str = "sink") -> str:
    answer = person("POST", "/v1/sinks", {"url": receiver.url, "name": name, "types": list(types)})
    assert answer.status_code == 201, answer.json
    return str(answer.json["secret"])


def run(person: Any, run_id: str) -> None:
    """Start a run and end it: two events."""
    assert person("PUT", f"/v1/runs/{run_id}", {"pipeline": "digits"}).status_code in (200, 201)
    assert person("POST", f"/v1/runs/{run_id}:cancel", {}).status_code == 200


def signature(secret: str, headers: dict[str, str], body: bytes) -> str:
    key = base64.b64decode(secret.removeprefix("whsec_"))
    signed = f"{headers['webhook-id']}.{headers['webhook-timestamp']}.".encode() + body
    return "v1," + base64.b64encode(hmac.new(key, signed, hashlib.sha256).digest()).decode()


def test_T4_each_event_arrives_signed_as_a_cloudevent_that_fits_its_schema(
    stand: Any, person: Any, receive: Callable[[], Any], function: Any, worker: Any
) -> None:
    receiver = receive()
    secret = add(person, receiver)
    body = {"run_id": "r", "node": "f", "function": "f", "digest": function.digest(), "args": {"x": 1}}
    person("PUT", "/v1/tasks/r.f", body)
    token = worker("POST", "/v1/attempts/r.f/1:claim", {"worker": "w", "nonce": "n"}).json["token"]
    headers = {"Authorization": f"Bearer {token}"}
    note = {"step": 10, "epoch": 1, "size_bytes": 5, "metrics": {"loss": 0.5}, "best": True}
    beat = {"worker": "w", "checkpoints": [note]}
    for _ in range(2):
        assert worker._http.post("/v1/attempts/r.f/1:heartbeat", json=beat, headers=headers).status_code == 200
    done = {"worker": "w", "outcome": "succeeded", "output": 1}
    assert worker._http.post("/v1/attempts/r.f/1:finish", json=done, headers=headers).status_code == 200
    deliver(stand)
    assert receiver.types == [
        "run.started",
        "task.queued",
        "task.dispatched",
        "task.running",
        "checkpoint.committed",
        "checkpoint.best",
        "task.succeeded",
        "run.succeeded",
    ]
    schemas = lifecycle.schemas()
    for (sent, raw), event in zip(receiver.got, receiver.events, strict=True):
        assert sent["content-type"] == "application/cloudevents+json"
        assert sent["webhook-signature"] == signature(secret, sent, raw)
        assert sent["webhook-id"] == event["id"] and event["source"] == "/projects/p" and event["traceparent"]
        jsonschema.validate(event["data"], {**schemas["types"][event["type"]], "$defs": schemas["$defs"]})
    assert len({event["id"] for event in receiver.events}) == 8
    assert receiver.events[-1]["data"]["cost_nano"] == 0
    deliver(stand)
    assert len(receiver.got) == 8


def test_a_sink_gets_the_types_that_it_wants(stand: Any, person: Any, receive: Callable[[], Any]) -> None:
    some, other = receive(), receive()
    add(person, some, "run.canceled", "task.*", name="some")
    add(person, other, "dev.trainlet.run.*", name="other")
    run(person, "r")
    deliver(stand)
    assert some.types == ["run.canceled"]
    assert other.types == ["run.started", "run.canceled"]


def test_S2_a_sink_gets_events_of_its_project_only(
    stand: Any, http: Any, person: Any, receive: Callable[[], Any]
) -> None:
    receiver = receive()
    add(person, receiver)
    other = {"Authorization": f"Bearer {stand.token('client', project='q')}"}
    http.put("/v1/runs/theirs", json={"pipeline": "x"}, headers=other)
    deliver(stand)
    assert receiver.got == []
    assert http.get("/v1/sinks", headers=other).json["items"] == []
    for path in ("/v1/sinks/sink", "/v1/sinks/sink/letters"):
        assert http.get(path, headers=other).status_code == 404


def test_T4_a_sink_that_fails_gets_everything_later_in_order(
    stand: Any, person: Any, receive: Callable[[], Any], clock: ManualClock
) -> None:
    receiver = receive()
    add(person, receiver)
    receiver.answers = [(503, {}), (500, {})]
    run(person, "r")
    deliver(stand)
    view = person("GET", "/v1/sinks/sink").json
    assert (len(receiver.got), view["waiting"], view["reason"]) == (1, 2, "it answered 503")
    assert view["next_at"] is not None
    clock.advance(1.0)
    deliver(stand)
    clock.advance(1.0)
    deliver(stand)
    assert len(receiver.got) == 2
    clock.advance(1.0)
    deliver(stand)
    assert receiver.types == ["run.started"] * 3 + ["run.canceled"]
    view = person("GET", "/v1/sinks/sink").json
    assert (view["waiting"], view["dead"], view["reason"], view["next_at"]) == (0, 0, "", None)


def test_a_sink_that_asks_for_time_gets_it(
    stand: Any, person: Any, receive: Callable[[], Any], clock: ManualClock
) -> None:
    receiver = receive()
    add(person, receiver)
    receiver.answers = [(429, {"Retry-After": "120"})]
    run(person, "r")
    deliver(stand)
    clock.advance(119)
    deliver(stand)
    assert len(receiver.got) == 1
    clock.advance(1)
    deliver(stand)
    assert len(receiver.got) == 3


def test_a_letter_that_is_refused_by_itself_holds_up_no_other(
    stand: Any, person: Any, receive: Callable[[], Any], clock: ManualClock
) -> None:
    receiver = receive()
    add(person, receiver)
    receiver.answers = [(422, {})]
    run(person, "r")
    deliver(stand)
    assert receiver.types == ["run.started", "run.canceled"]
    clock.advance(1)
    deliver(stand)
    assert receiver.types == ["run.started", "run.canceled", "run.started"]


def test_a_dead_letter_is_seen_and_sent_again(
    stand: Any, person: Any, receive: Callable[[], Any], clock: ManualClock
) -> None:
    receiver = receive()
    add(person, receiver, "run.started")
    receiver.answers = [(500, {})] * letters.MOST_TRIES
    run(person, "r")
    for _ in range(letters.MOST_TRIES):
        deliver(stand)
        clock.advance(3600)
    deliver(stand)
    assert len(receiver.got) == letters.MOST_TRIES
    (dead,) = person("GET", "/v1/sinks/sink/letters?state=dead").json["items"]
    assert (dead["event"], dead["tries"], dead["reason"]) == ("r:v0", letters.MOST_TRIES, "it answered 500")
    assert person("GET", "/v1/sinks/sink").json["dead"] == 1
    assert person("POST", "/v1/sinks/sink:replay", {"letters": [dead["number"] + 1]}).json == {"letters": 0}
    assert person("POST", "/v1/sinks/sink:replay", {}).json == {"letters": 1}
    deliver(stand)
    assert receiver.events[-1]["id"] == "r:v0"
    assert person("GET", "/v1/sinks/sink/letters?state=dead").json["items"] == []
    (delivered,) = person("GET", "/v1/sinks/sink/letters?state=delivered").json["items"]
    assert delivered["event"] == "r:v0"


def test_a_sink_that_is_gone_is_paused_until_somebody_resumes_it(
    stand: Any, person: Any, receive: Callable[[], Any], clock: ManualClock
) -> None:
    receiver = receive()
    add(person, receiver)
    receiver.answers = [(410, {})]
    run(person, "r")
    deliver(stand)
    clock.advance(7200)
    deliver(stand)
    view = person("GET", "/v1/sinks/sink").json
    assert (len(receiver.got), view["state"], view["waiting"]) == (1, "paused", 2)
    assert "resume" in view["reason"]
    person("POST", "/v1/sinks/sink:resume")
    deliver(stand)
    assert receiver.types[1:] == ["run.started", "run.canceled"]


def test_a_sink_that_hangs_or_is_not_there_holds_up_no_other(
    stand: Any, person: Any, receive: Callable[[], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    hanging, good = receive(), receive()
    hanging.open.clear()
    add(person, hanging, name="hanging")
    person("POST", "/v1/sinks", {"url": "http://127.0.0.1:1/nobody", "name": "nobody"})
    add(person, good, name="good")
    run(person, "r")
    fanout.work(stand.database, stand.matcher)
    deadline = time.monotonic() + 60
    while len(good.got) < 2 and time.monotonic() < deadline:
        stand.courier.deliver_due()
        stand.database.wait_for_change(stand.database.change_count, 0.05)
    assert good.types == ["run.started", "run.canceled"]
    assert len(hanging.got) <= 1
    nobody = person("GET", "/v1/sinks/nobody").json
    assert nobody["waiting"] == 2 and "cannot be reached" in nobody["reason"]


def test_a_sink_that_does_not_answer_in_time_is_told(
    stand: Any, person: Any, receive: Callable[[], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(couriers, "TIMEOUT_S", 0.2)
    receiver = receive()
    add(person, receiver)
    receiver.open.clear()
    answer = person("POST", "/v1/sinks/sink:test").json
    assert (answer["good"], answer["status"], answer["reason"]) == (False, None, "it did not answer within 0.2 s")


def test_T4_dying_between_a_delivery_and_its_note_sends_it_again_under_the_same_id(
    stand: Any, person: Any, receive: Callable[[], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    receiver = receive()
    add(person, receiver, "run.started")
    run(person, "r")
    fanout.work(stand.database, stand.matcher)
    with monkeypatch.context() as patch:
        patch.setattr(Courier, "_note", lambda *_: False)
        stand.courier.deliver_due()
        stand.courier.settle()
    deliver(stand)
    assert [event["id"] for event in receiver.events] == ["r:v0", "r:v0"]
    assert [headers["webhook-id"] for headers, _ in receiver.got] == ["r:v0", "r:v0"]


def test_what_comes_while_very_much_waits_is_dead_at_once_and_never_unseen(
    stand: Any, person: Any, receive: Callable[[], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(letters, "MOST_WAITING", 3)
    add(person, receive())
    for number in range(3):
        run(person, f"r{number}")
    while fanout.work(stand.database, stand.matcher):
        pass
    view = person("GET", "/v1/sinks/sink").json
    assert (view["waiting"], view["dead"]) == (3, 3)
    told = person("GET", "/metrics").text
    assert 'trainlet_sink_letters{state="waiting"} 3.0' in told and 'trainlet_sink_letters{state="dead"} 3.0' in told
    assert "3 events waited" in person("GET", "/v1/sinks/sink/letters").json["items"][0]["reason"]


def test_a_new_secret_signs_at_once_and_the_one_before_for_its_grace(
    stand: Any, person: Any, receive: Callable[[], Any], clock: ManualClock
) -> None:
    receiver = receive()
    first = add(person, receiver, "run.started")
    second = person("POST", "/v1/sinks/sink:rotate", {"grace_s": 60}).json["secret"]
    run(person, "r1")
    deliver(stand)
    clock.advance(61)
    run(person, "r2")
    deliver(stand)
    (sent, body), (later, raw) = receiver.got
    assert sent["webhook-signature"] == f"{signature(second, sent, body)} {signature(first, sent, body)}"
    assert later["webhook-signature"] == signature(second, later, raw)


def test_a_redirect_is_not_followed(stand: Any, person: Any, receive: Callable[[], Any]) -> None:
    receiver, elsewhere = receive(), receive()
    add(person, receiver)
    receiver.answers = [(307, {"Location": elsewhere.url})]
    answer = person("POST", "/v1/sinks/sink:test").json
    assert (answer["good"], answer["status"]) == (False, 307) and "redirect" in answer["reason"]
    assert elsewhere.got == []


def test_a_test_tells_what_the_sink_says_and_a_removed_sink_gets_nothing(
    stand: Any, person: Any, receive: Callable[[], Any]
) -> None:
    receiver = receive()
    add(person, receiver)
    assert person("POST", "/v1/sinks/sink:test").json["good"] is True
    assert receiver.types == ["sink.test"]
    run(person, "r")
    fanout.work(stand.database, stand.matcher)
    assert person("DELETE", "/v1/sinks/sink").status_code == 200
    deliver(stand)
    assert len(receiver.got) == 1 and person("GET", "/v1/sinks").json["items"] == []
    run(person, "r2")
    deliver(stand)
    assert len(receiver.got) == 1


def test_S2_a_name_that_turns_into_another_address_is_not_called(stand: Any, receive: Callable[[], Any]) -> None:
    """The name is judged when it is used: here it was public when the sink was added, and is this machine now."""
    receiver = receive()
    found = ["93.184.216.34"]

    async def resolve(host: str, port: int) -> list[str]:
        return found

    courier = Courier(stand.database, stand.signer, Rule(None, embedded=False), resolve=resolve)
    try:
        url = receiver.url.replace("http://127.0.0.1", "https://sink.example")
        courier.check("p", url)
        found[:] = ["127.0.0.1"]
        with pytest.raises(AccessError, match=r"127\.0\.0\.1"):
            courier.check("p", url)
        sink: Any = type(
            "Sink", (), {"project": "p", "name": "s", "url": url, "generation": 1, "previous_until_ns": None}
        )
        answer = courier.probe(sink)
        assert not answer.good and answer.status is None and "127.0.0.1" in answer.reason
        assert receiver.got == []
    finally:
        courier.close()


def test_closing_while_connections_are_made_leaves_nothing_behind(stand: Any, receive: Callable[[], Any]) -> None:
    """Only what the courier began is cancelled: the tasks of its HTTP client end with that, and none is left unawaited."""
    url = receive().url
    sink: Any = type("Sink", (), {"project": "p", "name": "s", "url": url, "generation": 1, "previous_until_ns": None})
    for _ in range(30):
        resolved = threading.Event()

        async def resolve(host: str, port: int, resolved: threading.Event = resolved) -> list[str]:
            resolved.set()
            return ["127.0.0.1"]

        courier = Courier(stand.database, stand.signer, Rule(None, embedded=True), resolve=resolve)
        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            probes = [pool.submit(courier.probe, sink) for _ in range(8)]
            assert resolved.wait(60)
            courier.close()
        ends = {type(probe.exception()) for probe in probes}
        assert ends <= {type(None), concurrent.futures.CancelledError, PlatformError}, "answered, cut off or too late"
    gc.collect()


def test_the_address_that_was_judged_is_called_by_the_name_that_was_given(
    stand: Any, person: Any, receive: Callable[[], Any]
) -> None:
    receiver = receive()

    async def resolve(host: str, port: int) -> list[str]:
        return ["127.0.0.1"] if host == "sink.example" else []

    stand.courier.close()
    stand.courier = Courier(stand.database, stand.signer, Rule(None, embedded=True), resolve=resolve)
    url = receiver.url.replace("127.0.0.1", "sink.example")
    assert person("POST", "/v1/sinks", {"url": url}).json["sink"]["name"] == "sink-example"
    assert person("POST", "/v1/sinks/sink-example:test").json["good"] is True
    assert receiver.got[0][0]["host"] == url.split("/")[2]


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"url": "ftp://host/x"}, "https://HOST/PATH"),
        ({"url": "https://user:secret@host/x"}, "no user, password"),
        ({"url": "https://"}, "https://HOST/PATH"),
        ({"url": "https://127.0.0.1:99999/"}, "https://HOST/PATH"),
        ({"url": "http://127.0.0.1/x", "types": ["task.suceeded"]}, "task.succeeded"),
        ({"url": "http://127.0.0.1/x", "types": ["*.succeeded"]}, "last character"),
        ({"url": "http://no-such-name.invalid/x"}, "is not known"),
    ],
)
def test_a_sink_that_could_get_nothing_is_refused(person: Any, asked: dict[str, Any], said: str) -> None:
    answer = person("POST", "/v1/sinks", asked)
    assert answer.status_code == 422 and said in json.dumps(answer.json), answer.json
    assert person("GET", "/v1/sinks").json["items"] == []


def test_the_best_checkpoint_so_far_starts_an_evaluation(stand: Any, person: Any, function: Any, worker: Any) -> None:
    node = {"id": "f", "function": "f", "digest": function.digest()}
    node["inputs"] = {"x": {"kind": "parameter", "name": "step"}}
    subscription = {
        "program": {"pipeline": "evaluate", "graph": {"name": "evaluate", "required": ["step"], "nodes": [node]}},
        "filters": [{"exact": {"type": "dev.trainlet.checkpoint.best"}}],
        "params": {"step": {"path": "$.data.step"}},
    }
    answer = person("PUT", "/v1/subscriptions/evaluate", subscription)
    assert answer.status_code == 200, answer.json
    body = {"run_id": "r", "node": "f", "function": "f", "digest": function.digest(), "args": {"x": 1}}
    person("PUT", "/v1/tasks/r.f", body)
    token = worker("POST", "/v1/attempts/r.f/1:claim", {"worker": "w", "nonce": "n"}).json["token"]
    headers = {"Authorization": f"Bearer {token}"}
    for step, best in ((10, True), (20, False), (30, True)):
        beat = {"worker": "w", "checkpoints": [{"step": step, "epoch": 1, "best": best}]}
        worker._http.post("/v1/attempts/r.f/1:heartbeat", json=beat, headers=headers)
    fanout.work(stand.database, stand.matcher)
    Engine(stand.database, stand.matcher).work()
    found = [run for run in person("GET", "/v1/runs").json["items"] if run["pipeline"] == "evaluate"]
    assert sorted(run["params"]["step"] for run in found) == [10, 30]


def test_what_was_delivered_is_forgotten_after_a_week_what_is_dead_later_and_what_waits_never(
    stand: Any, person: Any, receive: Callable[[], Any], clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    good, bad = receive(), receive()
    add(person, good, "run.started", name="good")
    add(person, bad, "run.started", name="bad")
    run(person, "r1")
    bad.answers = [(500, {})] * (letters.MOST_TRIES + 1)
    for _ in range(letters.MOST_TRIES):
        deliver(stand)
        clock.advance(3600)
    run(person, "r2")
    deliver(stand)

    def left(days: float) -> tuple[int, list[int]]:
        clock.advance(days * 24 * 3600)
        fanout.forget(stand.database)
        paths = [f"/v1/sinks/{name}/letters?state={state}" for name, state in KINDS]
        with stand.database.read() as tx:
            events = len(tx.all(schema.outbox.select()))
        return events, [len(person("GET", path).json["items"]) for path in paths]

    assert left(6) == (4, [2, 1, 1])
    assert left(1.1) == (2, [0, 1, 1])
    assert left(26) == (2, [0, 1, 1])
    assert left(3) == (1, [0, 0, 1])


KINDS = (("good", "delivered"), ("bad", "dead"), ("bad", "waiting"))


def test_a_budget_of_many_projects_is_told_to_each_of_them_and_to_no_other(
    stand: Any, http: Any, person: Any, receive: Callable[[], Any]
) -> None:
    mine, sister, stranger = receive(), receive(), receive()
    add(person, mine, "budget.*")
    for project, receiver in (("p-2", sister), ("q", stranger)):
        add(type(person)(http, stand.token("client", project=project)), receiver, "budget.*")
    with stand.database.write() as tx:
        outbox.budget(tx, "p*", "family", 0, 80, "")
        outbox.budget(tx, "p", "own", 0, 100, "")
    deliver(stand)
    deliver(stand)
    assert mine.types == ["budget.spent", "budget.warned"]
    assert sister.types == ["budget.warned"] and stranger.types == []
    assert [one.events[-1]["source"] for one in (mine, sister)] == ["/projects/p", "/projects/p-2"]
    assert sister.events[0]["data"] == {"budget": "family", "covers": "p*", "percent": 80, "run": ""}
