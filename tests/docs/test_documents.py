"""What the documents say works, and what they point to exists."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from trainlet_functions import processes

ROOT = Path(__file__).parents[2]
DOCUMENTS = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/*.md")])


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_every_link_leads_somewhere(document: Path) -> None:
    links = re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", document.read_text())
    missing = [link for link in links if "://" not in link and not (document.parent / link).exists()]
    assert missing == []


def test_the_quickstart_of_the_readme_runs_as_it_stands(tmp_path: Path) -> None:
    (code,) = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    script = tmp_path / "quickstart.py"
    script.write_text(code)
    home = tmp_path / "home"
    try:
        done = subprocess.run(
            [sys.executable, str(script)],
            env={**os.environ, "TRAINLET_HOME": str(home)},
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        assert 0 < float(done.stdout) < 0.01
    finally:
        processes.kill_marked("TRAINLET_HOME", str(home))


def test_the_example_is_at_most_60_lines() -> None:
    assert len((ROOT / "examples" / "digits.py").read_text().splitlines()) <= 60
