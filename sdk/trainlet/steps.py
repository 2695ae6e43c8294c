"""The decorator `@tl.step`: a function with its resources, retries and checkpoint policy.

A `Step` is still its function: called in plain code, or inside another step, it simply runs. Inside a pipeline the
call is recorded; `.remote`, `.spawn` and `.map` run it on the training API. This module must not know how code is
bundled or how a run is driven: it asks `trainlet.bundles` and `trainlet.runs` when they are needed.
"""

from __future__ import annotations

import functools
import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, Literal, ParamSpec, Protocol, TypeVar, overload

from trainlet import locations, options, signatures, tracing
from trainlet.boundaries import boundary
from trainlet.core import contexts, detached, durations, graphs, hints, specs
from trainlet.core.errors import UserError
from trainlet.core.models import sha256_hex
from trainlet.futures import Future

if TYPE_CHECKING:
    from trainlet.bundles import Bundle
    from trainlet.core.estimates import Estimate
    from trainlet.estimates import Durations
    from trainlet.runs import Run

P = ParamSpec("P")
R = TypeVar("R")

INJECTED: Any = None
"""A default for the context parameter (`ctx: tl.Context = tl.INJECTED`): type checkers let callers leave it out."""

ITEMS = "$items"
"""The parameter that holds the items of `Step.map`."""


