"""The Markdown that KFP's page shows of a task: what ran, where to look further, what it cost.

Links are in the Markdown, because KFP's page opens links of no other kind of artifact.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

from trainlet.core import wire
from trainlet.core.specs import FunctionSpec


def of_execution(spec: FunctionSpec, metrics: Mapping[str, float], progress: Mapping[str, Any]) -> str:
    """Return the report of a CPU step that ran in its own pod."""
    lines = [f"# {spec.name}", "", f"Code `{spec.bundle[:12]}`, function `{spec.digest()[:12]}`.", ""]
    if metrics:
        lines += table(("metric", "last value"), metrics.items())
    if progress:
        lines += ["", f"Progress: {progress.get('done')} of {progress.get('total')} {progress.get('message', '')}"]
    return "\n".join(lines) + "\n"


def of_task(
    url: str,
    task: wire.TaskView,
    numbers: Mapping[str, Any],
    timeline: Sequence[wire.TimelineEntry],
    history: Mapping[str, Sequence[tuple[float, float]]],
) -> str:
    """Return the report of a task of the training API: links, numbers, how the metrics went, attempts, timeline."""
    links = [f"[dashboard]({url}/runs/{task.run_id})", f"[this task]({url}/v1/tasks/{task.key})"]
    lines = [f"# {task.node}: {task.state}", "", " | ".join(links), ""]
    lines += table(("what", "value"), numbers.items())
    if history:
        lines += ["", "## Metrics", "", *went(history)]
    lines += ["", "## Attempts", ""]
    rows = [
        (one.epoch, one.state, ", ".join(device.sku for device in one.devices), one.resumed_from_step, one.reason)
        for one in task.attempts
    ]
    lines += table(("epoch", "state", "devices", "resumed from step", "reason"), rows)
    lines += ["", "## Timeline", ""]
    lines += table(("at (UTC)", "state", "reason"), [(one.at, one.state, one.reason) for one in timeline])
    return "\n".join(lines) + "\n"


def went(history: Mapping[str, Sequence[tuple[float, float]]]) -> list[str]:
    """Return a table of where each metric began, how far it went, and where it ended; nothing when there is none."""
    rows = []
    for name, points in history.items():
        values = [value for _, value in points]
        rows.append((name, values[0], min(values), max(values), values[-1]))
    return table(("metric", "first", "least", "most", "last"), rows) if rows else []


def summary(
    task: wire.TaskView, usage: wire.UsageReport, timeline: Sequence[wire.TimelineEntry]
) -> dict[str, float | str]:
    """Return the numbers of a task: the user's last metrics, then what it used."""
    found: dict[str, float | str] = dict(task.metrics)
    found["gpu_seconds"] = usage.gpu_seconds
    found["cost"] = round(usage.cost_nano / 1e9, 9)
    found["currency"] = usage.currency
    found["attempts"] = len(task.attempts)
    found["queue_seconds"] = round(queue_seconds(timeline), 3)
    if usage.virtual:
        found["devices"] = "virtual"
    if usage.unpriced_skus:
        found["unpriced"] = ", ".join(usage.unpriced_skus)
    return found


def queue_seconds(timeline: Sequence[wire.TimelineEntry]) -> float:
    """Return how long a task waited for devices and workers, over all of its attempts."""
    total, since = 0.0, None
    for entry in timeline:
        at = datetime.fromisoformat(entry.at)
        if since is not None and entry.state not in ("queued", "dispatched"):
            total += (at - since).total_seconds()
            since = None
        elif since is None and entry.state in ("queued", "dispatched"):
            since = at
    return total


def table(head: Sequence[str], rows: Iterable[Sequence[Any]]) -> list[str]:
    """Return the lines of a Markdown table."""
    lines = [f"| {' | '.join(head)} |", f"|{'---|' * len(head)}"]
    lines += [f"| {' | '.join(_cell(one) for one in row)} |" for row in rows]
    return lines


def _cell(value: Any) -> str:
    text = "" if value is None else f"{value:g}" if isinstance(value, float) else str(value)
    return text.replace("|", "\\|").replace("\n", " ")
