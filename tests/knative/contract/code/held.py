"""Steps that hold a pod for a while, as a user would write them."""

import os
import time

import trainlet as tl


@tl.step(gpu="A100", name="held", max_workers=8, grace=20, checkpoint=tl.Checkpoint(every=0.2))
def held(seconds: float, pace: float = 0.1, *, ctx: tl.Context = tl.INJECTED) -> dict:
    """Count for so many seconds of work; says where and from which step on it ran."""
    state = {"pods": []}
    ctx.checkpoint.register(state=state)
    start = ctx.checkpoint.restore()
    first = start.step if start else 0
    state["pods"].append(os.environ["HOSTNAME"])
    began = time.time()
    for step in range(first, round(seconds / pace)):
        print(f"step {step}", flush=True)
        time.sleep(pace)
        ctx.checkpoint.step(step + 1)
    return {"pods": state["pods"], "began": began, "first": first, "attempt": ctx.attempt}


held_as_job = held.with_options(name="held-as-job", backend="job")


@tl.on_event(
    "com.example.created",
    where="subject LIKE 'images/%'",
    filters=[{"data": {"$.rows": {"gt": 0}}}],
    params={"seconds": "$.data.seconds"},
    name="on-created",
)
@tl.on_schedule("0 3 1 1 *", tz="Europe/Berlin", params={"seconds": 0.1}, name="yearly")
@tl.pipeline
def retraining(seconds: float) -> dict:
    """Start by itself."""
    return held(seconds)
