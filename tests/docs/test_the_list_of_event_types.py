"""docs/events.md and docs/events.schema.json say what the platform really sends. TRAINLET_RENEW_GOLDEN=1 writes both anew."""

from __future__ import annotations

import json
import os
from pathlib import Path

from trainlet.core import lifecycle

DOCS = Path(__file__).parents[2] / "docs"
BEGIN, END = "| type | subject | in `data` |\n|---|---|---|\n", "\n\n"


def table() -> str:
    rows = []
    for kind, (subject, model) in lifecycle.MODELS.items():
        rows.append(f"| `{kind}` | {subject} | {', '.join(f'`{name}`' for name in model.model_fields)} |")
    return "\n".join(rows)


def test_the_schemas_are_those_of_the_models() -> None:
    path = DOCS / "events.schema.json"
    if os.environ.get("TRAINLET_RENEW_GOLDEN"):
        path.write_text(json.dumps(lifecycle.schemas(), indent=1, sort_keys=True) + "\n")
    assert json.loads(path.read_text()) == lifecycle.schemas()


def test_every_type_is_listed_with_what_is_in_it() -> None:
    path = DOCS / "events.md"
    text = path.read_text()
    before, _, rest = text.partition(BEGIN)
    listed, _, after = rest.partition(END)
    if os.environ.get("TRAINLET_RENEW_GOLDEN"):
        path.write_text(before + BEGIN + table() + END + after)
        listed = table()
    assert listed == table()
