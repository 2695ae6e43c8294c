"""`/v1/budgets`: only admins set limits, wrong ones are told in words, and each project sees its own."""

from __future__ import annotations

from typing import Any

import pytest

TERMS = {"covers": "p", "money_nano": 500 * 10**9}


@pytest.fixture
def admin(stand: Any, http: Any, person: Any) -> Any:
    return type(person)(http, stand.token("admin"))


def test_an_admin_sets_a_budget_and_its_project_sees_how_it_stands(admin: Any, person: Any) -> None:
    view = admin("PUT", "/v1/budgets/team", TERMS).json
    assert (view["limit"], view["unit"], view["per"], view["state"]) == (500 * 10**9, "USD", "month", "open")
    assert person("GET", "/v1/budgets/team").json["used"] == 0
    assert admin("PUT", "/v1/budgets/team", {**TERMS, "gpu_seconds": None}).json["set_by"] == "test"
    assert [item["name"] for item in person("GET", "/v1/budgets").json["items"]] == ["team"]
    assert admin("DELETE", "/v1/budgets/team").status_code == 200
    assert person("GET", "/v1/budgets").json["items"] == []


def test_a_project_cannot_set_budgets_nor_see_those_of_others(admin: Any, person: Any) -> None:
    assert person("PUT", "/v1/budgets/team", TERMS).status_code == 403
    assert person("DELETE", "/v1/budgets/team").status_code == 403
    admin("PUT", "/v1/budgets/theirs", {**TERMS, "covers": "other"})
    assert person("GET", "/v1/budgets/theirs").status_code == 404
    assert person("GET", "/v1/budgets").json["items"] == []


@pytest.mark.parametrize(
    ("terms", "words"),
    [
        ({"covers": "p"}, "either money_nano or gpu_seconds"),
        ({**TERMS, "gpu_seconds": 5}, "either money_nano or gpu_seconds"),
        ({**TERMS, "money_nano": 0}, "greater than 0"),
        ({**TERMS, "strict": True, "action": "warn"}, "strict goes with action=stop"),
        ({**TERMS, "warn_at": [0]}, "percentages from 1 to 100"),
        ({**TERMS, "covers": "Team"}, "covers"),
        ({**TERMS, "covers": "te*am"}, "covers"),
        ({**TERMS, "per": "week"}, "per"),
        ({**TERMS, "currency": "EUR"}, "Prices are in USD"),
        ({**TERMS, "sku": "H1000"}, "Did you mean"),
        ({**TERMS, "color": 1}, "color"),
    ],
)
def test_a_wrong_budget_is_refused_in_words(admin: Any, terms: Any, words: str) -> None:
    answer = admin("PUT", "/v1/budgets/team", terms)
    assert answer.status_code == 422 and words in answer.json["detail"]
