from __future__ import annotations

import os
import subprocess
import uuid

from trainlet_functions import processes

MARK = "TRAINLET_TEST_MARK"


def test_a_process_is_known_by_its_mark_from_the_moment_it_was_started() -> None:
    for _ in range(100):
        value = uuid.uuid4().hex
        process = subprocess.Popen(["/bin/sleep", "60"], env={**os.environ, MARK: value})
        try:
            assert processes.is_marked(process.pid, MARK, value)
            assert processes.marked(MARK, value) == [process.pid]
            assert not processes.is_marked(process.pid, MARK, "another")
        finally:
            process.kill()
            process.wait()


def test_a_process_without_an_environment_or_that_has_ended_has_no_mark() -> None:
    with subprocess.Popen(["/bin/sleep", "60"], env={}) as bare:
        assert not processes.is_marked(bare.pid, MARK, "")
        bare.kill()
        os.waitid(os.P_PID, bare.pid, os.WEXITED | os.WNOWAIT)  # not collected yet
        assert not processes.is_marked(bare.pid, MARK, "")
    assert not processes.is_marked(bare.pid, MARK, "")
