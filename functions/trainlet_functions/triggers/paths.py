"""Paths into an event in its JSON form: JSONPath (RFC 9535) or JSON Pointer (RFC 6901), read once and bounded.

Filter selectors (`[?...]`) are left out: a path says where a value is, `data` conditions and CESQL say which events.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any

import jsonpath

from trainlet.core.errors import UserError

MISSING: Any = object()
MAX_VALUES = 10_000


@dataclass(frozen=True, slots=True)
class Path:
    """A path that was read. `single`: it can find one value at most."""

    text: str
    single: bool
    _compiled: jsonpath.CompoundJSONPath | jsonpath.JSONPath | jsonpath.JSONPointer

    def find(self, form: Any) -> Any:
        """Return the value there, the list of values for a path that may find many, or MISSING."""
        try:
            if isinstance(self._compiled, jsonpath.JSONPointer):
                return self._compiled.resolve(form, default=MISSING)
            found = [match.obj for match, _ in zip(self._compiled.finditer(form), range(MAX_VALUES), strict=False)]
        except (jsonpath.JSONPathError, jsonpath.JSONPointerError, RecursionError):
            return MISSING
        if not found:
            return MISSING
        return found[0] if self.single else found


@functools.lru_cache(maxsize=1024)
def parse(text: str, where: str) -> Path:
    """Read a path; raises UserError that says where it is written."""
    try:
        if text.startswith("/"):
            return Path(text, True, jsonpath.JSONPointer(text, uri_decode=False, unicode_escape=False))
        if text.startswith("$") and "?" not in text:
            compiled = jsonpath.compile(text, strict=True)
            return Path(text, compiled.singular_query() if isinstance(compiled, jsonpath.JSONPath) else False, compiled)
    except (jsonpath.JSONPathError, jsonpath.JSONPointerError, RecursionError) as error:
        raise UserError(f"{where}: {text!r} is no path: {str(error).splitlines()[0]}.") from None
    raise UserError(
        f"{where}: {text!r} is no path. Write a JSONPath without [?...], such as $.data.uri, or a JSON Pointer: /data/uri."
    )
