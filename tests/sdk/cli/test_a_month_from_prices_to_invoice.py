"""The commands about money over a whole month: prices, usage of another system, close, export to a bucket, events to a sink."""

from __future__ import annotations

import contextlib
import io
import json
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests import servers

from trainlet.cli import main
from trainlet.core.bills import Period

pytestmark = [pytest.mark.timeout(120), pytest.mark.xdist_group("cli")]
NOW = Period.of(int(time.time()))
LAST = Period.of(NOW.start_s - 1)
BEFORE = Period.of(LAST.start_s - 1)
SECONDS = 7201
NANO = 1_234_567  # per second, of the hour price below
PRICES = f"""
- version: ours
  currency: USD
  effective_from: {BEFORE}-01T00:00:00Z
  per_gpu_hour: {{A100-80GB: "4.4444412"}}
"""


@pytest.fixture
def trainlet(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """Run the command line here: many calls, none of which starts an interpreter."""
    monkeypatch.setattr(warnings, "showwarning", warnings.showwarning)
    monkeypatch.chdir(tmp_path)

    def run(*arguments: str) -> Any:
        monkeypatch.setattr(sys, "argv", ["trainlet", *arguments])
        out, err = io.StringIO(), io.StringIO()
        code: Any = 0
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            try:
                main()
            except SystemExit as end:
                code = end.code or 0
        return SimpleNamespace(returncode=code, stdout=out.getvalue(), stderr=err.getvalue())

    return run


def ok(done: Any) -> str:
    assert done.returncode == 0, done.stderr
    return str(done.stdout)


def usage() -> list[dict[str, Any]]:
    """Return the events of a lease that another system had last month."""
    named = {"task": "job-7", "epoch": 1, "run_id": "job-7", "function": "slurm", "lease": "slurm-7"}
    device = {"uuid": "GPU-x", "sku": "A100-80GB"}
    when = {"anchor_ns": (LAST.start_s + 1800) * 10**9, "elapsed_ns": SECONDS * 10**9}
    data = {**named, **when, "id": "slurm-7:1", "seq": 1, "kind": "close", "device": device, "tags": {"team": "vision"}}
    head = {"specversion": "1.0", "type": "dev.trainlet.lease.reading", "source": "urn:slurm:c1", "id": data["id"]}
    return [{**head, "data": data}]


class Sink:
    """An HTTP sink of CloudEvents that fails once."""

    def __init__(self) -> None:
        self.taken: dict[str, dict[str, Any]] = {}
        self.requests: list[tuple[str, str | None]] = []
        sink = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                sink.requests.append((self.headers["Content-Type"], self.headers["Authorization"]))
                refused = len(sink.requests) == 1
                if not refused:
                    sink.taken.update({event["id"]: event for event in json.loads(body)})
                self.send_response(503 if refused else 204)
                self.end_headers()

            def log_message(self, format: str, *args: Any) -> None: ...

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}/api/v1/events"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()


@pytest.fixture
def sink() -> Iterator[Sink]:
    made = Sink()
    yield made
    made.server.shutdown()
    made.server.server_close()


def test_a_month_is_priced_closed_exported_and_sent_and_every_place_says_the_same(
    trainlet: Any, tmp_path: Path, sink: Sink, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "prices.yaml").write_text(PRICES)
    (tmp_path / "usage.json").write_text(json.dumps(usage()))
    _prices(trainlet, tmp_path)
    assert json.loads(ok(trainlet("events", "send", "usage.json", "--json")))["items"] == ["slurm-7:1"]

    billed = NANO * SECONDS
    payable = round(billed / 10**7) * 10**7
    total = json.loads(ok(trainlet("usage", "--for", str(LAST), "-g", "tag:team", "--json")))
    assert (total["parts"], total["cost_nano"]) == (SECONDS * 5040, billed)
    assert [one["period"] for one in json.loads(ok(trainlet("billing", "periods", "--json")))] == [str(LAST), str(NOW)]
    _close(trainlet, payable)
    _export(trainlet, payable)
    _send(trainlet, sink, monkeypatch, payable, tmp_path)

    found = json.loads(ok(trainlet("billing", "allocations", "--period", str(LAST), "--by", "run")))
    assert "job-7" in json.dumps(found)
    (summary,) = json.loads(ok(trainlet("billing", "summary", "--period", str(LAST), "--json")))
    assert (summary["state"], round(float(summary["billed_cost"]) * 10**9)) == ("closed", payable)


