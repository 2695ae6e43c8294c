"""What the documents say works, and what they point to exists."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
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


def blocks(document: str) -> list[str]:
    """Return the Python of a document, block by block."""
    return re.findall(r"```python\n(.*?)```", (ROOT / document).read_text(), re.DOTALL)


@pytest.fixture
def runs(tmp_path: Path) -> Iterator[Callable[[str], str]]:
    """Run a script as a reader of the documents would, on a home of its own; returns what it prints."""
    home = tmp_path / "home"

    def run(code: str) -> str:
        script = tmp_path / "script.py"
        script.write_text(code)
        env = {**os.environ, "TRAINLET_HOME": str(home)}
        command = [sys.executable, str(script)]
        done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=250, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout

    yield run
    processes.kill_marked("TRAINLET_HOME", str(home))


def test_the_quickstart_of_the_readme_runs_as_it_stands(runs: Callable[[str], str]) -> None:
    (code,) = blocks("README.md")
    assert 0 < float(runs(code)) < 0.01


def test_the_code_of_the_guide_runs_as_it_stands(runs: Callable[[str], str]) -> None:
    """What a block leaves out (`prepare`, the body of `train`, the weights) is put around it here."""
    step, pipeline, looking, saving = blocks("docs/guide.md")
    around = """
@tl.step
def prepare() -> str:
    return "data"

@tl.step
def evaluate(data: str, model: float) -> float:
    return model

@tl.step(gpu="A100")
def train(data: str, lr: float, *, ctx: tl.Context) -> float:
    import numpy as np
    weights, optimizer, rng, steps, loss = np.zeros(3), np.zeros(3), np.zeros(1), 3, 0.5
"""
    code = step + around + textwrap.indent(saving, "    ") + "    return lr\n" + pipeline + looking
    said = runs(code + "print(run.result())\n")
    assert said.splitlines()[-1] == "0.2"


def test_the_pipeline_of_the_page_about_kubeflow_compiles_as_it_stands(
    runs: Callable[[str], str], tmp_path: Path
) -> None:
    (code,) = blocks("docs/kfp.md")
    runs(code.replace('"nightly.yaml"', repr(str(tmp_path / "nightly.yaml"))))
    assert "exec-train" in (tmp_path / "nightly.yaml").read_text()


def test_the_example_is_at_most_60_lines() -> None:
    assert len((ROOT / "examples" / "digits.py").read_text().splitlines()) <= 60
