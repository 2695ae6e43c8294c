"""What a notebook says to Kubeflow Pipelines: native components inside of a pipeline, and steps handed to its compiler.

Nothing here imports kfp unless it is used. How a graph becomes IR is known to `trainlet_pipelines.kubeflow` only.
"""

from __future__ import annotations

import inspect
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, NoReturn

from trainlet import locations, tracing
from trainlet.core import hints, specs
from trainlet.core.errors import UserError
from trainlet.core.models import sha256_hex

if TYPE_CHECKING:
    from trainlet.importers import Importer
    from trainlet.pipelines import Pipeline
    from trainlet_pipelines.kubeflow.facts import StepFacts
    from trainlet_pipelines.kubeflow.runs import KubeflowRun


def from_kfp(component: Any) -> NativeStep | Importer:
    """Make a native KFP component callable inside of `@tl.pipeline`: `scan = tl.from_kfp(scan_component)`.

    Its results are futures: `scan(x)` with one output, `scan(x)["name"]` with several. A `@dsl.pipeline` and
    `dsl.importer` are taken, too. Raises UserError for what is not a component of kfp.
    """
    if getattr(component, "__module__", "") == "kfp.dsl.importer_node":
        from trainlet import importers

        return importers.Importer()
    if not hasattr(component, "component_spec"):
        raise UserError(
            f"{locations.caller()}: tl.from_kfp needs a KFP component (@dsl.component, @dsl.container_component, "
            f"kfp.components.load_component_from_file), not {component!r}."
        )
    return NativeStep(component)


class NativeStep:
    """A KFP component in the place of a step. It runs on Kubeflow Pipelines, and locally if it takes only parameters."""

    def __init__(self, component: Any) -> None:
        from trainlet import steps

        self.component = component
        self._component_spec = component.component_spec
        self.name = specs.dns_label(f"kfp-{self._component_spec.name}")
        self.label = steps.node_label(self._component_spec.name)
        self.returns: Any = Any
        self.options = SimpleNamespace(
            resources=specs.Resources(),
            retries=specs.Retries(),
            checkpoint=None,
            image=None,
            packages=None,
            ranks=1,
            secrets=(),
        )

    def __repr__(self) -> str:
        return f"<KFP component {self.label}>"

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Record the call and return the future of its result; KFP components take their arguments by name."""
        trace = tracing.required(f"{self.label}(...)")
        names = list(self._component_spec.inputs or {})
        if len(args) > len(names):
            raise UserError(f"{locations.caller()}: {self.label}() takes {len(names)} arguments and got {len(args)}.")
        given = {**dict(zip(names, args, strict=False)), **kwargs}
        for name in given:
            if name not in names:
                have = ", ".join(names) or "none"
                raise UserError(f"{locations.caller()}: {self.label}() has no input {name!r}. It has: {have}.")
        needed = [name for name, one in (self._component_spec.inputs or {}).items() if not one.optional]
        missing = [name for name in needed if name not in given]
        if missing:
            raise UserError(f"{locations.caller()}: {self.label}() misses {', '.join(missing)}.")
        return trace.call(self, given)  # type: ignore[arg-type]

    def same_as(self, other: Any) -> bool:
        """Say whether the other is this component."""
        return isinstance(other, NativeStep) and other.component is self.component

    def spec(self) -> Any:
        """Return something that has a digest: what is called, in place of code."""
        described = self.component.pipeline_spec.SerializeToString(deterministic=True)
        return SimpleNamespace(digest=lambda: sha256_hex(described))

    def bundle(self) -> NoReturn:
        """Refuse: there is no code of trainlet's to ship."""
        raise UserError(
            f"{self.label} is a native KFP component, which the training API cannot run. "
            "Use .submit(...) or .compile(...), or replace it by a @tl.step."
        )

    @property
    def _function(self) -> Any:
        function = getattr(self.component, "python_func", None)
        parts = [*(self._component_spec.inputs or {}).values(), *(self._component_spec.outputs or {}).values()]
        if function is None or any(str(one.type).startswith("system.") for one in parts):
            raise UserError(
                f"{self.label} is a KFP component with a container or with files, which only Kubeflow Pipelines runs. "
                "Use .submit(...), or replace it by a @tl.step to run it here."
            )
        return function


@dataclass(frozen=True, slots=True)
class Submission:
    """How a pipeline is submitted; see `Pipeline.submit`."""

    host: str | None = None
    experiment: str | None = None
    namespace: str | None = None
    token: str | None = None
    target: Any = None
    name: str | None = None
    caching: bool | None = None


