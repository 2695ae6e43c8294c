"""Billing periods are months in UTC, named `2026-07`: POSIX seconds, so no leap second and no local zone moves a cut."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime

from trainlet.core.errors import UserError


@dataclass(frozen=True, slots=True, order=True)
class Month:
    """One billing period."""

    year: int
    month: int

    @classmethod
    def parse(cls, text: str) -> Month:
        """Read `2026-07`; raises UserError."""
        match = re.fullmatch(r"(\d{4})-(\d{2})", text)
        if match is None or not 1 <= int(match[2]) <= 12 or not 2000 <= int(match[1]) <= 2200:
            raise UserError(f"{text!r} is no billing period. Write a month in UTC, such as 2026-07.")
        return cls(int(match[1]), int(match[2]))

    @classmethod
    def of(cls, second: int) -> Month:
        """Return the period that a UTC second is in."""
        at = datetime.fromtimestamp(second, UTC)
        return cls(at.year, at.month)

    def __str__(self) -> str:
        return f"{self.year:04d}-{self.month:02d}"

    @property
    def start_s(self) -> int:
        """Return the first second."""
        return int(datetime(self.year, self.month, 1, tzinfo=UTC).timestamp())

    @property
    def end_s(self) -> int:
        """Return the second after the last."""
        return self.next.start_s

    @property
    def next(self) -> Month:
        """Return the period after this one."""
        return Month(self.year + self.month // 12, self.month % 12 + 1)
