"""Compile a graph to Kubeflow Pipelines IR, through the kfp SDK and never by hand.

A GPU step becomes a light pod that runs `python -m trainlet_pipelines.dispatch`: it creates the task at the training API
and waits. A CPU step becomes a pod that runs the same bundle by its digest. Values travel as small JSON texts (big ones
are in the store), so KFP's launcher never copies an artifact into a pod that does not need it.
"""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from trainlet.core import graphs
from trainlet.core.errors import UserError
from trainlet_pipelines.kubeflow import files, targets, wiring
from trainlet_pipelines.kubeflow.builders import Builder
from trainlet_pipelines.kubeflow.components import Port, Workshop
from trainlet_pipelines.kubeflow.facts import StepFacts
from trainlet_pipelines.pods import orders, shapes

OLDEST = (2, 17)


def compile_graph(
    graph: graphs.Graph,
    facts: Mapping[str, StepFacts],
    path: str | Path,
    target: targets.Target | None = None,
    parameters: Mapping[str, shapes.Shape] | None = None,
    *,
    manifest: bool = False,
) -> Path:
    """Write the pipeline as KFP v2 IR YAML and return its path.

    `facts` are those of each function of the graph, `parameters` the shapes of the pipeline's parameters; `manifest`
    writes Kubernetes objects for a KFP that keeps its pipelines in the cluster. Raises UserError when kfp is missing or
    too old, and for what KFP cannot do.
    """
    dsl, kubernetes = libraries()
    known = {name: shapes.of_value(graph.parameters[name]) for name in graph.parameters}
    known = {**dict.fromkeys(graph.required, "text"), **known, **(parameters or {})}
    builder = Builder(graph, facts, known, Workshop(targets.of(target), dsl, kubernetes))
    out = Path(path)
    with _quiet():
        pipeline = dsl.pipeline(name=graph.name, description=graph.description or None)(builder.pipeline_function())
        files.write(pipeline, out, manifest=manifest)
    return out


def as_component(facts: StepFacts, target: targets.Target | None = None) -> Any:
    """Return a step as a kfp component, to be called inside of somebody's own `@dsl.pipeline`.

    Its inputs and its `output` have KFP's types: files are real files there, numbers numbers. What a task needs around
    it (variables, Secrets, limits) is added whenever it is called.
    """
    dsl, kubernetes = libraries()
    assert facts.spec is not None
    workshop = Workshop(targets.of(target), dsl, kubernetes)
    ports: dict[str, Port] = {}
    for name, shape in facts.shapes.items():
        ports[name] = _own_port(name, shape, facts)
    kind = _result_kind(facts.returns)
    order = wiring.step_order(facts, ports, {}, {"output": orders.Export(kind=kind)})
    with _quiet():
        component = workshop.component(facts.label, order, ports, facts)
    return Surrounded(component, workshop, facts)


class Surrounded:
    """A kfp component whose tasks get the variables and Secrets of a target; else it is the component."""

    def __init__(self, component: Any, workshop: Workshop, facts: StepFacts) -> None:
        self._component, self._workshop, self._facts = component, workshop, facts

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the component inside of a kfp pipeline and return kfp's task."""
        task = self._component(*args, **kwargs)
        self._workshop.surround(task, self._facts)
        return task

    def __getattr__(self, name: str) -> Any:
        return getattr(self._component, name)


def _own_port(name: str, shape: shapes.Shape, facts: StepFacts) -> Port:
    """Return the port of an input that somebody else fills; where it has a default, KFP may leave it out."""
    if name in facts.defaults and facts.defaults[name] is not None:
        default = facts.defaults[name]
        return Port(shape, default=shapes.to_text(default, name) if shape == "text" else default)
    if name in facts.optional and not shapes.is_artifact(shape):
        return Port(["default", shape], default=None)
    return Port(shape)


def _result_kind(returns: shapes.Shape) -> str:
    if shapes.is_artifact(returns):
        return f"file:{returns[1]}"
    if isinstance(returns, list):
        return "encoded" if returns[0] == "optional" else str(returns[0])
    return str(returns) if returns in shapes.SCALARS else "encoded"


def libraries() -> tuple[Any, Any]:
    """Return (kfp.dsl, kfp.kubernetes); raises UserError when they are missing or too old."""
    try:
        import kfp
        from kfp import dsl, kubernetes
    except ImportError as error:
        raise UserError("Compiling for Kubeflow Pipelines needs kfp: pip install 'trainlet[kfp]'.") from error
    version = tuple(int(part) for part in kfp.__version__.split(".")[:2])
    if version < OLDEST:
        raise UserError(f"kfp {kfp.__version__} is older than 2.17. Run: pip install 'trainlet[kfp]'.")
    return dsl, kubernetes


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Keep kfp's warnings about its own future from people who do not write kfp."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        warnings.simplefilter("ignore", DeprecationWarning)
        yield
