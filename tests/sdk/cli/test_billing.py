"""The commands of billing, on a real platform: reports, exports, and the proof that they agree."""

from __future__ import annotations

import json
from decimal import Decimal
from pathlib import Path

import pytest

pytestmark = [pytest.mark.timeout(200), pytest.mark.xdist_group("cli")]

FLOW = """
import time
import trainlet as tl

@tl.step(gpu="L4", tags={"team": "vision"})
def train() -> None:
    time.sleep(1.2)

@tl.pipeline
def training() -> None:
    train()
"""


@pytest.fixture
def used(trainlet, write) -> Decimal:
    """Use a device and return what everything has cost so far."""
    write("flow.py", FLOW)
    done = trainlet("run", "flow.py")
    assert done.returncode == 0, done.stderr
    return Decimal(json.loads(trainlet("usage", "--json").stdout)["cost_nano"]).scaleb(-9)


def test_reports_exports_and_the_ledger_agree_to_the_nano(trainlet, used, tmp_path):
    report = json.loads(trainlet("billing", "report", "--json", "--tag-names", "team", "--show-resources").stdout)
    assert sum(Decimal(item["cost"]) for item in report) == used > 0
    assert report[-1]["tags"] == {"team": "vision"} and Decimal(report[-1]["cost_by_resource"]["L4"]) > 0
    (summary,) = json.loads(trainlet("billing", "summary", "--json").stdout)
    assert Decimal(summary["billed_cost"]) == used and summary["state"] == "open"

    done = trainlet("billing", "export", "--to", "out", "--issuer", "GPUs Inc.", "--json")
    made = json.loads(done.stdout)
    assert made["new"] and made["manifest"]["provisional"] and made["manifest"]["parties"]["issuer"] == "GPUs Inc."
    assert Decimal(made["manifest"]["billed_nano"]).scaleb(-9) == used
    checked = trainlet("billing", "verify", "out")
    assert checked.returncode == 0, checked.stdout
    assert "in both, still" in checked.stdout

    (part,) = [one["name"] for one in made["manifest"]["parts"] if one["format"] == "csv"]
    path = tmp_path / "out" / made["folder"] / part
    path.chmod(0o644)
    path.write_text(path.read_text().replace('"Usage"', '"usage"'))
    bad = trainlet("billing", "verify", "out", "--offline")
    assert bad.returncode == 1
    assert "ChargeCategory-C-003" in bad.stdout and "has the sha256" in bad.stdout


def test_tables_and_spreadsheets_are_for_reading(trainlet, used):
    table = trainlet("billing", "report", "--for", "today").stdout
    assert table.splitlines()[0].split("\t") == ["interval", "project", "run", "function", "seconds", "cost (USD)"]
    assert "virtual" in table.splitlines()[-1]
    lines = trainlet("billing", "report", "--csv", "-r", "h").stdout.splitlines()
    assert lines[0] == "interval,project,run,function,seconds,cost,currency" and lines[1].endswith(",USD")
    assert "billed" in trainlet("billing", "summary").stdout
    rates = trainlet("billing", "rates", "--csv").stdout
    assert "L4," in rates and rates.startswith("SKU,per GPU-hour,per GPU-second,currency")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["export", "--to", "out", "--focus", "1.3"], "--focus 1.3: this version of FOCUS is not written"),
        (["export", "--to", "out", "--period", "9990-01"], "has not begun"),
        (["export", "--to", "ftp://x"], "is no store"),
        (["export", "--to", "out", "--issuer", ""], "is no name"),
        (["verify", "nowhere"], "holds no export"),
        (["report", "--start", "2026-07-02", "--end", "2026-07-01"], "is reversed"),
        (["close", "9990-01"], "goes on until"),
    ],
)
def test_what_is_wrong_is_said_with_what_is_right(trainlet, arguments, said):
    done = trainlet("billing", *arguments)
    assert done.returncode == 2 and said in done.stderr, done.stderr
    assert "Traceback" not in done.stderr and done.stdout == ""
    assert not Path("out").exists()
