"""What a collector finds on stderr: one JSON object a line, with what it is about."""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys

import pytest

from trainlet.core.errors import UserError
from trainlet_functions import journals


def line(record: logging.LogRecord, **known: object) -> dict[str, object]:
    """Format a record."""
    text = journals.JsonLines(lambda: known).format(record)
    assert "\n" not in text
    found: dict[str, object] = json.loads(text)
    return found


def record(message: str, *arguments: object, **fields: object) -> logging.LogRecord:
    """Make a record of an error."""
    made = logging.LogRecord("trainlet.test", logging.ERROR, __file__, 1, message, arguments, None)
    made.__dict__.update(fields)
    return made


def test_a_record_is_one_line_whatever_is_in_it() -> None:
    found = line(record("a\n%s", 'b"\x00\u2028'))
    assert found["message"] == 'a\nb"\x00\u2028'
    assert found["severity"] == "ERROR"
    assert found["logger"] == "trainlet.test"
    assert set(found) == {"time", "severity", "logger", "message"}


def test_a_record_says_what_it_is_about_and_the_rest_comes_from_what_goes_on() -> None:
    found = line(record("x", task="r.mine", epoch=2), task="r.request", run="r")
    assert (found["run"], found["task"], found["epoch"]) == ("r", "r.mine", 2)


def test_an_exception_is_a_field_and_not_more_lines() -> None:
    made = record("failed")
    try:
        raise ValueError("no")
    except ValueError:
        made.exc_info = sys.exc_info()
    found = line(made)
    assert found["error"] == "ValueError"
    assert "ValueError: no" in str(found["stack"])


def test_an_unknown_form_is_refused() -> None:
    with pytest.raises(UserError, match="TRAINLET_LOG='yaml'"):
        journals.install({"TRAINLET_LOG": "yaml"})


def test_a_worker_that_cannot_start_says_so_in_json() -> None:
    command = [sys.executable, "-m", "trainlet_functions.worker"]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("TRAINLET_")}
    done = subprocess.run(
        command, env={**environment, "TRAINLET_LOG": "json"}, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 2
    assert "TRAINLET_API is not set" in json.loads(done.stderr)["message"]
