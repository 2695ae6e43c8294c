"""KFP's importer inside of `@tl.pipeline`: an artifact that exists already, taken by its address.

KFP registers it without a pod. Here, on this machine, a local path does the same.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any
from urllib.parse import urlsplit

from trainlet import locations, tracing
from trainlet.core import artifacts
from trainlet.core.errors import UserError
from trainlet.core.models import canonical_json, sha256_hex
from trainlet.futures import Future
from trainlet.kubeflow import NativeStep


@dataclass(frozen=True)
class Import:
    """One way to import: everything but the address. It is called inside of kfp's trace like a component."""

    kind: Any
    reimport: bool
    metadata: str
    component_spec: Any = field(compare=False)

    def __call__(self, artifact_uri: Any) -> Any:
        """Add kfp's importer and return its task."""
        from kfp import dsl

        metadata = json.loads(self.metadata)
        return dsl.importer(artifact_uri, self.kind, reimport=self.reimport, metadata=metadata or None)


class Importer:
    """What `tl.from_kfp(dsl.importer)` is."""

    def __call__(
        self,
        artifact_uri: Any,
        artifact_class: Any = artifacts.Dataset,
        reimport: bool = False,
        metadata: Mapping[str, Any] | None = None,
    ) -> Any:
        """Record an import and return the future of the artifact. `artifact_class` is one of trainlet's or of kfp's."""
        from kfp import dsl

        at = locations.caller()
        if not isinstance(artifact_uri, str | Future):
            raise UserError(f"{at}: artifact_uri={artifact_uri!r} is no address; write a text such as 's3://...'.")
        kind = artifact_class
        if isinstance(kind, type) and issubclass(kind, artifacts.Artifact):
            kind = getattr(dsl, kind.__name__ if kind.__name__ in artifacts.KINDS else "Artifact")
        if not hasattr(kind, "schema_title"):
            raise UserError(f"{at}: artifact_class={artifact_class!r} is no artifact, such as tl.Dataset or dsl.Model.")
        if not tracing.is_plain_json(dict(metadata or {})):
            raise UserError(f"{at}: metadata= of an importer holds JSON values only, and no results of steps.")
        text = canonical_json(dict(metadata or {})).decode()
        spec = SimpleNamespace(
            name="importer",
            inputs={"artifact_uri": SimpleNamespace(type="String", optional=False)},
            outputs={"artifact": SimpleNamespace(type=f"{kind.schema_title}@{kind.schema_version}")},
        )
        return ImportStep(Import(kind, bool(reimport), text, spec))(artifact_uri=artifact_uri)


class ImportStep(NativeStep):
    """An import in the place of a step."""

    def __init__(self, component: Import) -> None:
        super().__init__(component)
        described = [component.kind.schema_title, component.reimport, component.metadata]
        self._digest = sha256_hex(canonical_json(described))
        self.name = f"kfp-importer-{self._digest[:8]}"

    def same_as(self, other: Any) -> bool:
        """Say whether the other imports in the same way."""
        return isinstance(other, ImportStep) and other.component == self.component

    def spec(self) -> Any:
        """Return something that has a digest."""
        return SimpleNamespace(digest=lambda: self._digest)

    @property
    def _function(self) -> Any:
        kind = artifacts.KINDS.get(self.component.kind.__name__, artifacts.Artifact)
        metadata = json.loads(self.component.metadata)

        def imported(artifact_uri: str) -> artifacts.Artifact:
            parts = urlsplit(artifact_uri)
            if parts.scheme not in ("", "file"):
                raise UserError(
                    f"{artifact_uri!r} is imported by Kubeflow Pipelines only. Use .submit(...), or a local path here."
                )
            return kind.from_path(parts.path, **metadata)

        return imported
