"""A part of a pipeline as a pipeline of its own inside KFP's: "Open Sub-DAG" on KFP's page.

kfp traces one pipeline at a time, so a box is made before the pipeline around it. What it reads from outside becomes
its inputs, what is read of it outside becomes its outputs, both with the types they have between tasks.
"""

from __future__ import annotations

import typing
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from trainlet.core import graphs
from trainlet_pipelines.kubeflow import components
from trainlet_pipelines.kubeflow.wiring import Read
from trainlet_pipelines.pods import shapes

if TYPE_CHECKING:
    from trainlet_pipelines.kubeflow.builders import Builder


@dataclass(frozen=True, slots=True)
class Box:
    """A pipeline that was made: its inputs and outputs are the names of channels by their key."""

    component: Any
    inputs: Mapping[str, str]
    outputs: Mapping[str, str]
    shapes: Mapping[str, shapes.Shape]


def make(builder: Builder, group: graphs.Group, reads: Mapping[str, Read], gives: Mapping[str, Read]) -> Box:
    """Make the pipeline of a group by a builder of its own, which has no channels yet."""
    wiring, dsl = builder.wiring, builder.dsl
    found = {key: wiring.static_shape(key, leaf) for key, leaf in reads.items()}
    inputs, outputs = _names(list(found)), _names(list(gives))
    parameters = [components.parameter(name, _type(dsl, found[key], taken=True)) for key, name in inputs.items()]

    def body(*channels: Any) -> Any:
        for key, channel in zip(inputs, channels, strict=True):
            wiring.add(key, channel, found[key])
        builder.lay(group.scope, group.id)
        return returned(*(wiring.channels[key].value for key in outputs)) if outputs else None

    kinds = [(name, _type(dsl, wiring.static_shape(key, gives[key]), taken=False)) for key, name in outputs.items()]
    returned: Any = typing.NamedTuple("Outputs", kinds) if kinds else None
    body.__name__ = components.identifier(group.id)
    body.__doc__ = group.description
    components.sign(body, parameters, returned)
    made = dsl.pipeline(name=group.id, description=group.description or None)(body)
    return Box(made, inputs, outputs, {key: wiring.static_shape(key, read) for key, read in gives.items()})


def call(builder: Builder, group: graphs.Group, box: Box) -> Any:
    """Call a box inside of kfp's trace; what it gives is known to the builder afterwards."""
    wiring = builder.wiring
    given = {name: wiring.channels[key].value for key, name in box.inputs.items() if key in wiring.channels}
    task = box.component(**given)
    task.set_display_name(group.id)
    for key, name in box.outputs.items():
        wiring.add(key, task.outputs[name], box.shapes[key])
    return task


def _names(keys: list[str]) -> dict[str, str]:
    """Return a short name for each channel, as a person would call it."""
    names: dict[str, str] = {}
    for key in keys:
        kind, _, rest = key.partition(":")
        stem = components.identifier(rest.partition(":{")[0].replace(":", "_") or kind).lower()
        stem = "".join(one if one.isalnum() or one == "_" else "_" for one in stem)[:60]
        name, number = stem, 2
        while name in names.values():
            name, number = f"{stem}_{number}", number + 1
        names[key] = name
    return names


def _type(dsl: Any, shape: shapes.Shape, *, taken: bool) -> Any:
    if shape == components.STATUS:
        return dsl.PipelineTaskFinalStatus
    if shapes.is_artifact(shape):
        kind = getattr(dsl, shape[1])
        return dsl.Input[kind] if taken else kind
    return components.kfp_type(shape)
