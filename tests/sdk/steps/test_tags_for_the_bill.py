"""Tags are checked where they are written, and the message names the tag."""

from __future__ import annotations

import re
from typing import Any

import pytest

import trainlet as tl
from trainlet.cli import loading
from trainlet.core import tags
from trainlet.core.errors import UserError


@tl.step(tags={"team": "vision"})
def train() -> int:
    return 1


def test_tags_are_a_part_of_the_deployed_step() -> None:
    assert train.spec().tags == {"team": "vision"}
    assert train.with_options(tags={"team": "text"}).spec().tags == {"team": "text"}


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ("team", "must be a mapping"),
        ({"team": 3}, 'Write {"team": "3"}'),
        ({"trainlet:sku": "x"}, "`trainlet:` marks the tags"),
        ({"Trainlet:Sku": "x"}, "`trainlet:` marks the tags"),
        ({"": "x"}, "is no name of a tag"),
        ({" team": "x"}, "is no name of a tag"),
        ({"t" * 129: "x"}, "is no name of a tag"),
        ({"team": "a\nb"}, "'team': its value"),
        ({"team": "x" * 257}, "'team': its value"),
        ({str(number): "x" for number in range(65)}, "has 65 tags"),
    ],
)
def test_a_tag_that_a_bill_cannot_hold_is_refused_by_name(given: Any, words: str) -> None:
    with pytest.raises(UserError, match=re.escape(words)):
        train.with_options(tags=given)
    with pytest.raises(UserError, match=r"^tags="):
        tags.parse_tags(given, "tags=")


def test_the_nearer_tag_is_the_stronger_one() -> None:
    assert tags.merged({"team": "run", "a": "1"}, {"team": "step"}) == {"team": "step", "a": "1"}


def test_more_tags_than_a_bill_holds_are_refused() -> None:
    many = {str(number): "x" for number in range(60)}
    with pytest.raises(UserError, match="together have 70 tags"):
        tags.merged(many, {f"more-{number}": "x" for number in range(10)})


def test_the_command_line_reads_tags_and_refuses_what_is_none() -> None:
    assert loading.tags(["team=vision", "note=a=b"]) == {"team": "vision", "note": "a=b"}
    for given, words in ((["team"], "is not name=text"), (["a=1", "a=2"], "given twice"), (["trainlet:x=1"], "marks")):
        with pytest.raises(UserError, match=words):
            loading.tags(given)
