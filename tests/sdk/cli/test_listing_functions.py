"""`trainlet functions` on a cluster: pods, Revisions, and how the last pod started."""

from __future__ import annotations

from typing import Any

import pytest
from click.testing import CliRunner

from trainlet.cli import listing
from trainlet.core import wire
from trainlet.core.specs import Entry, FunctionSpec

SPEC = FunctionSpec(name="train", bundle="a" * 64, entry=Entry(module="m", qualname="train"))


def listed(monkeypatch: pytest.MonkeyPatch, deployment: wire.Deployment | None, **more: Any) -> str:
    view = wire.FunctionView(
        name="train", digest="b" * 64, spec=SPEC, created_at="2026-01-01T00:00:00Z", deployment=deployment, **more
    )

    class Client:
        def list_functions(self) -> list[wire.FunctionView]:
            return [view]

    monkeypatch.setattr(listing, "connect", lambda _: Client())
    found = CliRunner().invoke(listing.functions, [], terminal_width=200, env={"COLUMNS": "200"})
    assert found.exit_code == 0, found.output
    return found.output


def test_the_newest_revision_and_those_that_are_still_served_are_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    state = wire.Deployment(
        ready=True, revision="train-00002", pods=3, ready_pods=3, cold_start={"schedule": 1.0, "pull": 8.0, "boot": 2.0}
    )
    shown = listed(monkeypatch, state, workers=3, busy=2, revisions={"train-00001": 2, "train-00002": 1})
    for words in ("3 (2 busy)", "3 (1 warm)", "11 s (schedule 1, pull 8, boot 2)", "train-00002, train-00001 (2)"):
        assert words in shown


def test_why_a_function_does_not_run_comes_before_its_revisions(monkeypatch: pytest.MonkeyPatch) -> None:
    state = wire.Deployment(ready=False, reason="pod train-x is not placed: no GPU", revision="train-00002")
    assert "pod train-x is not placed: no GPU, train-00001 (1)" in listed(
        monkeypatch, state, revisions={"train-00001": 1}
    )


def test_on_one_machine_there_are_neither_pods_nor_revisions(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "pods" not in listed(monkeypatch, None)
