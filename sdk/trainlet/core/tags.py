"""Tags: what people write on a run or a step so that they find it on the bill.

The rules are those of the bill's format (FOCUS, `Tags`): a flat mapping of text to text, where the prefix `trainlet:`
belongs to the provider. A tag that breaks them is refused where it is written, not when a month is exported.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import AfterValidator, Field, StringConstraints, TypeAdapter, ValidationError

from trainlet.core.errors import UserError

RESERVED = "trainlet:"
MOST = 64
TagKey = Annotated[str, StringConstraints(pattern=r"^[^\s\x00-\x1f\x7f][^\x00-\x1f\x7f]{0,127}$")]
TagValue = Annotated[str, StringConstraints(max_length=256, pattern=r"^[^\x00-\x1f\x7f]*$")]


def _no_reserved(tags: dict[str, str]) -> dict[str, str]:
    for name in tags:
        if name.lower().startswith(RESERVED):
            raise ValueError(
                f"{name!r}: `trainlet:` marks the tags that trainlet itself puts on a bill; choose another name"
            )
    return tags


Tags = Annotated[dict[TagKey, TagValue], Field(max_length=MOST), AfterValidator(_no_reserved)]
"""Tags of a run or step: names of 1 to 128 and values of up to 256 printable characters; they appear on its bill."""


@functools.cache
def _rules() -> TypeAdapter[dict[str, str]]:
    return TypeAdapter(Tags)


def parse_tags(value: Any, what: str) -> dict[str, str]:
    """Return checked tags; `what` names the option in messages. Raises UserError that names the tag."""
    if not isinstance(value, Mapping):
        raise UserError(f'{what}{value!r} must be a mapping of names to texts, such as {{"team": "vision"}}.')
    given = dict(value)
    for name, one in given.items():
        if not isinstance(name, str) or not isinstance(one, str):
            raise UserError(f'{what}{name!r}: {one!r} must be text on both sides. Write {{"{name}": "{one}"}}.')
    try:
        return _rules().validate_python(given)
    except ValidationError as error:
        raise UserError(f"{what}{_words(error, given)}") from None


def merged(*several: Mapping[str, str]) -> dict[str, str]:
    """Return all tags together: the nearer to the work, the stronger. Raises UserError when they are too many."""
    together: dict[str, str] = {}
    for tags in several:
        together |= tags
    if len(together) > MOST:
        raise UserError(f"Run and step together have {len(together)} tags; a bill holds {MOST}. Leave some out.")
    return together


def _words(error: ValidationError, given: dict[str, str]) -> str:
    first = error.errors()[0]
    if first["type"] == "value_error":
        return str(first["ctx"]["error"]) + "."
    if first["type"] == "too_long" or not first["loc"]:
        return f" has {len(given)} tags; at most {MOST} fit on a bill."
    name = str(first["loc"][0])
    if len(first["loc"]) > 1 and first["loc"][1] == "[key]":
        return f"{name[:140]!r} is no name of a tag: 1 to 128 printable characters that do not begin with a space."
    return f"{name!r}: its value must be up to 256 printable characters, on one line."
