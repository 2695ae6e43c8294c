from __future__ import annotations

import subprocess
import sys

import pytest

HEAVY = ("httpx", "numpy", "flask", "sqlalchemy", "kfp", "kubernetes", "obstore", "torch", "rich", "click", "pandas")


def run(code: str) -> str:
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout


@pytest.mark.parametrize(
    "use",
    [
        "pass",
        "tl.step(lambda_function)",
        "tl.pipeline(lambda_function).graph()",
        "tl.Dataset; tl.Context; tl.Checkpoint(); tl.Retries(2); tl.UserError",
    ],
)
def test_decorating_and_tracing_load_no_heavy_library(use: str) -> None:
    code = f"import sys, trainlet as tl\ndef lambda_function(): return 1\n{use}\nprint(*sorted(sys.modules))"
    loaded = {name.partition(".")[0] for name in run(code).split()}
    assert loaded & set(HEAVY) == set()


def test_importing_trainlet_loads_nothing_but_the_standard_library() -> None:
    loaded = run("import sys, trainlet\nprint(*sorted(sys.modules))").split()
    assert "pydantic" not in loaded
    assert [name for name in loaded if name.startswith("trainlet")] == ["trainlet"]


def test_every_public_name_is_listed_and_a_misspelt_one_names_the_nearest() -> None:
    code = """
import trainlet as tl
for name in ("step", "pipeline", "when", "each", "on_exit", "run_status", "Retries", "Checkpoint", "Context", "context",
             "Dataset", "Model", "Artifact", "UserError", "TrainletError", "Future", "Step", "Pipeline", "INJECTED"):
    assert name in tl.__all__ and name in dir(tl), name
    getattr(tl, name)
assert tl.__version__
try:
    tl.pipline
except AttributeError as error:
    print(error)
"""
    assert "Did you mean pipeline" in run(code)
