"""The catalogue of GPUs: which SKUs exist, what people call them, and how `gpu=` is read.

A SKU is a billable kind of device: a whole GPU (`A100-80GB`) or a MIG slice (`H100-80GB/1g.10gb`). Price lists, device
inventories and node labels use the SKU, never an alias. The catalogue must not know prices.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from trainlet.core.durations import nearest
from trainlet.core.errors import UserError
from trainlet.core.specs import GpuRequest, Resources
from trainlet.core.wire import Device

_GIB = 1024**3


@dataclass(frozen=True, slots=True)
class GpuModel:
    """One kind of GPU. `aliases` are matched without case; `slices` are the MIG profiles it can be cut into."""

    sku: str
    memory_bytes: int
    aliases: tuple[str, ...] = ()
    slices: tuple[str, ...] = ()


def _model(sku: str, gib: int, aliases: str = "", slices: str = "") -> GpuModel:
    return GpuModel(sku, gib * _GIB, tuple(aliases.split()), tuple(slices.split()))


# MIG profiles: NVIDIA MIG User Guide, "Supported MIG Profiles".
CATALOGUE: tuple[GpuModel, ...] = (
    _model("T4", 16, "Tesla-T4"),
    _model("V100-16GB", 16, "V100"),
    _model("V100-32GB", 32),
    _model("P100", 16),
    _model("L4", 24),
    _model("A10", 24, "A10G"),
    _model("A30", 24, "", "1g.6gb 2g.12gb 4g.24gb"),
    _model("A40", 48),
    _model("L40", 48),
    _model("L40S", 48),
    _model("RTX-4090", 24, "RTX4090 4090"),
    _model("RTX-5090", 32, "RTX5090 5090"),
    _model("RTX-6000-Ada", 48, "RTX6000-Ada RTX-6000"),
    _model("A100-40GB", 40, "A100-40G", "1g.5gb 1g.10gb 2g.10gb 3g.20gb 4g.20gb 7g.40gb"),
    _model("A100-80GB", 80, "A100 A100-80G A100-SXM", "1g.10gb 1g.20gb 2g.20gb 3g.40gb 4g.40gb 7g.80gb"),
    _model("H100-80GB", 80, "H100 H100-80G H100-SXM", "1g.10gb 1g.20gb 2g.20gb 3g.40gb 4g.40gb 7g.80gb"),
    _model("H200-141GB", 141, "H200", "1g.18gb 1g.35gb 2g.35gb 3g.71gb 4g.71gb 7g.141gb"),
    _model("GH200-96GB", 96, "GH200", "1g.12gb 1g.24gb 2g.24gb 3g.48gb 4g.48gb 7g.96gb"),
    _model("B200-180GB", 180, "B200 B200-192GB", "1g.23gb 1g.45gb 2g.45gb 3g.90gb 4g.90gb 7g.180gb"),
    _model("B300-288GB", 288, "B300", "1g.34gb 1g.67gb 2g.67gb 3g.135gb 4g.135gb 7g.269gb"),
)

_BY_NAME: dict[str, GpuModel] = {name.lower(): model for model in CATALOGUE for name in (model.sku, *model.aliases)}
_SPELLING = re.compile(r"(?P<model>[^:/]+?)(?:/(?P<slice>[^:/]+))?(?::(?P<count>[^:/]+))?(?:/(?P<late>[^:/]+))?")


def canonical_sku(name: str) -> str:
    """Return the SKU of a model name or alias, with or without a MIG profile; UserError names the nearest."""
    return parse_gpu(name).sku


def parse_gpu(text: str, what: str = "gpu=") -> GpuRequest:
    """Read one `MODEL[/SLICE][:COUNT]`, such as `"A100:2"` or `"H100/1g.10gb"`."""
    match = _SPELLING.fullmatch(text.strip())
    if match is None:
        raise UserError(f'{what}{text!r} is not a GPU. Write "A100", "A100:2", "A100-80GB" or "H100/1g.10gb".')
    if match["late"] is not None:
        right = f"{match['model']}/{match['slice'] or match['late']}:{match['count']}"
        raise UserError(f'{what}{text!r}: the count comes last. Write "{right}".')
    model = _BY_NAME.get(match["model"].strip().lower().replace("_", "-").replace(" ", "-"))
    if model is None:
        raise UserError(f"{what}{text!r}: {match['model']!r} is not a known GPU. {nearest(match['model'], _names())}")
    sku = model.sku
    if match["slice"] is not None:
        wanted = match["slice"].strip().lower()
        if wanted not in model.slices:
            if not model.slices:
                raise UserError(f"{what}{text!r}: {sku} has no MIG slices. Ask for a whole {sku}.")
            raise UserError(f"{what}{text!r}: {sku} has no slice {wanted!r}. {nearest(wanted, model.slices)}")
        sku = f"{sku}/{wanted}"
    count = match["count"]
    if count is not None and not (count.strip().isascii() and count.strip().isdigit() and 1 <= int(count) <= 1024):
        raise UserError(f'{what}{text!r}: {count!r} is no number of GPUs. Write "{match["model"]}:1" to 1024.')
    return GpuRequest(sku=sku, count=int(count) if count else 1)


def parse_gpus(value: Any, what: str = "gpu=") -> tuple[GpuRequest, ...]:
    """Read what people pass as `gpu=`: None, one spelling, or a sequence of them as an ordered fallback."""
    if value is None:
        return ()
    if isinstance(value, str):
        return (parse_gpu(value, what),)
    if isinstance(value, bool) or not isinstance(value, Sequence):
        raise UserError(f'{what}{value!r} is not a GPU. Write a model and a count, such as "A100:{_count(value)}".')
    requests: list[GpuRequest] = []
    for one in value:
        if not isinstance(one, str):
            raise UserError(f'{what}{value!r}: {one!r} is not a GPU. Write a list such as ["H100:2", "A100:2"].')
        request = parse_gpu(one, what)
        if request in requests:
            raise UserError(f"{what}{value!r} names {request.sku}:{request.count} twice. Remove one of them.")
        requests.append(request)
    if not requests:
        raise UserError(f"{what}{value!r} is an empty list. Name a GPU, or leave the option out for a CPU step.")
    return tuple(requests)


def memory_of(sku: str) -> int | None:
    """Return the memory of a whole GPU in bytes; None for a slice (its name rounds) and for an unknown SKU."""
    model = _BY_NAME.get(sku.lower())
    return None if model is None else model.memory_bytes


def virtual_devices(resources: Resources) -> tuple[Device, ...]:
    """Return virtual devices for the first alternative of a request: what a step gets where nobody hands out real ones."""
    return tuple(
        Device(uuid=f"virtual-{index}", sku=request.sku, index=index, virtual=True)
        for request in resources.gpus[:1]
        for index in range(request.count)
    )


def _count(value: Any) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 1 else 1


def _names() -> list[str]:
    return [name for model in CATALOGUE for name in (model.sku, *model.aliases)]
