"""Container components of kfp, one for each distinct order, and the task that each call of one becomes.

A GPU step's pod only waits, so what KFP says about resources and placement is passed through to the work. A CPU step's
pod does the work itself: it gets the step's own limits, retries, secrets and time.
"""

from __future__ import annotations

import copy
import inspect
import math
import typing
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from trainlet.core.errors import UserError
from trainlet.core.specs import FunctionSpec
from trainlet_functions import secrets
from trainlet_knative.objects.identities import POD_TOKEN_LABEL
from trainlet_knative.objects.pods import SECRET_KEY
from trainlet_pipelines.kubeflow.facts import StepFacts
from trainlet_pipelines.kubeflow.targets import Target
from trainlet_pipelines.pods import orders, shapes

ARGUMENT_BYTES = 128 * 1024  # Linux refuses a longer argv entry (MAX_ARG_STRLEN)
TASK_CONFIG = "task_config"
STATUS = "status"
RESERVED = frozenset({TASK_CONFIG, STATUS, "output", "metrics", "report", "curve"})
DISPATCH, EXECUTE = "trainlet_pipelines.dispatch", "trainlet_pipelines.execute"


@dataclass(frozen=True, slots=True)
class Port:
    """An input of a component: its shape, and the kfp channel or constant that it gets; None: nothing is passed."""

    shape: shapes.Shape
    value: Any = None
    description: str = ""
    default: Any = inspect.Parameter.empty


class Workshop:
    """Makes components and tasks for one compilation; equal orders share one component object."""

    def __init__(self, target: Target, dsl: Any, kubernetes: Any) -> None:
        self.target, self.dsl, self._kubernetes = target, dsl, kubernetes
        self._made: dict[tuple[Any, ...], Any] = {}
        self._platform: dict[str, Any] = {}

    def task(
        self, name: str, order: orders.Order, ports: Mapping[str, Port], facts: StepFacts | None, display: str
    ) -> Any:
        """Call the component of an order inside of kfp's trace and return kfp's task."""
        component = self.component(name, order, ports, facts)
        task = component(**{port: one.value for port, one in ports.items() if one.value is not None})
        if display != name:
            task.set_display_name(display)
        self.surround(task, facts)
        return task

    def component(self, name: str, order: orders.Order, ports: Mapping[str, Port], facts: StepFacts | None) -> Any:
        """Return the component that carries out an order."""
        text = orders.text(order)
        if len(text.encode()) >= ARGUMENT_BYTES:
            raise UserError(
                f"The constants of {name!r} take {len(text.encode())} bytes; KFP passes at most {ARGUMENT_BYTES}. "
                "Return the value from a step and pass that instead."
            )
        gpu = facts is not None and facts.gpu
        image = self._image(facts)
        key = (text, image, tuple((port, str(self._input(one)), one.description) for port, one in ports.items()))
        if key not in self._made:
            parameters = [parameter(port, self._input(one), one.default) for port, one in ports.items()]
            if gpu:
                parameters.append(parameter(TASK_CONFIG, self.dsl.TaskConfig))
            parameters += [parameter(port, self._output(one.kind)) for port, one in order.outputs.items()]
            module = EXECUTE if facts is not None and not gpu else DISPATCH
            made = self._container(name, image, module, text, _documented(parameters, facts, ports))
            if gpu:
                made.component_spec.task_config_passthroughs = self._passthroughs()
            self._made[key] = made
        return self._named(self._made[key], name)

    def _named(self, component: Any, name: str) -> Any:
        """Return the component under the name of the task that it becomes; reading a signature anew takes kfp long."""
        spec = copy.copy(component.component_spec)
        spec.name = name
        return type(component)(spec, component.pipeline_func)

    def surround(self, task: Any, facts: StepFacts | None) -> None:
        """Give a task its variables, Secrets by reference, and, where it does the work itself, the step's limits."""
        self._on_cluster(task, facts)
        for name, value in self.target.variables().items():
            task.set_env_variable(name, value)
        if facts is None or facts.spec is None:
            return
        if not facts.gpu:
            _limit(task, facts.spec)
        elif self.target.transport_retries:
            task.set_retry(self.target.transport_retries, backoff_duration="10s", backoff_factor=2.0)

    def _on_cluster(self, task: Any, facts: StepFacts | None) -> None:
        """Say what only Kubernetes knows. It is the same for all tasks of a step, and kfp takes long to write it."""
        key = "" if facts is None or facts.spec is None else facts.spec.name
        if key in self._platform:
            task.platform_config = copy.deepcopy(self._platform[key])
            return
        kubernetes = self._kubernetes
        kubernetes.use_field_path_as_env(task, "KFP_RUN_ID", "metadata.labels['pipeline/runid']")
        if self.target.pod_token:
            kubernetes.add_pod_label(task, POD_TOKEN_LABEL, "true")
        for secret, keys in self.target.secrets():
            kubernetes.use_secret_as_env(task, secret, keys)
        if facts is not None and facts.spec is not None and not facts.gpu:
            for name in facts.spec.secrets:
                kubernetes.use_secret_as_env(task, name, {SECRET_KEY: f"TRAINLET_SECRET_{secrets.variable(name)}"})
            if facts.spec.timeout_s is not None:
                kubernetes.set_timeout(task, math.ceil(facts.spec.timeout_s))
        self._platform[key] = copy.deepcopy(task.platform_config)

    def _image(self, facts: StepFacts | None) -> str:
        if facts is None or facts.spec is None or facts.gpu:
            return self.target.image
        return facts.spec.image or self.target.step_image

    def _container(self, name: str, image: str, module: str, text: str, signed: _Signed) -> Any:
        spec = self.dsl.ContainerSpec(
            image=image, command=["python", "-m", module], args=["--executor-input", "{{$}}", "--step", text]
        )

        def body(*_placeholders: Any) -> Any:
            return spec

        body.__name__ = identifier(name)
        body.__doc__ = signed.documentation
        sign(body, signed.parameters, self.dsl.ContainerSpec)
        return self.dsl.container_component(body)

    def _passthroughs(self) -> list[Any]:
        """Return what KFP hands over instead of applying it to the waiting pod; only variables are for that pod."""
        fields, through = self.dsl.TaskConfigField, self.dsl.TaskConfigPassthrough
        placement = (fields.KUBERNETES_TOLERATIONS, fields.KUBERNETES_NODE_SELECTOR, fields.KUBERNETES_AFFINITY)
        wanted = [through(field=one) for one in (fields.RESOURCES, *placement)]
        return [*wanted, through(field=fields.ENV, apply_to_task=True)]

    def _input(self, port: Port) -> Any:
        if port.shape == STATUS:  # inside a box, where it was given to the box, it is a dictionary
            return self.dsl.PipelineTaskFinalStatus if port.value is None else dict
        if shapes.is_artifact(port.shape):
            return self.dsl.Input[getattr(self.dsl, port.shape[1])]
        return kfp_type(port.shape)

    def _output(self, kind: str) -> Any:
        known = {"metrics": self.dsl.Metrics, "report": self.dsl.Markdown, "curve": self.dsl.HTML}
        form, _, artifact = kind.partition(":")
        if form in known or artifact:
            return self.dsl.Output[known[form] if form in known else getattr(self.dsl, artifact)]
        return self.dsl.OutputPath({"list": list, "dict": dict, **shapes.SCALARS}.get(kind, str))


