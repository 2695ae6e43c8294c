"""Estimates of pipelines and runs: which steps there are, how often each runs, and how long it was said to take.

The training API knows prices and what ran before; this module only knows graphs.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Protocol

from trainlet.core import durations, graphs
from trainlet.core.errors import UserError
from trainlet.core.estimates import MOST_S, Estimate, EstimateRequest, EstimateStep
from trainlet.core.specs import Resources, Retries

if TYPE_CHECKING:
    from trainlet.client.http import Client
    from trainlet.steps import Step

Durations = str | float | Mapping[str, Any] | None
EVERY = ""


class Needs(Protocol):
    """What a step asks for: its options, or its spec once it is deployed."""

    @property
    def resources(self) -> Resources: ...
    @property
    def retries(self) -> Retries: ...
    @property
    def timeout_s(self) -> float | None: ...
    @property
    def grace_s(self) -> float: ...


def needs_of(steps: Mapping[str, Any]) -> dict[str, Needs]:
    """Return what traced steps ask for; components of KFP are left out, as no device of ours runs them."""
    from trainlet.steps import Step

    return {name: step.options for name, step in steps.items() if isinstance(step, Step)}


def of_graph(
    client: Client, graph: graphs.Graph, params: Mapping[str, Any], needs: Mapping[str, Needs], duration: Durations
) -> Estimate:
    """Ask what a graph would cost when it starts now; `duration` is how long each task takes, or maps nodes to that."""
    from trainlet.client.money import Money

    given = seconds_of(duration, [node.id for node in graph.nodes])
    values = {**graph.parameters, **params}
    steps = [_step(graph, node, values, needs.get(node.function), given) for node in graph.nodes]
    return Money(client).estimate(EstimateRequest(steps=tuple(steps)))


def of_step(client: Client, step: Step[Any, Any], tasks: int, duration: Durations) -> Estimate:
    """Ask what so many tasks of one step would cost."""
    node = graphs.Node(id=step.label, function=step.name, digest="0" * 64, scope="each")
    each = graphs.Scope(id="each", kind="each", items=graphs.Parameter(name="items"))
    graph = graphs.Graph(name=step.name, nodes=(node,), scopes=(each,))
    return of_graph(client, graph, {"items": [None] * tasks}, {step.name: step.options}, duration)


def seconds_of(duration: Durations, nodes: Iterable[str]) -> dict[str, int]:
    """Read durations of nodes, in whole seconds; raises UserError for a node that there is not."""
    if duration is None:
        return {}
    if not isinstance(duration, Mapping):
        return {EVERY: _whole(duration, "duration=")}
    known = list(nodes)
    for name in duration:
        if name not in known:
            raise UserError(f"duration= names {name!r}, which is no task here. {durations.nearest(name, known)}")
    return {name: _whole(one, f"duration of {name}: ") for name, one in duration.items()}


def words(estimate: Estimate) -> str:
    """Say an estimate in one sentence."""
    guessed = [row for row in estimate.rows if row.basis in ("given", "history")]
    open_ = [row.node for row in estimate.rows if row.basis == "unknown"]
    each = [row.node for row in estimate.rows if row.each and row.basis != "free"]
    if all(row.basis == "free" for row in estimate.rows):
        return "it costs nothing: no step asks for a GPU"
    parts: list[str] = []
    if guessed:
        cost = f"{estimate.cost_nano / 1e9:.4f} {estimate.currency}"
        parts.append(f"about {cost} for {estimate.gpu_seconds} GPU-seconds")
    if estimate.most_nano is not None:
        parts.append(f"at most {estimate.most_nano / 1e9:.4f} {estimate.currency} within timeouts and retries")
    if each:
        parts.append(f"{', '.join(each)} counted once, as the number of items is not known yet")
    if open_:
        parts.append(f"not known for {', '.join(open_)}, which never ran: give a duration")
    if estimate.unpriced_skus:
        parts.append(f"no price for {', '.join(estimate.unpriced_skus)}")
    return "; ".join(parts)


def _whole(value: Any, what: str) -> int:
    seconds = -int(-durations.parse_duration_s(value, what) // 1)
    if seconds > MOST_S:
        raise UserError(f"{what}{value!r} is longer than ten years.")
    return seconds


def _step(
    graph: graphs.Graph, node: graphs.Node, values: Mapping[str, Any], needs: Needs | None, given: Mapping[str, int]
) -> EstimateStep:
    if needs is None:
        return EstimateStep(node=node.id, function=node.function)
    seconds = given.get(node.id, given.get(EVERY))
    most_s = None
    if needs.timeout_s is not None:
        most_s = min(MOST_S, -int(-(needs.timeout_s + needs.grace_s) * (needs.retries.times + 1) // 1))
    return EstimateStep(
        node=node.id,
        function=node.function,
        gpus=needs.resources.gpus,
        tasks=_tasks(graph, node, values),
        phases=() if seconds is None else (("run", seconds),),
        most_s=most_s,
    )


def _tasks(graph: graphs.Graph, node: graphs.Node, values: Mapping[str, Any]) -> int | None:
    """Return how often a node runs; None when a result decides. A condition counts as if it held."""
    scopes = {scope.id: scope for scope in graph.scopes}
    count, at = 1, node.scope
    while at in scopes:
        scope = scopes[at]
        if scope.kind == "each":
            items = _items(scope.items, values)
            if items is None:
                return None
            count *= items
        at = scope.parent
    return count


def _items(items: graphs.Expression | None, values: Mapping[str, Any]) -> int | None:
    if isinstance(items, graphs.ListOf):
        return len(items.items)
    value: Any = None
    if isinstance(items, graphs.Constant):
        value = items.value
    elif isinstance(items, graphs.Parameter):
        value = values.get(items.name)
    return len(value) if isinstance(value, (list, tuple)) else None
