"""Steps that behave badly, and some that behave well, as a user would write them."""

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import trainlet as tl


@tl.step
def add(left: int, right: int = 1) -> int:
    return left + right


@tl.step(gpu="A100")
def where() -> list[str]:
    return [gpu.uuid for gpu in tl.context().gpus] + [os.environ["CUDA_VISIBLE_DEVICES"]]


@tl.step
def loud(texts: Path, *, ctx: tl.Context = tl.INJECTED) -> Path:
    """Return a folder with a copy in capitals of a file, or of each file of a folder."""
    written = ctx.artifacts_dir / "loud"
    written.mkdir()
    for text in sorted(texts.iterdir()) if texts.is_dir() else [texts]:
        (written / text.name).write_text(text.read_text().upper())
    return written


@tl.step(gpu="A100", checkpoint=tl.Checkpoint(every=0.05), grace=5)
def count(steps: int, pace: float, path: str = "", *, ctx: tl.Context = tl.INJECTED) -> dict:
    """Count to `steps`; writes each attempt's first step to a file, so that tests see where it began."""
    state = {"sum": 0}
    ctx.checkpoint.register(state=state)
    start = ctx.checkpoint.restore()
    first = start.step if start else 0
    for step in range(first, steps):
        state["sum"] += step
        print(f"step {step}")
        if path:
            with open(path, "a") as file:
                file.write(f"{ctx.attempt} {step} {os.getpid()}\n")
        time.sleep(pace)
        ctx.checkpoint.step(step + 1)
    return {"sum": state["sum"], "began": first, "attempt": ctx.attempt}


@tl.step(gpu="A100", checkpoint=tl.Checkpoint(every="1h"), grace=30)
def patient(steps: int, path: str, *, ctx: tl.Context = tl.INJECTED) -> int:
    """Train and save only when told to stop; the second attempt says where it began."""
    ctx.checkpoint.register(state={"sum": 0})
    start = ctx.checkpoint.restore()
    if start is not None:
        return start.step
    for step in range(steps):
        with open(path, "w") as file:
            file.write(str(step))
        time.sleep(0.05)
        ctx.checkpoint.step(step + 1)
    return -1


@tl.step(gpu="A100", checkpoint=tl.Checkpoint(every="1h"), grace=8)
def stuck(how: str, path: str, *, ctx: tl.Context = tl.INJECTED) -> dict:
    """Train five steps, then never return from the sixth in the first attempt."""
    state = {"sum": 0}
    ctx.checkpoint.register(state=state)
    start = ctx.checkpoint.restore()
    for step in range(start.step if start else 0, 10):
        if step == 5 and ctx.attempt == 1:
            with open(path, "w") as file:
                file.write("stuck")
            if how == "stopped":
                os.kill(os.getpid(), signal.SIGSTOP)
            elif how == "killed":
                os.kill(os.getpid(), signal.SIGKILL)
            else:  # a call that holds the interpreter's lock
                re.match(r"(a+)+$", "a" * 40 + "b")
        state["sum"] += step
        ctx.checkpoint.step(step + 1)
        time.sleep(0.5)
    return {"sum": state["sum"], "began": start.step if start else 0, "attempt": ctx.attempt}


class Total:
    """A sum that can take for ever to say what it is, or to become what it was."""

    def __init__(self) -> None:
        self.value = 0
        self.hangs_in = ""

    def hang(self, path: str) -> None:
        with open(path, "w") as file:
            file.write("hangs")
        time.sleep(300)

    def state_dict(self) -> dict:
        if self.hangs_in.startswith("save "):
            self.hang(self.hangs_in.removeprefix("save "))
        return {"value": self.value}

    def load_state_dict(self, state: dict) -> None:
        if self.hangs_in.startswith("restore "):
            self.hang(self.hangs_in.removeprefix("restore "))
        self.value = state["value"]


@tl.step(gpu="A100", checkpoint=tl.Checkpoint(every="1h"), grace=8, retries=1)
def interrupted(how: str, path: str, *, ctx: tl.Context = tl.INJECTED) -> dict:
    """Train ten steps; hang in the middle of an evaluation, a save, or the second attempt's restore."""
    total = Total()
    if how == "restoring" and ctx.attempt == 2:
        total.hangs_in = f"restore {path}"
    ctx.checkpoint.register(total=total)
    start = ctx.checkpoint.restore()
    for step in range(start.step if start else 0, 10):
        if step == 5 and ctx.attempt == 1:
            if how == "evaluating":
                total.hang(path)
            elif how == "restoring":
                ctx.checkpoint.save(5)
                raise RuntimeError("the first attempt fails")
            total.hangs_in = f"save {path}"
            ctx.checkpoint.save(5)
        total.value += step
        ctx.checkpoint.step(step + 1)
        time.sleep(0.5)
    return {"sum": total.value, "began": start.step if start else 0, "attempt": ctx.attempt}