class Step(Generic[P, R]):
    """A decorated function. `name` is its function on the platform, `label` its name in a graph."""

    def __init__(self, function: Callable[P, R], raw: dict[str, Any]) -> None:
        self._function = function
        self._raw = raw
        self.label = node_label(function.__name__)
        self.signature = signatures.Signature(function, function.__name__)
        try:
            self.options = options.parse(raw, locations.folder_of(function))
        except UserError as error:
            raise UserError(f"{locations.of(function)}: @tl.step on {function.__name__}: {error}") from None
        self.name = self.options.name or function_name(function)
        functools.update_wrapper(self, function)

    def __repr__(self) -> str:
        return f"<step {self.name}>"

    def __reduce__(self) -> str:
        """Let pickle name a step where it stands, as it does with functions: a step may use a process pool."""
        return self._function.__qualname__

    @property
    def returns(self) -> Any:
        """Return the annotation of the function's result; Any when there is none."""
        return hints.annotations_of(self._function).get("return", Any)

    def same_as(self, other: Step[Any, Any]) -> bool:
        """Say whether the other is this step: the same function with equal options."""
        return self._function is other._function and self.options == other.options

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Run the plain function; inside a pipeline, record the call and return a future."""
        trace = tracing.active()
        if trace is not None:
            return trace.call(self, self.signature.bind(args, kwargs))  # type: ignore[return-value]
        for value in (*args, *kwargs.values()):
            if isinstance(value, Future):
                raise UserError(f"{locations.caller()}: {value._label} has no value here: its pipeline is not running.")
        wanted = self.signature.context
        if wanted is None or not self.signature.fits(args, kwargs):
            return self._function(*args, **kwargs)
        return self._with_context(wanted, self.signature.bind(args, kwargs))

    def _with_context(self, wanted: str, arguments: dict[str, Any]) -> R:
        running: Callable[..., R] = self._function
        context = contexts.current_or_none()
        if context is not None:
            return running(**arguments, **{wanted: context})
        context = detached.context(self.label, self.options.resources)
        token = contexts.activate(context)
        try:
            return running(**arguments, **{wanted: context})
        finally:
            contexts.deactivate(token)

    @boundary
    def with_options(
        self,
        *,
        gpu: str | Sequence[str] | None = None,
        cpu: float | str | None = None,
        memory: str | int | None = None,
        retries: int | specs.Retries | None = None,
        timeout: options.Duration | None = None,
        checkpoint: specs.CheckpointPolicy | bool | options.Duration | None = None,
        ranks: int | Literal["gpu"] | None = None,
        packages: Sequence[str] | str | Path | None = None,
        secrets: Sequence[str] | None = None,
        image: str | None = None,
        name: str | None = None,
        max_workers: int | None = None,
        grace: options.Duration | None = None,
        allow_pickle: bool | None = None,
        backend: specs.Backend | None = None,
        tags: Mapping[str, str] | None = None,
        **unknown: Any,
    ) -> Step[P, R]:
        """Return a copy with these options changed; those that are left out stay as they are."""
        changes = {
            "gpu": gpu, "cpu": cpu, "memory": memory, "retries": retries, "timeout": timeout, "checkpoint": checkpoint,
            "ranks": ranks, "packages": packages, "secrets": secrets, "image": image, "name": name,
            "max_workers": max_workers, "grace": grace, "allow_pickle": allow_pickle, "backend": backend,
            "tags": tags, **unknown,
        }  # fmt: skip
        given = {key: value for key, value in changes.items() if value is not None or key in unknown}
        return Step(self._function, {**self._raw, **given})

    @boundary
    def bundle(self) -> Bundle:
        """Build what would be shipped: the source of this step and of what it uses (`.files` shows it)."""
        from trainlet import bundles

        return bundles.build(self._function, packages=self.options.packages)

    def spec(self) -> specs.FunctionSpec:
        """Return the step as it would be deployed, with the digest of its bundle."""
        bundle, chosen = self.bundle(), self.options
        return specs.FunctionSpec(
            name=self.name,
            bundle=bundle.digest,
            entry=bundle.entry,
            resources=chosen.resources,
            retries=chosen.retries,
            checkpoint=chosen.checkpoint,
            timeout_s=chosen.timeout_s,
            ranks=chosen.ranks,
            packages_lock=None if bundle.lock is None else sha256_hex(bundle.lock.encode()),
            imports=tuple(bundle.imports),
            secrets=chosen.secrets,
            image=chosen.image,
            python=f"{sys.version_info.major}.{sys.version_info.minor}",
            max_workers=chosen.max_workers,
            grace_s=chosen.grace_s,
            allow_pickle=chosen.allow_pickle,
            backend=chosen.backend,
            tags=chosen.tags,
        )

    @boundary
    def as_component(self, target: Any = None) -> Any:
        """Return this step as a KFP component, to be called in a `@dsl.pipeline`; its result is the output `output`.

        `target` says where it runs, as in `Pipeline.compile`. Its code must be known to the training API: `.register()`.
        """
        from trainlet import kubeflow
        from trainlet_pipelines.kubeflow import compiler, targets

        return compiler.as_component(kubeflow.fact(self), targets.of(target))

    @boundary
    def register(self) -> None:
        """Make this step and its code known to the training API without running it."""
        from trainlet import kubeflow

        kubeflow.register({self.name: self})

    @boundary
    def remote(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Run on the training API, wait, and return the result; raises StepFailed with the remote traceback."""
        result: R = self.spawn(*args, **kwargs).result()
        return result

    @boundary
    def spawn(self, *args: P.args, **kwargs: P.kwargs) -> Run:
        """Start on the training API and return the Run without waiting."""
        return self._run("spawn", args, kwargs)

    def _run(
        self,
        method: str,
        args: Sequence[Any],
        kwargs: dict[str, Any],
        *,
        budget: str | float | None = None,
        tags: Mapping[str, str] | None = None,
    ) -> Run:
        arguments = self._outside_arguments(method, args, kwargs)
        budget_nano = None if budget is None else durations.parse_money_nano(budget, "budget=")
        return self._start(self._traced(arguments), budget_nano, tags)

    @boundary
    def estimate(self, duration: Durations = None, *, tasks: int = 1) -> Estimate:
        """Return what so many tasks of this step would cost, each as long as those before, or as `duration` ("2h")."""
        from trainlet import estimates, sessions
        from trainlet.core.settings import Settings

        if isinstance(tasks, bool) or not isinstance(tasks, int) or not 0 <= tasks <= 1_000_000:
            raise UserError(f"{locations.caller()}: tasks={tasks!r} is no number of tasks. Write 1 to 1000000.")
        client = sessions.current(Settings.from_environment()).client
        return estimates.of_step(client, self, tasks, duration)

    @boundary
    def map(
        self,
        items: Iterable[Any],
        *,
        max_parallel: int | None = None,
        budget: str | float | None = None,
        tags: Mapping[str, str] | None = None,
        **same: Any,
    ) -> list[R]:
        """Run once for each item, which becomes the first parameter; return the results in the order of the items.

        `same` are further arguments that all instances get. `budget` ("20 USD") stops the whole after a checkpoint;
        `tags` go on its bill.
        """
        first = next(iter(self.signature.parameters), None)
        if first is None:
            raise UserError(f"{locations.caller()}: {self.label}() takes no argument, so there is nothing to map over.")
        if first in same:
            raise UserError(f"{locations.caller()}: {self.label}.map() gives each item as {first!r}; omit {first}=.")
        values = list(items)
        budget_nano = None if budget is None else durations.parse_money_nano(budget, "budget=")
        arguments = self._outside_arguments("map", (), {first: None, **same})
        arguments.pop(first)
        traced = self._mapped(first, values, arguments, check_parallel(max_parallel))
        if not values:
            return []
        results: list[R] = self._start(traced, budget_nano, tags).result()
        return results

    def _outside_arguments(self, method: str, args: Sequence[Any], kwargs: dict[str, Any]) -> dict[str, Any]:
        if tracing.active() is not None:
            raise UserError(
                f"{locations.caller()}: .{method}() starts a run of its own. Inside a pipeline write "
                f"{self.label}(...), or tl.each(items, {self.label})."
            )
        arguments = self.signature.bind(args, kwargs)
        for name, value in arguments.items():
            if isinstance(value, Future):
                raise UserError(f"{locations.caller()}: {name}={value!r} has no value outside of its pipeline.")
        return arguments

    def _traced(self, arguments: dict[str, Any]) -> tracing.TracedPipeline:
        inputs: dict[str, graphs.Expression] = {name: graphs.Parameter(name=name) for name in arguments}
        node = self._node(inputs, "root")
        outputs: dict[str, graphs.Expression] = {"result": graphs.Output(node=node.id)}
        graph = graphs.Graph(name=self.name, required=tuple(arguments), nodes=(node,), outputs=outputs)
        return tracing.TracedPipeline(graph, arguments, {self.name: self})

    def _mapped(
        self, first: str, values: list[Any], same: dict[str, Any], max_parallel: int | None
    ) -> tracing.TracedPipeline:
        scope = graphs.Scope(
            id=f"each-{self.label}", kind="each", items=graphs.Parameter(name=ITEMS), max_parallel=max_parallel
        )
        inputs: dict[str, graphs.Expression] = {name: graphs.Parameter(name=name) for name in same}
        inputs[first] = graphs.Item(scope=scope.id)
        node = self._node(inputs, scope.id)
        collected = graphs.Collected(scope=scope.id, value=graphs.Output(node=node.id))
        graph = graphs.Graph(
            name=self.name,
            required=(ITEMS, *same),
            nodes=(node,),
            scopes=(scope,),
            outputs={"result": collected},
        )
        return tracing.TracedPipeline(graph, {ITEMS: values, **same}, {self.name: self})

    def _node(self, inputs: dict[str, graphs.Expression], scope: str) -> graphs.Node:
        digest = self.spec().digest()
        return graphs.Node(
            id=self.label, function=self.name, digest=digest, display=self.label, scope=scope, inputs=inputs
        )

    def _start(
        self, traced: tracing.TracedPipeline, budget_nano: int | None, tags: Mapping[str, str] | None = None
    ) -> Run:
        from trainlet import runs

        return runs.start(traced.graph, traced.values, traced.steps, budget_nano=budget_nano, tags=tags)


