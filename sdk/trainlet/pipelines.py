"""The decorator `@tl.pipeline`: a function that describes a graph of steps.

The function runs once, with futures as arguments, to record a graph; nothing it calls is executed then. How a graph
runs is not known here: `trainlet.runs` and `trainlet.kubeflow` are asked when they are needed.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, Protocol, TypeVar, overload

from trainlet import locations, signatures, steps, tracing
from trainlet.boundaries import boundary
from trainlet.core import durations, graphs, hints, specs
from trainlet.core.errors import UserError
from trainlet.futures import Future

if TYPE_CHECKING:
    from trainlet.core.estimates import Estimate
    from trainlet.estimates import Durations
    from trainlet.runs import Run
    from trainlet.triggers import Trigger
    from trainlet_pipelines.kubeflow.runs import KubeflowRun

P = ParamSpec("P")
R = TypeVar("R")


class Pipeline(Generic[P, R]):
    """A decorated function that describes a graph. Its parameters are the parameters of a run."""

    __trainlet_pipeline__ = True

    def __init__(self, function: Callable[P, R], name: str | None = None) -> None:
        self._function = function
        self.triggers: tuple[Trigger, ...] = ()
        self.label = steps.node_label(function.__name__)
        self.signature = signatures.Signature(function, function.__name__)
        if self.signature.context is not None:
            raise UserError(
                f"{locations.of(function)}: a pipeline has no context; remove {self.signature.context}= "
                "and use it in the steps."
            )
        for parameter in self.signature.parameters.values():
            if parameter.kind is parameter.VAR_KEYWORD:
                at = locations.of(function)
                raise UserError(f"{at}: **{parameter.name} is no parameter of a run. Name each one.")
            if parameter.name in ("isolated", "budget", "tags", "cache"):
                at = locations.of(function)
                raise UserError(f"{at}: {parameter.name}= is an option of .run() or .local(). Rename the parameter.")
        try:
            self.name = specs.dns_label(name or function.__name__)
        except ValueError as error:
            raise UserError(f"{locations.of(function)}: {error}.") from None
        functools.update_wrapper(self, function)

    def __repr__(self) -> str:
        return f"<pipeline {self.name}>"

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Inline this pipeline into the one that is being traced."""
        trace = tracing.active()
        if trace is None:
            raise UserError(
                f"{locations.caller()}: {self.label}(...) describes a graph and does not run by being called. "
                f"Write {self.label}.local(...) to run it here, or {self.label}.run(...) on the training API."
            )
        given = self.signature.bind(args, kwargs)
        annotations = hints.annotations_of(self._function)
        arguments: dict[str, Any] = {}
        for name, parameter in self.signature.parameters.items():
            value = given.get(name, parameter.default)
            if not isinstance(value, Future):
                expression = trace.expression(value, f"{self.label}({name}=...)")
                value = Future(trace, expression, name, annotations.get(name, Any), trace.stack[-1])
            arguments[name] = value
        called: Callable[..., R] = self._function
        with trace.nested(self, self.label, (inspect.getdoc(called) or "").partition("\n\n")[0]):
            return called(**arguments)

    def trace(self, params: dict[str, Any], *, resolve: bool = True) -> tracing.TracedPipeline:
        """Record the graph, with `params` in place of defaults. `resolve=False` skips bundling the steps."""
        if tracing.active() is not None:
            raise UserError(f"{locations.caller()}: a pipeline is being traced; call {self.label}(...) to inline it.")
        self._check_names(params)
        trace = tracing.Trace(self.name, resolve)
        trace.pipelines.append(self)
        annotations = hints.annotations_of(self._function)
        arguments: dict[str, Any] = {
            name: Future(trace, graphs.Parameter(name=name), name, annotations.get(name, Any))
            for name in self.signature.parameters
        }
        called: Callable[..., Any] = self._function
        with trace.opened():
            outputs = _outputs(trace, called(**arguments))
        return tracing.TracedPipeline(*self._graph(trace, params, outputs), trace.steps)

    def _graph(
        self, trace: tracing.Trace, params: dict[str, Any], outputs: dict[str, graphs.Expression]
    ) -> tuple[graphs.Graph, dict[str, Any]]:
        defaults: dict[str, Any] = {}
        required: list[str] = []
        values = dict(trace.values)
        for name, parameter in self.signature.parameters.items():
            value = params.get(name, parameter.default)
            if value is not inspect.Parameter.empty and tracing.is_plain_json(value):
                defaults[name] = value
                continue
            required.append(name)
            if value is not inspect.Parameter.empty:
                values[name] = value
        graph = graphs.Graph(
            name=self.name,
            description=(inspect.getdoc(self._function) or "").partition("\n\n")[0],
            parameters=defaults,
            required=(*required, *trace.values),
            nodes=tuple(trace.nodes.values()),
            scopes=tuple(trace.scopes.values()),
            groups=tuple(trace.groups.values()),
            outputs=outputs,
        )
        return graph, values

    def _check_names(self, params: dict[str, Any]) -> None:
        names = list(self.signature.parameters)
        for name in params:
            if name not in names:
                hint = durations.nearest(name, names) if names else "It takes none."
                raise UserError(f"{locations.caller()}: pipeline {self.name!r} has no parameter {name!r}. {hint}")

    def _check_complete(self, params: dict[str, Any]) -> None:
        self._check_names(params)
        self.signature.bind((), params)

    @boundary
    def graph(self, **params: Any) -> graphs.Graph:
        """Return the traced graph, with `params` as defaults; no step is bundled."""
        return self.trace(params, resolve=False).graph

    @boundary
    def local(
        self, *, isolated: bool = False, max_parallel: int | None = None, cache: bool = False, **params: Any
    ) -> Any:
        """Run in this process, where a debugger works, and return what the pipeline returns.

        `isolated=True` runs each step in a clean subprocess that has only its bundle, as a worker does; its lines are
        shown as those of a run. At most `max_parallel` steps run at once (default: by the number of cores). `cache=True`
        does only what is new: tasks whose code and inputs were seen before are not done again, so a run that failed
        goes on from its last good task.
        """
        if max_parallel is not None and (type(max_parallel) is not int or max_parallel < 1):
            raise UserError(
                f"max_parallel={max_parallel!r} is not valid: write a whole number from 1, or leave it out."
            )
        self._check_complete(params)
        traced = self.trace(params, resolve=isolated or cache)
        from trainlet import rehearsals

        graph = traced.graph.model_copy(update={"cache": cache})
        given = {**traced.values, **params}
        return rehearsals.local(graph, given, traced.steps, isolated=isolated, max_parallel=max_parallel)

    @boundary
    def run(
        self,
        *,
        budget: str | float | None = None,
        tags: Mapping[str, str] | None = None,
        cache: bool = False,
        **params: Any,
    ) -> Run:
        """Start on the training API and return the Run. `budget` ("20 USD") stops it after a checkpoint.

        `tags` ({"team": "vision"}) are shown with the run and on every row of its bill. `cache=True` does not repeat
        tasks whose code and inputs are those of an earlier run with `cache=True`; they cost nothing and are not among
        this run's tasks.
        """
        self._check_complete(params)
        budget_nano = None if budget is None else durations.parse_money_nano(budget, "budget=")
        traced = self.trace(params)
        from trainlet import runs

        values = {**traced.values, **params}
        graph = traced.graph.model_copy(update={"cache": cache})
        return runs.start(graph, values, traced.steps, budget_nano=budget_nano, tags=tags)

    @boundary
    def estimate(self, duration: Durations = None, /, **params: Any) -> Estimate:
        """Return what a run with these parameters would cost, at the prices of now; nothing is started.

        A task takes as long as those that ran before; `duration` ("2h", or {"train": "2h"} by the names of tasks) says
        otherwise. Parameters may be left out: what they decide is then not known.
        """
        traced = self.trace(params, resolve=False)
        from trainlet import estimates, sessions
        from trainlet.core.settings import Settings

        client = sessions.current(Settings.from_environment()).client
        values = {**traced.values, **params}
        return estimates.of_graph(client, traced.graph, values, estimates.needs_of(traced.steps), duration)

    @boundary
    def deploy(self) -> dict[str, list[str]]:
        """Register the steps and triggers of this pipeline, as `trainlet deploy` does; return what changed, by trigger.

        From then on `@tl.on_event` and `@tl.on_schedule` start it, also when this process is gone.
        """
        from trainlet import registration, sessions
        from trainlet.core.settings import Settings

        session = sessions.current(Settings.from_environment())
        session.register(self.trace({}).steps)
        return registration.register(session, [self])

    def compile(self, path: str | Path, target: Any = None, *, register: bool = False, manifest: bool = False) -> Path:
        """Write this pipeline as Kubeflow Pipelines v2 YAML; needs `trainlet[kfp]`.

        `target` says where it runs: a mapping such as `{"api": "https://...", "image": "..."}`. `register` also makes
        its functions and code known to the training API of this process. `manifest` writes Kubernetes objects.
        """
        return self._compiled(self.trace({}), path, target, register=register, manifest=manifest)

    @boundary
    def submit(
        self,
        host: str | None = None,
        *,
        experiment: str | None = None,
        namespace: str | None = None,
        token: str | None = None,
        target: Any = None,
        name: str | None = None,
        caching: bool | None = None,
        **params: Any,
    ) -> KubeflowRun:
        """Register the code, compile, and start a run on a Kubeflow Pipelines server; return it without waiting.

        `host` is the server (default: KF_PIPELINES_ENDPOINT). `caching=False` makes KFP do every task. Parameters that
        are not JSON go to the store. Raises UserError for what the server would refuse.
        """
        from trainlet import kubeflow

        self._check_complete(params)
        options = kubeflow.Submission(host, experiment, namespace, token, target, name, caching)
        return kubeflow.submit(self, self.trace({}), options, params)

    def _compiled(
        self,
        traced: tracing.TracedPipeline,
        path: str | Path,
        target: Any,
        *,
        register: bool = False,
        manifest: bool = False,
    ) -> Path:
        self._check_compiles(traced)
        from trainlet import kubeflow
        from trainlet_pipelines.kubeflow import compiler, targets

        annotations = hints.annotations_of(self._function)
        shapes = {name: kubeflow.shape_of(name, one, annotations) for name, one in self.signature.parameters.items()}
        shapes = {name: shape if shape[0] != "artifact" else "text" for name, shape in shapes.items()}
        where = targets.of(target)
        out = compiler.compile_graph(traced.graph, kubeflow.facts(traced.steps), path, where, shapes, manifest=manifest)
        if register:
            kubeflow.register(traced.steps)
        return out

    def _check_compiles(self, traced: tracing.TracedPipeline) -> None:
        for name, value in traced.values.items():
            raise UserError(
                f"Pipeline {self.name!r} holds a {type(value).__name__} as "
                f"{'a constant' if name.startswith('$') else f'the default of {name}'}, which is not JSON. "
                "To compile it, return that value from a step."
            )


