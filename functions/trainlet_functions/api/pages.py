"""The dashboard's templates and how they write money and time. All values are escaped by Jinja."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from trainlet.core import wire


@dataclass(frozen=True, slots=True)
class Spent:
    """What one task used."""

    seconds: int
    cost_nano: int
    virtual: bool

    @classmethod
    def of(cls, usage: wire.UsageReport, task: str) -> Spent:
        """Sum a report's rows of one task."""
        rows = [row for row in usage.rows if row.task == task]
        return cls(sum(r.seconds for r in rows), sum(r.cost_nano or 0 for r in rows), any(r.virtual for r in rows))


def money(nano: int) -> str:
    """Write nano-units as money with four decimals."""
    return f"{nano / 1e9:,.4f}"


def clock(stamp: str | None) -> str:
    """Write the time of day of an RFC 3339 stamp (UTC)."""
    return "" if stamp is None else stamp[11:19]


def span(start: str | None, end: str | None) -> str:
    """Write how long something took."""
    if start is None or end is None:
        return ""
    seconds = (datetime.fromisoformat(end) - datetime.fromisoformat(start)).total_seconds()
    return f"{seconds:.1f} s" if seconds < 120 else f"{seconds / 60:.1f} min"


PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>{{ title }} - trainlet</title>
<meta name="viewport" content="width=device-width, initial-scale=1">
{% if refresh %}<meta http-equiv="refresh" content="{{ refresh }}">{% endif %}
<style>
:root { color-scheme: light dark; --line: #d7dbe0; --soft: #667085; --back: #fff; --card: #f7f8fa; --text: #101828;
  --good: #067647; --bad: #b42318; --busy: #175cd3; --wait: #93370d; }
@media (prefers-color-scheme: dark) { :root { --line: #30363d; --soft: #98a2b3; --back: #0d1117; --card: #161b22;
  --text: #e6edf3; --good: #47cd89; --bad: #f97066; --busy: #84adff; --wait: #fdb022; } }
body { font: 15px/1.5 system-ui, sans-serif; background: var(--back); color: var(--text); margin: 0 auto; max-width: 72rem;
  padding: 1.5rem; }
header { display: flex; gap: 1rem; align-items: baseline; margin-bottom: 1rem; }
header a { color: inherit; text-decoration: none; } header a:first-child { font-weight: 700; font-size: 1.2rem; }
button, .button { font: inherit; padding: .3rem .8rem; border-radius: 6px; border: 1px solid var(--line); cursor: pointer;
  background: var(--card); color: var(--text); text-decoration: none; display: inline-block; }
button.stop { border-color: var(--bad); color: var(--bad); } h1 .button { float: right; font-size: .9rem; font-weight: 400; }
progress { width: 8rem; }
h1 { font-size: 1.3rem; margin: 0 0 .25rem; } h2 { font-size: 1rem; margin: 2rem 0 .5rem; }
table { border-collapse: collapse; width: 100%; } th { text-align: left; color: var(--soft); font-weight: 500; }
th, td { padding: .4rem .75rem .4rem 0; border-bottom: 1px solid var(--line); vertical-align: top; }
td.num, th.num { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }
.soft { color: var(--soft); } .state { font-weight: 600; white-space: nowrap; }
.succeeded { color: var(--good); } .failed { color: var(--bad); } .running { color: var(--busy); }
.queued, .dispatched, .canceled, .preempted, .lost { color: var(--wait); }
pre { background: var(--card); border: 1px solid var(--line); border-radius: 6px; padding: .75rem; overflow: auto;
  max-height: 32rem; font-size: 13px; margin: 0; }
pre.log { display: flex; flex-direction: column-reverse; } /* opens at its newest line, without a script */
.error { border-left: 3px solid var(--bad); padding-left: .75rem; white-space: pre-wrap; }
.note { background: var(--card); border: 1px solid var(--line); border-radius: 6px; padding: .5rem .75rem; }
figure { display: inline-block; margin: .5rem 1rem .5rem 0; } figure text { font-size: 11px; fill: var(--soft); }
ul { margin: .25rem 0; padding-left: 1.1rem; } a { color: var(--busy); }
</style></head><body><header><a href="/">trainlet</a><a href="/">runs</a><a href="/queue">queue and devices</a></header>{{ body|safe }}</body></html>"""

LOCKED = """<h1>This dashboard needs a token</h1>
<p>Run <code>trainlet up</code> or <code>trainlet doctor</code>: it prints the link that opens it.</p>"""

RUNS = """<h1>Runs of {{ project }}</h1>
{% if not runs %}<p class="soft">Nothing has run yet. <code>trainlet run FILE</code> starts a pipeline.</p>{% else %}
<table><tr><th>run</th><th>state</th><th>tasks</th><th>started (UTC)</th><th>took</th><th class="num">GPU-seconds</th>
<th class="num">cost</th></tr>
{% for run in runs %}<tr><td><a href="/runs/{{ run.id }}">{{ run.id }}</a><br><span class="soft">{{ run.pipeline }}</span></td>
<td><span class="state {{ run.state }}">{{ run.state }}</span>{% if run.state in ("failed", "canceled") %}<br>
<span class="soft">{{ run.reason }}</span>{% endif %}</td>
<td>{% for state, count in run.task_counts.items() %}<span class="{{ state }}">{{ count }} {{ state }}</span> {% endfor %}</td>
<td>{{ run.created_at[:10] }} {{ run.created_at|clock }}</td><td>{{ run.created_at|span(run.finished_at) }}</td>
<td class="num">{{ spent[run.id].gpu_seconds }}{% if spent[run.id].virtual %} <span class="soft">virtual</span>{% endif %}</td>
<td class="num">{{ spent[run.id].cost_nano|money }} {{ spent[run.id].currency }}</td></tr>{% endfor %}</table>{% endif %}"""

CANCEL = """<h1>Cancel {{ run.id }}?</h1>
<p>What waits ends now. What runs saves a checkpoint and ends; <code>trainlet resume {{ run.id }}</code> goes on from there.
{% if run.labels.get("kfp.run") %}The run in Kubeflow Pipelines then fails at these steps; its Retry goes on.{% endif %}</p>
<form method="post"><button class="stop">Cancel the run</button> <a class="button" href="/runs/{{ run.id }}">Leave it running</a>
</form>"""

QUEUE = """<h1>Queue and devices</h1>
<h2>Devices{% if not free_known %} in use{% endif %}</h2>
{% if found.places %}<table><tr><th>device</th><th>kind</th><th>held by</th><th>for</th></tr>
{% for place in found.places %}<tr><td>{{ place.device.uuid }}</td><td>{{ place.device.sku }}{% if place.device.virtual %}
<span class="soft">virtual</span>{% endif %}</td>
{% if place.task %}<td><a href="/runs/{{ place.task.run_id }}">{{ place.task.node }}</a> <span class="soft">{{ place.task.run_id }}</span></td>
<td>{% if place.task.attempts %}{{ place.task.attempts[-1].claimed_at|span(none) }}{% endif %}</td>
{% else %}<td class="soft">{{ "another project" if place.elsewhere else "free" }}</td><td></td>{% endif %}</tr>{% endfor %}</table>
{% else %}<p class="soft">{{ "This machine has none." if free_known else "None: Kubernetes knows which are free." }}</p>{% endif %}
<h2>Waiting</h2>
{% if found.waiting %}<table><tr><th class="num">place</th><th>task</th><th>state</th><th>why</th><th>waits for</th></tr>
{% for task in found.waiting %}<tr><td class="num">{{ loop.index }}</td><td><a href="/runs/{{ task.run_id }}">{{ task.node }}</a>
<span class="soft">{{ task.run_id }}</span></td><td><span class="state {{ task.state }}">{{ task.state }}</span></td>
<td>{{ task.reason }}</td><td>{{ task.created_at|span(none) }}</td></tr>{% endfor %}</table>
{% if found.left_off %}<p class="soft">and {{ found.left_off }} more.</p>{% endif %}
{% else %}<p class="soft">Nothing waits.</p>{% endif %}
<h2>Running</h2>
{% if found.running %}<table><tr><th>task</th><th>on</th><th>progress</th><th>runs for</th></tr>
{% for task in found.running %}<tr><td><a href="/runs/{{ task.run_id }}">{{ task.node }}</a> <span class="soft">{{ task.run_id }}</span></td>
<td>{% for device in task.attempts[-1].devices %}{{ device.sku }} {% else %}<span class="soft">CPU</span>{% endfor %}</td>
<td>{% if task.progress and task.progress.total %}<progress max="{{ task.progress.total }}" value="{{ task.progress.done }}"></progress>
{{ task.progress.done }} of {{ task.progress.total }}{% endif %}</td>
<td>{{ task.attempts[-1].claimed_at|span(none) }}</td></tr>{% endfor %}</table>
{% else %}<p class="soft">Nothing runs.</p>{% endif %}"""

RUN = """<h1>{{ run.id }} <span class="state {{ run.state }}">{{ run.state }}</span>{% if run.state == "running" %}
<a class="button" href="/runs/{{ run.id }}/cancel">Cancel</a>{% endif %}</h1>
<p class="soft">{{ run.pipeline }}, started {{ run.created_at[:10] }} {{ run.created_at|clock }} UTC{% if run.finished_at %},
took {{ run.created_at|span(run.finished_at) }}{% endif %}{% if run.reason %}. {{ run.reason }}{% endif %}</p>
{% if usage.virtual %}<p class="note">These devices are virtual: this machine has no such GPU. Seconds and cost are what
real ones would have taken.</p>{% endif %}
{% if run.error %}<p class="error">{{ run.error.message }}
{{ run.error.hint }}</p>{% endif %}
<h2>Tasks</h2>
<table><tr><th>task</th><th>state</th><th>attempts</th><th>took</th><th>checkpoints</th><th class="num">GPU-seconds</th>
<th class="num">cost</th></tr>
{% for task in tasks %}<tr><td>{{ task.node }}<br><span class="soft">{{ task.key }}</span></td>
<td><span class="state {{ task.state }}">{{ task.state }}</span><br><span class="soft">{{ task.reason }}</span></td>
<td>{% for a in task.attempts %}<span class="{{ a.state }}">{{ a.epoch }} {{ a.state }}</span>{% if a.resumed_from_step is not none
%} <span class="soft">from step {{ a.resumed_from_step }}</span>{% endif %}<br><span class="soft">{% for d in a.devices
%}{{ d.uuid }} ({{ d.sku }}{{ ", virtual" if d.virtual }}) {% endfor %}</span>{% if not loop.last %}<br>{% endif %}{% endfor %}</td>
<td>{{ task.created_at|span(task.finished_at) }}</td>
<td>{% if task.checkpoints %}{{ task.checkpoints|length }}, newest step {{ task.checkpoints[-1].step }}{% endif %}</td>
<td class="num">{{ spent[task.key].seconds }}{% if spent[task.key].virtual %} <span class="soft">virtual</span>{% endif %}</td>
<td class="num">{{ spent[task.key].cost_nano|money }}</td></tr>
{% if task.error %}<tr><td colspan="7"><div class="error">{{ task.error.type }}: {{ task.error.message }}{% if task.error.where %}
at {{ task.error.where }}{% endif %}{% if task.error.hint %}
{{ task.error.hint }}{% endif %}</div>{% if task.error.traceback %}<pre>{{ task.error.traceback }}</pre>{% endif %}</td></tr>{% endif %}{% endfor %}
<tr><td colspan="5"><strong>total</strong></td><td class="num">{{ usage.gpu_seconds }}</td>
<td class="num">{{ usage.cost_nano|money }} {{ usage.currency }}</td></tr></table>
{% if curves %}<h2>Metrics</h2>{% for task in tasks if task.key in curves %}<details{% if task.state == "running" or tasks|length == 1 %} open{% endif
%}><summary>{{ task.node }}: {% for name, value in task.metrics.items() %}{{ name }} {{ "%.4g"|format(value) }} {% endfor %}</summary>
{{ curves[task.key]|safe }}</details>{% endfor %}{% endif %}
<h2>Timeline</h2>{% for task in tasks %}<details><summary>{{ task.node }}</summary><ul>{% for e in history[task.key]
%}<li><span class="soft">{{ e.at|clock }}</span> <span class="{{ e.state }}">{{ e.state }}</span> {{ e.reason }}
<span class="soft">({{ e.actor }}{% if e.epoch %}, epoch {{ e.epoch }}{% endif %})</span></li>{% endfor %}</ul></details>{% endfor %}
<h2>Log</h2>{% if lines and lines[0].seq > 1 %}<p class="soft">The last {{ lines|length }} lines;
<code>trainlet logs {{ run.id }}</code> prints all.</p>{% endif %}{% if lines %}<pre class="log"><span>{% for line in lines %}{{ line.at|clock }} [{{ line.node }}{% if line.epoch > 1 %} #{{ line.epoch
}}{% endif %}{% if line.rank %} rank {{ line.rank }}{% endif %}] {{ line.text }}
{% endfor %}</span></pre>{% else %}<p class="soft">No lines yet.</p>{% endif %}"""
