"""The plainest filters, paths and moments: exact attributes, JSON Pointers and simple JSONPaths, fixed intervals."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from trainlet.core.durations import parse_duration_s
from trainlet.core.errors import UserError
from trainlet.core.events import Event
from trainlet.core.triggers import Parameter


@dataclass(frozen=True, slots=True)
class Filter:
    """All of these attributes must have exactly these values."""

    wanted: dict[str, str]

    def matches(self, event: Event) -> bool:
        """Say whether an event fits."""
        return all(str(event.attributes.get(name, "")) == value for name, value in self.wanted.items())

    def index_keys(self) -> list[tuple[str | None, str | None]] | None:
        """Return the exact (type, source) that are needed."""
        return [(self.wanted.get("type"), self.wanted.get("source"))]


def compile(specs: Sequence[dict[str, Any]]) -> Filter:
    """Make a filter of a list of dialects; raises UserError."""
    wanted: dict[str, str] = {}
    for spec in specs:
        if set(spec) != {"exact"} or not isinstance(spec["exact"], dict):
            raise UserError(f"The filter {spec!r} is not known. Write {{'exact': {{'type': ...}}}}.")
        wanted |= {str(name): str(value) for name, value in spec["exact"].items()}
    return Filter(wanted)


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
