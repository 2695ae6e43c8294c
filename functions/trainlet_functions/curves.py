"""A line chart for each of a task's metrics, for the dashboard and for KFP's page, drawn without any library or network.

KFP puts it into a frame that runs no links, so it holds none.
"""

from __future__ import annotations

import html
from collections.abc import Mapping, Sequence

Line = Sequence[tuple[float, float]]
WIDTH, HEIGHT, LEFT, BOTTOM, TOP = 460, 200, 64, 26, 10
_STYLE = (
    "body{font:13px system-ui,sans-serif;color:#202124;margin:12px}figure{display:inline-block;margin:0 16px 16px 0}"
    "figcaption{margin:0 0 4px}text{font-size:11px;fill:#5f6368}"
)


def page(title: str, points: Mapping[str, Line]) -> str:
    """Return a page with a chart for each metric; `points` are seconds since the task was created, and values."""
    parts = [f"<!doctype html><meta charset=utf-8><title>{html.escape(title)}</title><style>{_STYLE}</style>"]
    parts.append(f"<h3>{html.escape(title)}</h3>")
    parts += charts(points) or ["<p>The step reported no metrics: ctx.metrics(step, loss=...) draws them here.</p>"]
    return "\n".join(parts) + "\n"


def charts(points: Mapping[str, Line]) -> list[str]:
    """Return a figure for each metric."""
    return [_chart(name, line) for name, line in points.items() if line]


def _chart(name: str, line: Line) -> str:
    """Draw one metric: three lines of a grid, the ends of both axes, the line, and a dot at its last value."""
    values = [value for _, value in line]
    first, last = line[0][0], line[-1][0]
    low, high = min(values), max(values)
    wide, tall = (last - first) or 1, (high - low) or 1.0
    right, floor = WIDTH - 12, HEIGHT - BOTTOM

    def x(second: float) -> float:
        return LEFT + (right - LEFT) * (second - first) / wide

    def y(value: float) -> float:
        return floor - (floor - TOP) * (value - low) / tall

    grid = [low] if low == high else [low, low + (high - low) / 2, high]
    shapes = [
        f'<path d="M{LEFT} {y(one):.1f}H{right}" stroke="#e0e0e0"/>'
        f'<text x="{LEFT - 6}" y="{y(one) + 4:.1f}" text-anchor="end">{one:.4g}</text>'
        for one in grid
    ]
    shapes.append(f'<text x="{LEFT}" y="{HEIGHT - 8}">{_time(first)}</text>')
    if last > first:
        shapes.append(f'<text x="{right}" y="{HEIGHT - 8}" text-anchor="end">{_time(last)}</text>')
    places = " ".join(f"{x(second):.1f},{y(value):.1f}" for second, value in line)
    shapes.append(f'<polyline fill="none" stroke="#1a73e8" stroke-width="2" points="{places}"/>')
    shapes.append(f'<circle cx="{x(last):.1f}" cy="{y(values[-1]):.1f}" r="3" fill="#1a73e8"/>')
    told = f"{html.escape(name)}: {values[-1]:.6g} (least {low:.6g}, most {high:.6g})"
    svg = f'<svg width="{WIDTH}" height="{HEIGHT}" role="img" aria-label="{told}">{"".join(shapes)}</svg>'
    return f"<figure><figcaption><b>{html.escape(name)}</b>{told[len(html.escape(name)) :]}</figcaption>{svg}</figure>"


def _time(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:.3g} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"
