"""A child comes from a warm process and from a worker, and takes over nothing that belongs to them."""

from __future__ import annotations

from typing import Any

import psutil
import pytest

from trainlet.core import traces, wire

pytestmark = pytest.mark.timeout(60)


def output_of(bench: Any, source: str, **changes: Any) -> Any:
    bench.offer(source, **changes)
    if not bench.started:
        bench.start(preload="numpy")
    finish = bench.finish()
    assert finish.error is None, finish.error
    return finish.output


def test_S2_a_child_has_neither_the_workers_token_nor_its_settings(bench: Any) -> None:
    names = output_of(bench, "import os\ndef f(): return [n for n in os.environ if n.startswith('TRAINLET_')]")
    assert sorted(names) == [
        "TRAINLET_EPOCH",
        "TRAINLET_HOME",
        "TRAINLET_RUN",
        "TRAINLET_TASK",
        "TRAINLET_WORKER_ID",
    ]


def test_S2_a_secret_is_masked_in_what_is_told_of_an_error(bench: Any) -> None:
    folder = bench.root / "home" / "secrets"
    folder.mkdir(parents=True)
    (folder / "api-key").write_text("s3cr3t-value")
    (folder / "api-key").chmod(0o600)
    bench.offer("import os\ndef f(): raise ValueError('bad key ' + os.environ['API_KEY'])", secrets=("api-key",))
    bench.start()
    finish = bench.finish()
    assert finish.error.message == "bad key ***"
    assert "s3cr3t" not in finish.model_dump_json()
    assert not [line for line in bench.api.lines[0] if "s3cr3t" in line]


def test_attempts_of_one_worker_draw_different_random_numbers(bench: Any) -> None:
    draw = "import random\nimport numpy\ndef f(): return [random.random(), float(numpy.random.random())]"
    one, two = (output_of(bench, draw, imports=("numpy",)) for _ in range(2))
    assert one[0] != two[0]
    assert one[1] != two[1]


def test_a_step_can_end_the_programs_that_it_starts(bench: Any) -> None:
    source = """
        import multiprocessing, subprocess, sys, time
        def f():
            program = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
            process = multiprocessing.get_context("fork").Process(target=time.sleep, args=(60,))
            process.start()
            program.terminate()
            process.terminate()
            return [program.wait(10), process.join(10) or process.exitcode]
    """
    assert output_of(bench, source) == [-15, -15]


def test_files_with_relative_names_end_with_the_attempt(bench: Any) -> None:
    source = """
        import os
        def f():
            open("mine.txt", "w").close()
            return [os.getcwd(), os.listdir(".")]
    """
    one, two = (output_of(bench, source) for _ in range(2))
    assert "mine.txt" in one[1] and one[0] != two[0]
    bench.eventually(lambda: not list(bench.root.rglob("mine.txt")))


def test_S1_code_that_a_step_left_in_the_shared_folder_is_not_run(bench: Any) -> None:
    source = """
        import sys
        def f():
            with open(__file__, "a") as file:
                file.write("\\ndef f(): return 'changed'\\n")
            return "as submitted"
    """
    assert [output_of(bench, source) for _ in range(2)] == ["as submitted", "as submitted"]


def test_what_libraries_do_at_the_end_of_a_process_is_done(bench: Any) -> None:
    assert output_of(bench, "import atexit\ndef f(): atexit.register(print, 'flushed')") is None
    assert bench.api.lines[0] == ["flushed"]


def test_T8_an_error_tells_what_came_before_it(bench: Any) -> None:
    bench.offer(
        """
        def f():
            try:
                {}["learning_rate"]
            except KeyError:
                raise ValueError("no such setting")
        """
    )
    bench.start()
    text = bench.finish().error.traceback
    assert text.index("KeyError: 'learning_rate'") < text.index("ValueError: no such setting")


def test_an_import_that_ends_its_process_is_the_steps_failure(bench: Any) -> None:
    package = bench.root / "packages"
    package.mkdir()
    (package / "brittle.py").write_text("import os\nos._exit(5)\n")
    bench.offer("import brittle\ndef f(): pass", imports=("brittle",))
    bench.start(PYTHONPATH=f"{package}:{__import__('os').environ.get('PYTHONPATH', '')}")
    assert "exited with code 5" in bench.finish().error.message


def test_a_rank_that_leaves_without_a_word_stops_the_others(bench: Any) -> None:
    bench.offer(
        """
        import os, time
        def f():
            if os.environ["RANK"] == "1":
                os._exit(0)
            time.sleep(60)
        """,
        ranks=2,
    )
    bench.start()
    assert bench.finish().error.message == "The step's process exited with code 0 without a result (rank 1)."


@pytest.mark.parametrize("ranks", [2, 4])
def test_every_rank_sees_all_devices_as_with_torchrun_and_has_its_own_share(bench: Any, ranks: int) -> None:
    key = bench.offer(
        """
        import os, trainlet as tl
        def f():
            seen = os.environ["CUDA_VISIBLE_DEVICES"].split(",")
            print(*[os.environ[name] for name in ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE")])
            print(len(seen), *[gpu.uuid for gpu in tl.context().gpus])
        """,
        ranks=ranks,
    )
    devices = [wire.Device(uuid=f"GPU-{index}", sku="A100-80GB") for index in range(4)]
    bench.api.offered[key] = bench.api.offered[key].model_copy(update={"devices": devices})
    bench.start()
    assert bench.finish().outcome == "succeeded"
    share = 4 // ranks
    for rank in range(ranks):
        own = " ".join(f"GPU-{index}" for index in range(rank * share, (rank + 1) * share))
        assert bench.api.lines[rank] == [f"{rank} {rank} {ranks} {ranks}", f"4 {own}"]


def test_a_rank_that_stops_by_itself_stops_the_others(bench: Any) -> None:
    bench.offer(
        """
        import os, time
        import trainlet as tl
        from trainlet.core import errors
        def f():
            if os.environ["RANK"] == "0":
                raise errors.Preempted("a newer attempt")
            while not tl.context().should_stop:
                time.sleep(0.02)
            raise errors.Preempted("")
        """,
        ranks=2,
    )
    bench.start()
    assert bench.finish().outcome == "preempted"


def test_orphans_that_end_are_collected(bench: Any) -> None:
    source = """
        import os, time
        def f():
            for _ in range(5):
                if os.fork() == 0:
                    if os.fork() == 0:
                        time.sleep(0.05)
                    os._exit(0)
                os.wait()
            time.sleep(0.3)
    """
    output_of(bench, source)
    worker = psutil.Process(bench.started[0].pid)
    left = [one for one in worker.children(recursive=True) if one.status() == psutil.STATUS_ZOMBIE]
    assert left == []


def test_a_child_is_told_its_span_in_the_trace_of_its_run(bench: Any) -> None:
    key = bench.offer("import os\ndef f(): return os.environ['TRACEPARENT']")
    task = bench.api.offered[key].task
    bench.start()
    told = traces.parse(bench.finish().output)
    assert told == traces.of_attempt(task.run_id, key, {}, 1)
