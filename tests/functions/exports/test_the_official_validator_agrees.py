"""FOCUS's own validator as a second opinion: `make test-focus` makes its environment and runs this.

Its exit code is 0 whatever it finds, so its totals are read. It opens a file beside its package by a path that is relative
to the current folder, and writes its log there.
"""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

from trainlet.client.stores import DirectoryStore

VALIDATOR = os.environ.get("TRAINLET_TEST_FOCUS_VALIDATOR")
pytestmark = pytest.mark.skipif(not VALIDATOR, reason="TRAINLET_TEST_FOCUS_VALIDATOR names no focus-validator")

KNOWN = {
    # Its model holds two rules that exclude each other: InvoiceId must be null "when the charge is not associated with an
    # invoice", and not null when it is. Neither has a condition that a program can evaluate, so the first is applied always.
    "InvoiceId-C-004-C",
}
# What a provider such as trainlet does; it sells no commitments, reserves no capacity, and has no virtual currency.
CRITERIA = (
    "ACCOUNT_NAMING_SUPPORTED",
    "AVAILABILITY_ZONE_SUPPORTED",
    "BILLING_BASED_ON_PROVISIONED_RESOURCES_SUPPORTED",
    "MULTIPLE_BILLING_ACCOUNT_TYPES_SUPPORTED",
    "MULTIPLE_PRICING_CATEGORIES_SUPPORTED",
    "MULTIPLE_SUB_ACCOUNT_TYPES_SUPPORTED",
    "NEGOTIATED_PRICING_SUPPORTED",
    "PRICING_BILLING_CURRENCY_DIFFERENCES_SUPPORTED",
    "PUBLIC_PRICE_LIST_SUPPORTED",
    "REGION_SUPPORTED",
    "RESOURCE_TYPE_ASSIGNMENT_SUPPORTED",
    "SUB_ACCOUNT_SUPPORTED",
    "TAGGING_SUPPORTED",
    "UNIT_PRICING_SUPPORTED",
    "USAGE_MEASUREMENT_SUPPORTED",
)


def validate(data: Path, place: Path) -> tuple[int, set[str]]:
    """Return how many rules passed, and which failed."""
    assert VALIDATOR is not None
    (package,) = Path(VALIDATOR).parents[1].glob("lib/python3.*/site-packages/focus_validator")
    place.mkdir()
    (place / "focus_validator").symlink_to(package)
    command = [VALIDATOR, "--data-file", str(data), "--validate-version", "1.2", "--block-download"]
    command += ["--focus-dataset", "CostAndUsage", "--applicability-criteria", ",".join(CRITERIA)]
    done = subprocess.run(command, cwd=place, capture_output=True, text=True, timeout=280, check=False)
    totals = re.search(r"Total: (\d+) \| Pass: (\d+) \| Fail: (\d+)", done.stdout)
    assert totals is not None, done.stdout[-2000:] + done.stderr[-2000:]
    failed = set(re.findall(r"^\S+ (\S+): FAIL", done.stdout, re.MULTILINE))
    assert len(failed) == int(totals[3])
    return int(totals[2]), failed


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_I16_it_finds_only_what_it_always_finds(tmp_path: Path, export: Any, rows: Any, kind: str) -> None:
    store = DirectoryStore(tmp_path / "exports")
    written = export(store, rows)
    (name,) = [part.name for part in written.manifest.parts if part.format == kind]
    path = store.local_path(f"{written.folder}/{name}")
    assert path is not None
    passed, failed = validate(path, tmp_path / "validator")
    assert failed == KNOWN
    assert passed == 302
