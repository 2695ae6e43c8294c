"""`/v1/usage/totals` and `/v1/estimates`: each project sees its own, and what makes no sense is refused in words."""

from __future__ import annotations

from typing import Any

import pytest

TOTALS = "/v1/usage/totals"


def test_a_project_sees_its_own_sums_and_an_admin_those_of_all(stand: Any, http: Any, person: Any) -> None:
    admin = type(person)(http, stand.token("admin"))
    assert person("GET", TOTALS).json["items"] == []
    assert person("GET", f"{TOTALS}?project=p").status_code == 200
    assert person("GET", f"{TOTALS}?project=*").status_code == 403
    assert (
        admin("GET", f"{TOTALS}?project=*&group_by=project,tag:team&tz=Europe/Berlin&resolution=h").status_code == 200
    )


@pytest.mark.parametrize(
    ("query", "words"),
    [
        ("resolution=w", "none of s, m, h, d"),
        ("tz=Europe/Berlim", "Did you mean 'Europe/Berlin'"),
        ("group_by=skuu", "Did you mean 'sku'"),
        ("start_s=1000000000&end_s=1000000000", "is empty"),
        ("start_s=1000000001&end_s=1000000000", "is reversed"),
        ("start_s=200000000000", "in the future"),
        ("start_s=-5", "out of range"),
        ("start_s=soon", "not a valid integer"),
    ],
)
def test_a_question_that_makes_no_sense_is_refused_in_words(person: Any, query: str, words: str) -> None:
    answer = person("GET", f"{TOTALS}?{query}")
    assert answer.status_code == 422 and words in answer.json["detail"]


def test_an_estimate_that_makes_no_sense_is_refused_in_words(person: Any) -> None:
    gpu = {"sku": "L4", "count": 1}
    for step, words in (
        ({"node": "a", "gpus": [gpu], "phases": [["rum", 5]]}, "is no phase"),
        ({"node": "a", "gpus": [gpu], "phases": [["run", -5]]}, "greater than or equal to 0"),
        ({"node": "a", "gpus": [{"sku": "L4", "count": 0}]}, "greater than or equal to 1"),
        ({"node": "a", "tasks": -1}, "greater than or equal to 0"),
    ):
        answer = person("POST", "/v1/estimates", {"steps": [step]})
        assert answer.status_code == 422 and words in answer.json["detail"], answer.json
