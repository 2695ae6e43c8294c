"""The plainest paths and moments: JSON Pointers and simple JSONPaths, fixed intervals."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from trainlet.core.durations import parse_duration_s
from trainlet.core.errors import UserError
from trainlet.core.triggers import Parameter


def value(name: str, parameter: Parameter, form: dict[str, Any]) -> Any:
    """Return what an event in its JSON form gives to a parameter; raises UserError."""
    if parameter.path is None:
        return parameter.default
    found: Any = form
    parts = parameter.path.removeprefix("$").replace("/", ".").strip(".")
    for part in parts.split(".") if parts else ():
        if isinstance(found, dict) and part in found:
            found = found[part]
        elif isinstance(found, list) and part.isdecimal() and int(part) < len(found):
            found = found[int(part)]
        elif parameter.has_default:
            return parameter.default
        else:
            raise UserError(f"Parameter {name}: {parameter.path} finds nothing in the event. Give it a default.")
    return found


@dataclass(frozen=True, slots=True)
class Schedule:
    """Every so many seconds since 1970."""

    every_s: int

    @classmethod
    def parse(cls, when: str, *, tz: str = "UTC") -> Schedule:
        """Read `every 6h`; raises UserError."""
        if not when.startswith("every "):
            raise UserError(f"The schedule {when!r} is not known. Write 'every 6h'.")
        return cls(max(1, round(parse_duration_s(when.removeprefix("every "), "every="))))

    def next_after(self, moment: datetime) -> datetime | None:
        """Return the first moment after another."""
        seconds = int(moment.timestamp()) // self.every_s + 1
        return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(seconds=seconds * self.every_s)
