"""What docs/events.md shows is right: its commands exist, its code registers triggers, and its hooks post to where it says."""

from __future__ import annotations

import importlib
import re
from pathlib import Path
from typing import Any

import click
import pytest
from tests.docs import commands

import trainlet as tl
from trainlet import cli
from trainlet_functions.triggers import adapters
from trainlet_functions.triggers.hooks import _DEFAULTS

TEXT = (Path(__file__).parents[2] / "docs" / "events.md").read_text()
COMMANDS = dict.fromkeys(" ".join(one.split()) for one in re.findall(r"`(trainlet [^`]+)`", TEXT))
CODE = re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL)


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_and_its_options_exist(command: str) -> None:
    found, name, arguments = commands.named(command)
    if isinstance(found, click.Group) and arguments and not arguments[0].startswith("-"):
        found, name, arguments = found.commands[arguments[0]], arguments[0], arguments[1:]
    options = [one for one in arguments if one.startswith("-")]
    with click.Context(cli.cli):
        found.make_context(name, arguments, resilient_parsing=not options)


def test_the_triggers_of_the_page_are_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (whole,) = [code for code in CODE if "@tl.on_schedule" in code]
    (tmp_path / "retrain_of_the_page.py").write_text(whole)
    monkeypatch.syspath_prepend(str(tmp_path))
    module = importlib.import_module("retrain_of_the_page")
    assert len(module.retrain.triggers) == 3
    (part,) = [code for code in CODE if '"/data/priority"' in code]
    scope: dict[str, Any] = {"tl": tl}
    exec(compile(part, "docs/events.md", "exec"), scope)
    assert len(scope["retrain"].triggers) == 1


def test_the_tables_name_every_adapter_and_the_scheme_that_is_its_default() -> None:
    for adapter in adapters.ADAPTERS:
        assert re.search(rf"(?m)^\| `{adapter}` \|", TEXT), adapter
    for adapter, scheme in _DEFAULTS.items():
        (row,) = re.findall(rf"(?m)^\| `{scheme}` \|.*$", TEXT.partition("| `--scheme` |")[2])
        assert f"`{adapter}`" in row.rsplit("|", 2)[1], (adapter, scheme)
