from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

SCRIPT = """
import trainlet as tl

@tl.step(gpu="A100", secrets=["hf-token"])
def show() -> str:
    import os
    print("the token is", os.environ["HF_TOKEN"])
    return str(len(os.environ["HF_TOKEN"]))
"""


def test_a_value_from_a_pipe_reaches_the_step_and_no_screen(home: Path, tmp_path: Path) -> None:
    def trainlet(*arguments: str, given: str = "") -> str:
        command = [str(Path(sys.executable).with_name("trainlet")), *arguments]
        done = subprocess.run(
            command, input=given, capture_output=True, text=True, cwd=tmp_path, timeout=120, env=os.environ, check=False
        )
        assert "hf_1234567" not in done.stdout + done.stderr
        return f"{done.returncode}\n{done.stdout}{done.stderr}"

    (tmp_path / "script.py").write_text(SCRIPT)
    assert trainlet("secrets", "set", "hf-token", given="hf_1234567\n").startswith("0\nhf-token is kept")
    assert "hf-token\tfile\tHF_TOKEN" in trainlet("secrets", "ls")
    ran = trainlet("run", "script.py:show")
    assert ran.startswith("0\n") and "the token is ***" in ran
    assert trainlet("secrets", "rm", "hf-token").startswith("0\n")
    assert trainlet("secrets", "rm", "hf-token").startswith("2\ntrainlet: There is no secret 'hf-token'")
    refused = trainlet("secrets", "set", "hf-token", given="\n")
    assert refused.startswith("2\n") and "is empty" in refused
