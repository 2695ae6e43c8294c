"""Rendering kustomizations: the few features that trainlet's own files use, so that `trainlet install` and
`kubectl apply -k` read the same source.

Known are `resources`, `configMapGenerator` with files, `generatorOptions`, `namespace`, `images` and strategic-merge
`patches`. A field that is not known is an error, never left out silently. This module must not know what it renders.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from trainlet.core.errors import PlatformError

Object = dict[str, Any]
_FIELDS = frozenset(
    {
        "apiVersion", "kind", "resources", "configMapGenerator", "generatorOptions", "namespace", "images", "patches",
    }
)  # fmt: skip
_OF_CLUSTER = frozenset({"Namespace", "ClusterRole", "ClusterRoleBinding"})
_KEYS = ("name", "mountPath", "topologyKey", "containerPort")  # by which the elements of a list are the same


@dataclass(frozen=True)
class Changes:
    """What an overlay of one's own would change: contents of generated files, images by name, the namespace."""

    files: Mapping[str, str] = field(default_factory=dict)
    images: Mapping[str, str] = field(default_factory=dict)
    namespace: str | None = None


def render(folder: Path, changes: Changes | None = None) -> list[Object]:
    """Return the objects of a kustomization, with changes as an overlay on top of it would make them."""
    changes = changes or Changes()
    found = _render(folder, changes)
    if changes.namespace is not None:
        found = [_moved(one, changes.namespace) for one in found]
    for one in found:
        _set_images(one, changes.images)
    return found


def _render(folder: Path, changes: Changes) -> list[Object]:
    import yaml

    kustomization = yaml.safe_load((folder / "kustomization.yaml").read_text())
    unknown = sorted(set(kustomization) - _FIELDS)
    if unknown:
        raise PlatformError(f"{folder}/kustomization.yaml uses {', '.join(unknown)}, which trainlet does not render.")
    found: list[Object] = []
    for name in kustomization.get("resources", []):
        path = folder / name
        found += _render(path, changes) if path.is_dir() else list(yaml.safe_load_all(path.read_text()))
    options = kustomization.get("generatorOptions", {})
    found += [_config_map(folder, one, options, changes) for one in kustomization.get("configMapGenerator", [])]
    for patch in kustomization.get("patches", []):
        for change in yaml.safe_load_all((folder / patch["path"]).read_text()):
            (target,) = (one for one in found if _identity(one) == _identity(change))
            merge(target, change)
    if "namespace" in kustomization:
        found = [_moved(one, kustomization["namespace"]) for one in found]
    for image in kustomization.get("images", []):
        tag = f":{image['newTag']}" if "newTag" in image else ""
        for one in found:
            _set_images(one, {image["name"]: image.get("newName", image["name"]) + tag})
    return found


def merge(target: Object, patch: Object) -> None:
    """Merge a patch into an object: mappings by key, lists of named things by name, None removes."""
    for key, value in patch.items():
        if value is None:
            target.pop(key, None)
        elif isinstance(value, dict) and isinstance(target.get(key), dict):
            merge(target[key], value)
        elif isinstance(value, list) and isinstance(target.get(key), list) and _named_by(value):
            _merge_list(target[key], value, _named_by(value))
        else:
            target[key] = _without_nulls(value)


def _merge_list(target: list[Any], patch: list[Any], name: str) -> None:
    for element in patch:
        same = next((one for one in target if one.get(name) == element[name]), None)
        if same is None:
            target.append(_without_nulls(element))
        else:
            merge(same, element)


def _named_by(elements: list[Any]) -> str:
    """Return the key by which all elements are told apart, or nothing."""
    return next((key for key in _KEYS if all(isinstance(one, dict) and key in one for one in elements)), "")


def _without_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_nulls(one) for key, one in value.items() if one is not None}
    return copy.deepcopy(value)


def _config_map(folder: Path, generator: Object, options: Object, changes: Changes) -> Object:
    data = {Path(name).name: (folder / name).read_text() for name in generator["files"]}
    metadata: Object = {"name": generator["name"]}
    if "namespace" in generator:
        metadata["namespace"] = generator["namespace"]
    if "labels" in options:
        metadata["labels"] = dict(options["labels"])
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {**data, **changes.files}}


def _moved(one: Object, namespace: str) -> Object:
    moved = copy.deepcopy(one)
    if one["kind"] == "Namespace":
        moved["metadata"]["name"] = namespace
    elif one["kind"] not in _OF_CLUSTER:
        moved["metadata"]["namespace"] = namespace
    return moved


def _set_images(value: Any, images: Mapping[str, str]) -> None:
    if isinstance(value, list):
        for one in value:
            _set_images(one, images)
    elif isinstance(value, dict):
        for container in value.get("containers") or []:
            if isinstance(container, dict) and container.get("image") in images:
                container["image"] = images[container["image"]]
        for one in value.values():
            _set_images(one, images)


def _identity(one: Object) -> tuple[str, str, str | None, str]:
    metadata = one["metadata"]
    return one["apiVersion"], one["kind"], metadata.get("namespace"), metadata["name"]
