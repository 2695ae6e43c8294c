"""The alert rules and the dashboard: Prometheus reads them, they fire when they should, and they point somewhere."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[3]
MONITORING = ROOT / "knative" / "trainlet_knative" / "manifests" / "monitoring"
PROMTOOL = shutil.which("promtool")
needs_promtool = pytest.mark.skipif(
    PROMTOOL is None, reason="promtool is not here (Debian's package prometheus has it)"
)


def rules() -> dict[str, Any]:
    """Return the rules as Prometheus reads them."""
    found: dict[str, Any] = yaml.safe_load((MONITORING / "alerts.yaml").read_text())["spec"]
    return found


def expressions() -> list[str]:
    """Return every query of the dashboard, with its variables filled in."""
    dashboard = json.loads((MONITORING / "dashboard.json").read_text())
    return [target["expr"].replace("$project", ".*") for panel in dashboard["panels"] for target in panel["targets"]]


def promtool(folder: Path, *arguments: str) -> None:
    """Run promtool in a folder; fails with what it says."""
    assert PROMTOOL is not None
    done = subprocess.run([PROMTOOL, *arguments], cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@needs_promtool
def test_prometheus_accepts_the_rules(tmp_path: Path) -> None:
    (tmp_path / "rules.yaml").write_text(yaml.safe_dump(rules()))
    promtool(tmp_path, "check", "rules", "--lint-fatal", "rules.yaml")


@needs_promtool
def test_each_alert_fires_when_it_should_and_not_before(tmp_path: Path) -> None:
    (tmp_path / "rules.yaml").write_text(yaml.safe_dump(rules()))
    shutil.copy(Path(__file__).parent / "alerts.yaml", tmp_path / "tests.yaml")
    promtool(tmp_path, "test", "rules", "tests.yaml")


@needs_promtool
def test_prometheus_understands_every_query_of_the_dashboard(tmp_path: Path) -> None:
    records = [{"record": f"panel:{index}", "expr": text} for index, text in enumerate(expressions())]
    (tmp_path / "rules.yaml").write_text(yaml.safe_dump({"groups": [{"name": "dashboard", "rules": records}]}))
    promtool(tmp_path, "check", "rules", "rules.yaml")


def test_every_alert_is_tested_and_says_where_to_read_on() -> None:
    tested = {
        case["alertname"]
        for test in yaml.safe_load((Path(__file__).parent / "alerts.yaml").read_text())["tests"]
        for case in test["alert_rule_test"]
    }
    headings = re.findall(r"^#+ (.+)$", (ROOT / "docs" / "operations.md").read_text(), re.MULTILINE)
    anchors = {re.sub(r"[^\w -]", "", heading).lower().replace(" ", "-") for heading in headings}
    alerts = [rule for group in rules()["groups"] for rule in group["rules"]]
    assert {rule["alert"] for rule in alerts} == tested
    for rule in alerts:
        page, _, anchor = rule["annotations"]["runbook_url"].partition("#")
        assert page.endswith("/docs/operations.md")
        assert anchor in anchors, f"{rule['alert']} points to #{anchor}, which docs/operations.md lacks"


def test_the_bundle_names_files_that_exist() -> None:
    kustomization = yaml.safe_load((MONITORING / "kustomization.yaml").read_text())
    named = [
        *kustomization["resources"],
        *(one.split("=")[1] for one in kustomization["configMapGenerator"][0]["files"]),
    ]
    assert sorted(named) == sorted(path.name for path in MONITORING.iterdir() if path.name != "kustomization.yaml")


def test_panels_do_not_overlap() -> None:
    places = [panel["gridPos"] for panel in json.loads((MONITORING / "dashboard.json").read_text())["panels"]]
    cells = [
        (x, y) for at in places for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])
    ]
    assert len(cells) == len(set(cells))
    assert max(x for x, _ in cells) < 24