def _prices(trainlet: Any, tmp_path: Path) -> None:
    told = trainlet("prices", "apply", "prices.yaml")
    assert told.returncode == 2 and "--retroactive" in told.stderr, told.stderr
    shown = json.loads(ok(trainlet("prices", "diff", "prices.yaml", "--json")))
    assert [one["version"] for one in shown["versions"]] == ["ours"]
    assert "version ours would be added" in ok(trainlet("prices", "diff", "prices.yaml"))
    assert "version ours was added" in ok(trainlet("prices", "apply", "prices.yaml", "--retroactive"))
    assert "Nothing is new" in ok(trainlet("prices", "apply", "prices.yaml"))
    (tmp_path / "other.yaml").write_text(PRICES.replace('"4.', '"5.'))
    (tmp_path / "wrong.yaml").write_text(PRICES.replace('"4.', '"-4.'))
    for name, said in (
        ("other.yaml", "Prices are never changed"),
        ("wrong.yaml", "A100-80GB"),
        ("none.yaml", "cannot be read"),
    ):
        for command in ("diff", "apply"):
            told = trainlet("prices", command, name)
            assert (told.returncode, told.stdout) == (2, "") and said in told.stderr, told.stderr


def _close(trainlet: Any, payable: int) -> None:
    told = trainlet("billing", "close", str(BEFORE))
    assert told.returncode == 2 and "the first usage was in" in told.stderr, told.stderr
    closed = json.loads(ok(trainlet("billing", "close", str(LAST), "--json")))
    (invoice,) = closed["invoices"]
    assert (closed["state"], invoice["seconds"], invoice["payable_nano"]) == ("closed", SECONDS, payable)
    again = ok(trainlet("billing", "close", str(LAST)))
    assert f"period {LAST} is closed, digest {closed['digest']}" in again and invoice["id"] in again
    listed = ok(trainlet("billing", "periods"))
    assert f"period {NOW} is open; no invoices" in listed and invoice["id"] in listed


def _export(trainlet: Any, payable: int) -> None:
    with servers.moto() as endpoint, servers.bucket_at(endpoint) as bucket:
        place = f"{bucket}/billing"
        for version in ("1.2", "1.4"):
            arguments = ("billing", "export", "--focus", version, "--period", str(LAST), "--to", place, "--json")
            first, second = (json.loads(ok(trainlet(*arguments))) for _ in range(2))
            assert (first["new"], second["new"]) == (True, False)
            assert first["manifest"] == second["manifest"]
            assert (first["manifest"]["billed_nano"], first["manifest"]["provisional"]) == (payable, False)
        checked = json.loads(ok(trainlet("billing", "verify", place, "--json")))
        assert [(one["ok"], one["ledger"], one["provisional"]) for one in checked] == [(True, [], False)] * 2
        told = trainlet("billing", "verify", place, "--period", str(BEFORE))
        assert told.returncode == 2 and f"holds no export of {BEFORE}" in told.stderr, told.stderr
        told = trainlet("billing", "export", "--period", str(LAST), "--to", place, "--issuer", "Another")
        assert told.returncode == 2 and str(LAST) in told.stderr, told.stderr


def _send(trainlet: Any, sink: Sink, monkeypatch: pytest.MonkeyPatch, payable: int, tmp_path: Path) -> None:
    monkeypatch.setenv("TRAINLET_SINK_TOKEN", "sesame")
    for _ in range(2):
        ok(trainlet("billing", "events", "--period", str(LAST), "--to", sink.url))
    data = [event["data"] for event in sink.taken.values()]
    assert sum(int(one["cost_nano"]) for one in data) == payable, "sent twice, counted once"
    assert sum(int(one["seconds"]) for one in data) == SECONDS
    assert set(sink.requests) == {("application/cloudevents-batch+json", "Bearer sesame")}
    ok(trainlet("billing", "events", "--period", str(LAST), "--to", "charges.jsonl"))
    lines = [json.loads(line) for line in (tmp_path / "charges.jsonl").read_text().splitlines()]
    assert {line["id"]: line for line in lines} == sink.taken
    told = trainlet("billing", "events", "--period", str(LAST), "--to", "charges.jsonl")
    assert told.returncode == 2 and "nothing is written over" in told.stderr


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["summary", "--period", "9990-01"], "has not begun"),
        (["summary", "--period", "july"], "is no billing period"),
        (["close", "2026-13"], "is no billing period"),
        (["events", "--period", "July", "--to", "x"], "is no billing period"),
        (["allocations", "--period", "9990-01"], "has not begun"),
        (["verify", ".", "--period", "2026-7"], "is no billing period"),
        (["report", "--start", "2026-07-01", "--end", "2026-07-01"], "is empty"),
        (["report", "--start", "2999-01-01", "--end", "2999-02-01"], "in the future"),
        (["report", "--for", "soon"], "is no range of time"),
        (["report", "--tz", "Mars/Base"], "There is no time zone"),
        (["report", "-r", "week"], "'week' is not one of"),
        (["events"], "Missing option '--to'"),
    ],
)
def test_what_is_wrong_is_said_and_nothing_is_written(trainlet: Any, tmp_path: Path, arguments: Any, said: str) -> None:
    told = trainlet("billing", *arguments)
    assert (told.returncode, told.stdout) == (2, "") and said in told.stderr, told.stderr
    assert list(tmp_path.iterdir()) == []
