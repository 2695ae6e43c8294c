"""The figures and the manifest of docs/billing.md are what the code does."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import yaml

PAGE = (Path(__file__).parents[2] / "docs/billing.md").read_text()


def test_the_figures_of_the_page_are_those_of_the_code() -> None:
    (code,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    exec(compile(code, "docs/billing.md", "exec"), {})
    assert "1,097,222 nano-USD" in PAGE and "1.23 USD are payable" in PAGE


def test_the_commands_of_the_page_and_its_cron_job_exist() -> None:
    (text,) = re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)
    job = yaml.safe_load(text)["spec"]["jobTemplate"]["spec"]["template"]["spec"]["containers"][0]
    script = job["args"][0]
    subprocess.run(["sh", "-n", "-c", script], check=True)
    said = set(re.findall(r"(?:trainlet|trainlet\.cli) billing (\w+)", PAGE))
    assert said >= {"export", "verify", "close", "report", "summary", "periods", "rates", "events", "allocations"}
    done = subprocess.run(
        [sys.executable, "-m", "trainlet.cli", "billing", "--help"], capture_output=True, text=True, check=True
    )
    known = re.findall(r"^  (\w+)", done.stdout, re.MULTILINE)
    assert said <= set(known)