def submit(
    pipeline: Pipeline[Any, Any], traced: tracing.TracedPipeline, options: Submission, params: Mapping[str, Any]
) -> KubeflowRun:
    """Register, compile and start a pipeline on a Kubeflow Pipelines server."""
    import yaml

    from trainlet_pipelines.kubeflow import runs

    server = runs.Server(options.host, token=options.token, namespace=options.namespace)
    values = {name: _parameter(pipeline, name, value) for name, value in params.items()}
    with tempfile.TemporaryDirectory(prefix="trainlet-") as folder:
        path = pipeline._compiled(traced, Path(folder) / "pipeline.yaml", options.target, register=True)
        loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
        documents = [*yaml.load_all(path.read_text(), Loader=loader)]
    if options.caching is not None:
        _set_caching(documents[0], options.caching)
    spec = {"pipeline_spec": documents[0], "platform_spec": documents[1]} if len(documents) > 1 else documents[0]
    name = options.name or f"{pipeline.name} {datetime.now(UTC).isoformat(timespec='seconds')}"
    return runs.KubeflowRun(server, server.start(spec, name, values, options.experiment))


def _parameter(pipeline: Pipeline[Any, Any], name: str, value: Any) -> Any:
    """Return a parameter as KFP takes it; what is not JSON goes to the store and travels as a reference."""
    from trainlet_pipelines.pods import shapes

    annotations = hints.annotations_of(pipeline._function)
    shape = shape_of(name, pipeline.signature.parameters[name], annotations)
    if shape != "text" and not shapes.is_artifact(shape):
        if not tracing.is_plain_json(value):
            raise UserError(f"{name}={value!r} is no JSON, but {pipeline.label} takes {annotations.get(name)}.")
        return value
    if tracing.is_plain_json(value):
        return shapes.to_text(value, name)
    from trainlet import sessions
    from trainlet.core import codecs
    from trainlet.core.settings import Settings

    store = sessions.current(Settings.from_environment()).store
    return shapes.to_text(codecs.encode(value, store, name=name), name)


def _set_caching(spec: dict[str, Any], caching: bool) -> None:
    """Let KFP reuse results, or not, whatever was compiled."""
    for component in (spec["root"], *spec.get("components", {}).values()):
        for task in component.get("dag", {}).get("tasks", {}).values():
            if "cachingOptions" in task:
                task["cachingOptions"] = {"enableCache": True} if caching else {}


def facts(steps: Mapping[str, Any]) -> dict[str, StepFacts]:
    """Return what the compiler must know of steps, by the name of their function."""
    return {name: fact(step) for name, step in steps.items()}


def register(steps: Mapping[str, Any]) -> None:
    """Make the code and the functions of steps known to the training API of this process."""
    from trainlet import sessions
    from trainlet.core.settings import Settings

    ours = {name: step for name, step in steps.items() if not isinstance(step, NativeStep)}
    sessions.current(Settings.from_environment()).register(ours)


def fact(step: Any) -> StepFacts:
    """Return what the compiler must know of a step or native component."""
    from trainlet_pipelines.kubeflow.facts import StepFacts
    from trainlet_pipelines.pods import shapes

    if isinstance(step, NativeStep):
        return StepFacts(step.label, native=step.component)
    annotations = hints.annotations_of(step._function)
    parameters = step.signature.parameters
    defaults = {
        name: one.default
        for name, one in parameters.items()
        if one.default is not inspect.Parameter.empty and tracing.is_plain_json(one.default)
    }
    return StepFacts(
        label=step.label,
        description=first_paragraph(step._function),
        spec=step.spec(),
        shapes={name: shape_of(name, one, annotations) for name, one in parameters.items()},
        defaults=defaults,
        optional=frozenset(n for n, one in parameters.items() if one.default is not inspect.Parameter.empty),
        returns=shapes.of(annotations.get("return", Any)),
        reports=step.signature.context is not None,
    )


def shape_of(name: str, parameter: inspect.Parameter, annotations: Mapping[str, Any]) -> Any:
    """Return the shape of a parameter: by its annotation, else by its default."""
    from trainlet_pipelines.pods import shapes

    if name in annotations:
        shape = shapes.of(annotations[name])
        return ["optional", shape] if parameter.default is None and not isinstance(shape, list) else shape
    has_default = parameter.default is not inspect.Parameter.empty
    return shapes.of_value(parameter.default) if has_default else "text"


def first_paragraph(function: Any) -> str:
    """Return the first paragraph of a docstring."""
    return (inspect.getdoc(function) or "").partition("\n\n")[0]
