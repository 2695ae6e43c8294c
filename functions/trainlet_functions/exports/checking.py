"""The checker: every charge of an export against every rule of FOCUS that can be told from the charges themselves.

A rule is asked once for each set of values that it looks at, however many charges have them. What holds across charges
(one parent per SKU price, each charge once) is remembered from batch to batch.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from trainlet_functions.exports import columns, rules

_OWN_NAME = re.compile(r"x_[A-Za-z0-9]+", re.ASCII)
_EXAMPLES = 3


@dataclass(slots=True)
class Finding:
    """A rule that charges break: how many, and what the first of them say."""

    rule: str
    says: str
    count: int = 0
    examples: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        return f"{self.rule}: {self.says}; {self.count} do not, such as {'; '.join(self.examples)}"


class Checker:
    """Checks batches of one file; `findings` is what it has found so far."""

    def __init__(self, version: str) -> None:
        self._focus = columns.focus(version)
        self._known = {column.name for column in self._focus}
        exported = columns.exported(version)
        self.rules = [
            *rules.of_columns(exported),
            *(rule for rule in rules.OF_CHARGES if set(rule.columns) <= self._known),
        ]
        self._one_each: dict[str, dict[Any, Any]] = {name: {} for _, _, name in rules.ONE_EACH}
        self._ids: set[str] = set()
        self._found: dict[str, Finding] = {}

    @property
    def findings(self) -> list[Finding]:
        """Return what was found, in the order of the rules that were broken first."""
        return list(self._found.values())

    def names(self, found: Sequence[str]) -> None:
        """Check the names of the columns."""
        for column in self._focus:
            if column.name not in found:
                self._add("CostAndUsage-D", f"the column {column.name} must be present", "it is missing")
        for name in found:
            if name not in self._known and not _OWN_NAME.fullmatch(name):
                self._add("ColumnHandling-A-010", "a column of one's own must begin with x_", name)
            if found.count(name) > 1:
                self._add("ColumnHandling-A", "a column must be there once", name)

    def charges(self, values: Mapping[str, Sequence[Any]], count: int) -> None:
        """Check a batch of charges; a column that is missing is null."""
        nothing: list[None] = [None] * count
        ids = values.get("x_ChargeId", nothing)
        for rule in self.rules:
            chosen = [values.get(name, nothing) for name in rule.columns]
            bad = {one for one in set(zip(*chosen, strict=True)) if not rule.holds(*one)}
            if bad:
                for id, one in zip(ids, zip(*chosen, strict=True), strict=True):
                    if one in bad:
                        said = ", ".join(f"{name} {value!r}" for name, value in zip(rule.columns, one, strict=True))
                        self._add(rule.name, rule.says, f"{id}: {said}")
        self._across(values, nothing, ids)

    def _across(self, values: Mapping[str, Sequence[Any]], nothing: list[None], ids: Sequence[Any]) -> None:
        for key, dependent, name in rules.ONE_EACH:
            known = self._one_each[name]
            for one, its in set(zip(values.get(key, nothing), values.get(dependent, nothing), strict=True)):
                if one is not None and its is not None and known.setdefault(one, its) != its:
                    self._add(name, f"{key} must have one {dependent}", f"{one!r} has {known[one]!r} and {its!r}")
        for id in ids:
            if id in self._ids:
                self._add("x_ChargeId", "each charge must be there once", repr(id))
            self._ids.add(id)

    def _add(self, rule: str, says: str, example: str) -> None:
        finding = self._found.setdefault(f"{rule} {says}", Finding(rule, says))
        finding.count += 1
        if len(finding.examples) < _EXAMPLES:
            finding.examples.append(example)