class StepDecorator(Protocol):
    """What `tl.step(...)` with options returns."""

    def __call__(self, function: Callable[P, R], /) -> Step[P, R]:
        """Make the step."""
        ...


@overload
def step(function: Callable[P, R], /) -> Step[P, R]: ...
@overload
def step(
    *,
    gpu: str | Sequence[str] | None = None,
    cpu: float | str | None = None,
    memory: str | int | None = None,
    retries: int | specs.Retries | None = None,
    timeout: options.Duration | None = None,
    checkpoint: specs.CheckpointPolicy | bool | options.Duration | None = None,
    ranks: int | Literal["gpu"] | None = None,
    packages: Sequence[str] | str | Path | None = None,
    secrets: Sequence[str] | None = None,
    image: str | None = None,
    name: str | None = None,
    max_workers: int | None = None,
    grace: options.Duration | None = None,
    allow_pickle: bool | None = None,
    backend: specs.Backend | None = None,
    tags: Mapping[str, str] | None = None,
) -> StepDecorator: ...
@boundary
def step(function: Any = None, /, **raw: Any) -> Any:
    """Make a step of a function. All options are keyword-only; None means: not given.

    `gpu`: "A100", "A100:2", "H100/1g.10gb", or a list as ordered fallback. `cpu`: cores. `memory`: "16Gi".
    `retries`: repeats of failed attempts. `timeout`, `grace`: "2h", seconds or a timedelta, for one attempt and for
    its last checkpoint. `checkpoint`: tl.Checkpoint(...), True, or how often. `ranks`: child processes, "gpu" for one
    on each GPU. `packages`: requirements, or the path of a file of them. `secrets`: names. `image`: for a cluster.
    `name`: of the function on the platform. `max_workers`: at most so many at once. `backend`: on a cluster "service"
    (workers stay warm for a while), or "job" (a Kubernetes Job for each task, for queues such as Kueue). `tags`: names
    and texts for the bill, such as {"team": "vision"}; a run has more of them.
    `allow_pickle`: let values that have no safe form travel as pickles. Whoever can write to the store can then run
    code in this step; leave it off unless you trust everyone who can.

    A parameter annotated `tl.Context` is filled in by trainlet. Give it the default `tl.INJECTED` to let type checkers
    know that callers omit it.
    """
    if function is None:
        return boundary(lambda decorated: _make(decorated, raw))
    if isinstance(function, str) or not (callable(function) or isinstance(function, (staticmethod, classmethod))):
        shown = f'gpu="{function}"' if isinstance(function, str) else f"name={function!r}"
        raise UserError(f"{locations.caller()}: options of tl.step are keyword-only. Write @tl.step({shown}).")
    if raw:
        shown = ", ".join(f"{name}=..." for name in raw)
        raise UserError(f"{locations.caller()}: write @tl.step({shown}) above the function.")
    return _make(function, raw)