@tl.step(ranks=2, checkpoint=tl.Checkpoint(every="1h"), grace=8)
def stuck_rank(how: str, path: str, *, ctx: tl.Context = tl.INJECTED) -> dict:
    """Train five steps together, then let rank 1 of the first attempt not return from the sixth."""
    import numpy as np

    mine = np.zeros(3)
    ctx.checkpoint.register(rows=tl.checkpoints.Shard(mine, (3 * ctx.rank,), (6,)), own={"rank": ctx.rank, "sum": 0})
    start = ctx.checkpoint.restore()
    first = start.step if start else 0
    assert set(mine) == {float(first)}, f"rank {ctx.rank} has {mine} at {first}"
    for step in range(first + 1, 11):
        if step == 6 and ctx.attempt == 1 and ctx.rank == 1:
            with open(path, "w") as file:
                file.write("stuck")
            os.kill(os.getpid(), signal.SIGSTOP if how == "stopped" else signal.SIGKILL)
        if step == 7 and ctx.attempt == 1:
            time.sleep(300)  # as in a collective with the other rank
        mine[:] = step
        time.sleep(0.3)
        ctx.checkpoint.step(step)
    return {"began": first, "attempt": ctx.attempt}


@tl.step(grace=1)
def deaf(seconds: float) -> str:
    """Ignore every wish to stop."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    print("deaf", flush=True)
    time.sleep(seconds)
    return "never asked"


@tl.step
def exits(code: int) -> None:
    print("about to exit", flush=True)
    os._exit(code)


@tl.step
def killed() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


class Unpicklable(Exception):
    def __init__(self) -> None:
        super().__init__("cannot be pickled")
        self.lock = open(os.devnull)

    def __reduce__(self):
        raise TypeError("no")


@tl.step
def raises() -> None:
    raise Unpicklable


@tl.step
def closes_stdout() -> str:
    print("before", flush=True)
    os.close(1)
    sys.stdout = None
    return "fine"


@tl.step
def binary() -> str:
    os.write(1, b"\xff\xfe\x00binary\n" + "grüße\n".encode())
    return "fine"


@tl.step
def floods(lines: int, width: int) -> int:
    for number in range(lines):
        sys.stdout.write(f"{number} ".ljust(width - 1, "x") + "\n")
    return lines


@tl.step
def leaves_grandchildren(marker: str) -> str:
    """Leave processes behind in three ways: plain, in a session of their own, and orphaned with a clean environment."""
    code = "import time; time.sleep(300)"
    subprocess.Popen([sys.executable, "-c", code, marker])
    subprocess.Popen([sys.executable, "-c", code, marker], start_new_session=True)
    if os.fork() == 0:
        os.setsid()
        subprocess.Popen(["env", "-i", sys.executable, "-c", code, marker])
        os._exit(0)
    time.sleep(0.3)
    return "left"


@tl.step(memory="200Mi")
def hogs() -> int:
    kept = []
    for _ in range(100):
        kept.append(bytearray(b"x" * (20 * 1024 * 1024)))
        time.sleep(0.05)
    return len(kept)


@tl.step(retries=2)
def fails_twice(*, ctx: tl.Context = tl.INJECTED) -> int:
    if ctx.attempt < 3:
        raise ValueError(f"attempt {ctx.attempt} fails")
    return ctx.attempt


@tl.step(ranks=2)
def ranked() -> list[str]:
    print(f"rank {os.environ['RANK']} of {os.environ['WORLD_SIZE']}")
    return [os.environ["RANK"], os.environ["MASTER_ADDR"], str(int(os.environ["MASTER_PORT"]) > 0)]


@tl.step(ranks=2, grace=2)
def one_rank_fails() -> None:
    if os.environ["RANK"] == "1":
        raise RuntimeError("rank one is broken")
    time.sleep(60)


@tl.step(timeout=0.5, grace=2)
def too_slow() -> None:
    time.sleep(60)


@tl.step(secrets=["api-key"])
def tells_secret() -> str:
    print("the key is", os.environ["API_KEY"])
    return str(len(os.environ["API_KEY"]))


@tl.step(gpu="A100", max_workers=4)
def tiny(value: int) -> int:
    return value * 2


@tl.step(gpu="A100", max_workers=4)
def holds(value: int) -> dict:
    """Say which device it had, and from when to when by a clock that all processes of a machine share."""
    began = time.monotonic_ns()
    time.sleep(1.05 if value % 25 == 0 else 0.02)  # some are long enough for a whole second on the bill
    device = tl.context().gpus[0].uuid
    return {"value": value, "device": device, "began": began, "ended": time.monotonic_ns()}


@tl.pipeline
def sums(left: int = 1) -> int:
    return add(add(left), add(10))


@tl.pipeline
def long(steps: int = 60, pace: float = 0.05, path: str = "") -> dict:
    return count(add(steps, 0), pace, path)


@tl.step(gpu="A100")
def gpu_fails() -> None:
    raise ValueError("no luck")


@tl.pipeline
def breaks() -> None:
    gpu_fails()
