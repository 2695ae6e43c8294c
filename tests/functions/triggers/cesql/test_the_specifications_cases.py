"""CESQL gives what the specification's own test cases say: values, errors, and the stand-in values of errors.

`cases.json` holds the cases of the CloudEvents project's conformance kit as data. Where the kits of the specification and of
the Go SDK differ (`NOT 10`), the SDK's is taken: it fits the specification's table of casts, and Eventing runs it.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from trainlet_functions.triggers import cesql

CASES = [
    pytest.param(case, id=f"{group}-{number}")
    for group, cases in json.loads(Path(__file__).with_name("cases.json").read_text()).items()
    for number, case in enumerate(cases)
]
PLAIN = {"id": "an-id", "source": "/here", "type": "a.type"}


@pytest.mark.parametrize("case", CASES)
def test_a_case_gives_its_value_and_error(case: dict[str, Any]) -> None:
    attributes = {"specversion": "1.0", **case.get("attributes", {**PLAIN, **case.get("with", {})})}
    if case.get("error") == "parse":
        with pytest.raises(cesql.ParseError, match="at character"):
            cesql.parse(case["sql"])
        return
    expression = cesql.parse(case["sql"])
    outcome = expression.evaluate(attributes)
    assert outcome.error == case.get("error"), outcome.reason
    if "gives" in case:
        assert (type(outcome.value), outcome.value) == (type(case["gives"]), case["gives"])
    assert expression.matches(attributes) is (case.get("gives") is True and "error" not in case)


def test_all_cases_are_there() -> None:
    assert len(CASES) >= 200