def _make(function: Any, raw: dict[str, Any]) -> Step[Any, Any]:
    if isinstance(function, Step):
        raise UserError(f"{locations.caller()}: {function!r} is a step already. Use .with_options(...) to change it.")
    if getattr(function, "__trainlet_pipeline__", False):
        raise UserError(f"{locations.caller()}: {function!r} is a pipeline. Call it inside another pipeline instead.")
    return Step(signatures.check_function(function, "tl.step"), raw)


def node_label(name: str) -> str:
    """Turn a Python name into the label of a node: safe in keys, file names and URLs."""
    label = re.sub(r"[^A-Za-z0-9_-]+", "-", name).strip("-_")
    return label[:60] or "step"


def function_name(function: Callable[..., Any]) -> str:
    """Return the platform name of a function: its package, file or `notebook`, then its own name."""
    try:
        return specs.dns_label(f"{origin(function)}-{function.__name__}")
    except ValueError as error:
        raise UserError(f"{locations.of(function)}: {error}.") from None


def origin(function: Callable[..., Any]) -> str:
    """Return where a function is from: the top package of its module, its file, or `notebook`."""
    module = function.__module__ or "__main__"
    if module != "__main__":
        return module.partition(".")[0]
    path = getattr(sys.modules.get("__main__"), "__file__", None)
    return Path(path).stem if path else "notebook"


def check_parallel(value: Any) -> int | None:
    """Return max_parallel if it is a whole number above zero, or None."""
    if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < 1):
        at = locations.caller()
        raise UserError(f"{at}: max_parallel={value!r} must be a whole number from 1. Write 8, or omit it.")
    return value