def _outputs(trace: tracing.Trace, returned: Any) -> dict[str, graphs.Expression]:
    if returned is None:
        return {}
    if type(returned) is dict and returned and all(type(key) is str for key in returned):
        return {key: trace.expression(value, f"return {{{key!r}: ...}}") for key, value in returned.items()}
    return {"result": trace.expression(returned, "return")}


class PipelineDecorator(Protocol):
    """What `tl.pipeline(...)` with options returns."""

    def __call__(self, function: Callable[P, R], /) -> Pipeline[P, R]:
        """Make the pipeline."""
        ...


@overload
def pipeline(function: Callable[P, R], /) -> Pipeline[P, R]: ...
@overload
def pipeline(*, name: str | None = None) -> PipelineDecorator: ...
@boundary
def pipeline(function: Any = None, /, *, name: str | None = None, **unknown: Any) -> Any:
    """Make a pipeline of a function that calls steps. `name` is what its runs are called."""
    for option in unknown:
        raise UserError(f"{option}= is not an option of tl.pipeline. {durations.nearest(option, ['name'])}")
    if function is None:
        return boundary(lambda decorated: _make(decorated, name))
    if not callable(function) and not isinstance(function, (staticmethod, classmethod)):
        at = locations.caller()
        raise UserError(f"{at}: options of tl.pipeline are keyword-only: @tl.pipeline(name={function!r}).")
    return _make(function, name)


def _make(function: Any, name: str | None) -> Pipeline[Any, Any]:
    if isinstance(function, (Pipeline, steps.Step)):
        raise UserError(f"{locations.caller()}: {function!r} is decorated already. Use one decorator only.")
    return Pipeline(signatures.check_function(function, "tl.pipeline"), name)
