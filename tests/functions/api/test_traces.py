"""A caller's trace goes with the task: into its event, its claim, and never into what a repeat is compared with."""

from __future__ import annotations

import json
from typing import Any

from trainlet.core import traces
from trainlet_functions.relay import Relay
from trainlet_functions.signatures import Signer
from trainlet_functions.state import outbox

CALLER = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


def create(person: Any, function: Any, traceparent: str) -> Any:
    body = {"run_id": "r", "node": "f", "function": "f", "digest": function.digest(), "args": {"x": 1}}
    return person("PUT", "/v1/tasks/r.f", body, traceparent=traceparent)


def test_the_event_and_the_claim_are_in_the_callers_trace(
    stand: Any, person: Any, worker: Any, function: Any, tmp_path: Any
) -> None:
    assert create(person, function, CALLER).status_code == 201
    with stand.database.read() as tx:
        (row,) = outbox.due(tx)
    relay = Relay(stand.database, None, Signer.load(tmp_path / "signing.key"))  # type: ignore[arg-type]
    headers, body = relay.event(row)
    relay.close()
    told = traces.parse(headers["ce-traceparent"])
    assert told is not None
    assert told.trace_id == "0af7651916cd43dd8448eb211c80319c"
    assert headers["traceparent"] == headers["ce-traceparent"] == json.loads(body)["traceparent"]
    task = worker("POST", "/v1/attempts/r.f/1:claim", {"worker": "w", "nonce": "n"}).json["task"]
    assert traces.of_attempt("r", "r.f", task["labels"], 1) == told.span("attempt", 1)


def test_T5_the_same_task_from_another_span_attaches(person: Any, function: Any) -> None:
    assert create(person, function, CALLER).status_code == 201
    again = create(person, function, CALLER.replace("b7ad", "c8be"))
    assert again.status_code == 200
    assert again.json["labels"] == {traces.LABEL: CALLER}


def test_a_traceparent_that_is_none_is_ignored(person: Any, function: Any) -> None:
    assert create(person, function, "hello").json["labels"] == {}
