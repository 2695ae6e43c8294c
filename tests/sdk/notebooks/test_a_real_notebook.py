from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from jupyter_client.manager import KernelManager

Run = Callable[[str], str]


@pytest.fixture(scope="module")
def cell(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Run]:
    """Run a cell in a real kernel and return all that a person would see below it."""
    folder: Path = tmp_path_factory.mktemp("notebook")
    manager = KernelManager()
    manager.kernel_spec_manager.ensure_native_kernel = True
    environment = {**os.environ, "TRAINLET_HOME": str(folder / "home"), "JUPYTER_PLATFORM_DIRS": "1"}
    manager.start_kernel(cwd=str(folder), env=environment)
    client = manager.blocking_client()
    client.start_channels()
    client.wait_for_ready(timeout=60)

    def run(source: str) -> str:
        seen: list[str] = []

        def look(message: dict[str, Any]) -> None:
            content = message["content"]
            seen.append(content.get("text", ""))
            seen.append(content.get("data", {}).get("text/plain", ""))
            seen.append("\n".join(content.get("traceback", [])))

        client.execute_interactive(source, output_hook=look, timeout=120)
        return re.sub(r"\x1b\[[0-9;]*m", "", "\n".join(seen))

    yield run
    client.stop_channels()
    manager.shutdown_kernel(now=True)
    found = folder / "home" / "platform.json"
    if found.exists():
        psutil.Process(json.loads(found.read_text())["pid"]).terminate()


def test_a_step_of_a_cell_runs_and_its_errors_name_the_cell(cell: Run) -> None:
    cell("import trainlet as tl")
    cell("FACTOR = 2\n\ndef double(x):\n    return FACTOR * x\n")
    defined = cell("@tl.step\ndef twice(x: int) -> int:\n    return double(x)\n\ntwice.bundle()")
    assert "step_notebook:twice" in defined
    told = cell("twice.remote(1, 2)")
    assert (
        "cell In[4], line 1: twice() takes 1 positional argument and got 2. It is twice(x) at cell In[3], line 1."
        in told
    )
    assert "trainlet/" not in told
    cell("handle = open('/dev/null')")
    told = cell("@tl.step\ndef read() -> str:\n    text = ''\n    return handle.read()\n\nread.remote()")
    assert "cell In[6], line 4: read() uses 'handle', which is an open file" in told


def test_T8_an_error_on_a_worker_names_the_lines_of_the_cells(cell: Run) -> None:
    cell("import trainlet as tl\n\ndef helper(x):\n    return 1 / x\n")
    told = cell("@tl.step\ndef divide(x: int) -> float:\n    return helper(x)\n\ndivide.remote(0)")
    at = re.search(r"divide failed at cell (In\[\d+\]), line 4: ZeroDivisionError", told)
    assert at is not None, told
    assert f"Cell {at[1]}, line 4, in helper" in told
    assert "step_notebook.py" not in told and "trainlet/" not in told
