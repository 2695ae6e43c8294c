"""How a graph's end becomes the end of its run at the API, whoever drives it."""

from __future__ import annotations

from collections.abc import Sequence

from trainlet.core import wire
from trainlet.core.errors import PlatformError
from trainlet_pipelines.failures import error_info
from trainlet_pipelines.runner import Result, Runner


def run(walker: Runner, run_id: str) -> Result:
    """Run the graph; a fault of the runner itself is the end of the run, too, so that it does not stay open."""
    try:
        return walker.run()
    except Exception as error:  # noqa: BLE001 - the run must not stay open
        return Result("failed", {}, PlatformError(f"The runner of {run_id} broke: {error!r}"))


def describe(result: Result, reused: Sequence[str] = ()) -> wire.RunFinish:
    """Return what is recorded at the API; `reused` are the tasks whose results came from earlier runs."""
    error = result.error if result.state == "failed" else None
    reason = f"failed at {', '.join(result.failed)}"[:1000] if result.failed else "all tasks succeeded"
    if reused:
        reason = f"{reason}; reused from earlier runs: {', '.join(reused)}"[:1000]
    if result.state == "canceled":
        reason = str(result.error or "cancelled").rstrip(".")
    return wire.RunFinish(
        state=result.state,
        outputs=result.outputs,
        error=None if error is None else error_info(error),
        reason=reason,
    )