def _limit(task: Any, spec: FunctionSpec) -> None:
    """Give a pod that does the work what its step asks for."""
    if spec.resources.cpu is not None:
        task.set_cpu_request(f"{spec.resources.cpu:g}").set_cpu_limit(f"{spec.resources.cpu:g}")
    if spec.resources.memory_bytes is not None:
        mebibytes = f"{math.ceil(spec.resources.memory_bytes / 2**20)}Mi"
        task.set_memory_request(mebibytes).set_memory_limit(mebibytes)
    if spec.retries.times:
        wait_s, most_s = max(1, round(spec.retries.delay_s)), max(1, round(spec.retries.max_delay_s))
        task.set_retry(spec.retries.times, f"{wait_s}s", spec.retries.factor, f"{most_s}s")


@dataclass(frozen=True, slots=True)
class _Signed:
    parameters: list[inspect.Parameter]
    documentation: str


def _documented(parameters: list[inspect.Parameter], facts: StepFacts | None, ports: Mapping[str, Port]) -> _Signed:
    """Write the docstring that kfp turns into descriptions."""
    described = [f"    {name}: {one.description}" for name, one in ports.items() if one.description]
    text = facts.description if facts is not None else ""
    if described:
        text = "\n".join([text, "", "Args:", *described])
    return _Signed(parameters, text)


def kfp_type(shape: shapes.Shape) -> Any:
    """Return the Python type by which kfp knows a shape."""
    if isinstance(shape, list):
        if shape[0] in ("optional", "default"):
            return typing.Optional[kfp_type(shape[1])]  # noqa: UP045 - kfp does not read `X | None`
        return {"list": list, "dict": dict}[shape[0]]
    return shapes.SCALARS.get(shape, str)


def identifier(name: str) -> str:
    """Turn the name of a node into one that kfp takes for a function's."""
    return name.replace("-", "_").replace(".", "_")


def parameter(name: str, annotation: Any, default: Any = inspect.Parameter.empty) -> inspect.Parameter:
    """Return a parameter that kfp reads: one that may be left out has a default."""
    if default is inspect.Parameter.empty and typing.get_origin(annotation) is typing.Union:
        default = None  # the shape says that it may be left out
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, annotation=annotation, default=default)


def sign(function: Callable[..., Any], parameters: list[inspect.Parameter], returns: Any = None) -> None:
    """Give a function the signature that kfp reads."""
    function.__signature__ = inspect.Signature(parameters, return_annotation=returns)  # type: ignore[attr-defined]
    function.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
