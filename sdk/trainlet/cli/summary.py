"""The summary of a run: its tasks with their attempts, and the bill. The demo prints it too."""

from __future__ import annotations

from typing import Any

from trainlet.cli import output
from trainlet.core import wire
from trainlet.core.samples import DeviceUse
from trainlet.runs import Run


def tasks_table(run: Run, *, for_people: bool | None = None) -> None:
    """Print the tasks: states with times, epochs, checkpoints, GPU-seconds and cost."""
    usage = run.usage()
    rows: list[list[Any]] = []
    for task in run.tasks:
        mine = [row for row in usage.rows if row.task == task.key]
        seconds, cost = sum(row.seconds for row in mine), sum(row.cost_nano or 0 for row in mine)
        rows.append(
            [
                task.key.removeprefix(f"{run.id}."),
                task.state,
                _attempts(task),
                output.clock(task.created_at),
                output.seconds_between(task.created_at, task.finished_at),
                _checkpoints(task),
                _devices(mine),
                seconds if mine else "",
                output.money(cost, usage.currency) if mine else "",
            ]
        )
    total = output.money(usage.cost_nano, usage.currency)
    rows.append(["total", "", "", "", "", "", "", usage.gpu_seconds, total])
    columns = ["task", "state", "epochs", "created", "took", "checkpoints", "device", "GPU-seconds", "cost"]
    output.table(f"Run {run.id}", columns, rows, numeric=("took", "GPU-seconds", "cost"), for_people=for_people)


def bill(run: Run) -> None:
    """Print the bill's footnote: the price list, and whether the devices were real."""
    usage = run.usage()
    output.console().print(f"price list {usage.price_version}; whole GPU-seconds, exact to the nano-unit", style="dim")
    _busy(usage.devices)
    if usage.virtual:
        output.console().print(
            "virtual devices: no GPU was used, the cost is what real ones would have cost", style="yellow"
        )


def _busy(devices: list[DeviceUse]) -> None:
    """Say how busy the devices were, where anybody saw it."""
    seen = [one for one in devices if one.used_ms is not None]
    if not seen:
        return
    used, idle = sum(one.used_ms or 0 for one in seen) / 1000, sum(one.idle_ms or 0 for one in seen) / 1000
    allocated = sum(one.allocated_s for one in devices)
    energy = sum(one.energy_mj or 0 for one in seen) / 1000
    output.console().print(
        f"devices: {allocated} s allocated, {used:.1f} s used, {idle:.1f} s idle; {(used + idle) / allocated:.0%} of the time "
        f"was seen; {energy:.0f} J",
        style="dim",
    )


def _attempts(task: wire.TaskView) -> str:
    parts = []
    for attempt in task.attempts:
        resumed = "" if attempt.resumed_from_step is None else f" from step {attempt.resumed_from_step}"
        parts.append(f"{attempt.epoch} {attempt.state}{resumed}")
    return ", ".join(parts)


def _checkpoints(task: wire.TaskView) -> str:
    if not task.checkpoints:
        return ""
    return f"{len(task.checkpoints)} (newest: step {task.checkpoints[-1].step})"


def _devices(rows: list[wire.UsageRow]) -> str:
    names = {f"{row.sku}{' (virtual)' if row.virtual else ''}" for row in rows}
    return ", ".join(sorted(names))
