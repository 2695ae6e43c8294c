"""What kfp has made of a pipeline, as a file.

kfp's own writer takes most of the time of a compilation, because it writes YAML in plain Python. The same messages are
written here by libyaml, where it is installed; everything unusual is left to kfp.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any


def write(pipeline: Any, path: Path, *, manifest: bool = False) -> None:
    """Write a pipeline of kfp as IR, or as Kubernetes objects for a KFP that keeps its pipelines in the cluster."""
    from google.protobuf import json_format
    from kfp import compiler

    if manifest:
        options = compiler.compiler_utils.KubernetesManifestOptions(pipeline_name=pipeline.name)
        compiler.Compiler().compile(
            pipeline, str(path), kubernetes_manifest_format=True, kubernetes_manifest_options=options
        )
        return
    spec = json_format.MessageToDict(pipeline.pipeline_spec)
    executors = spec.get("deploymentSpec", {}).get("executors", {}).values()
    workspace = any(one.get("importer", {}).get("downloadToWorkspace") for one in executors)  # which kfp checks
    if workspace or path.suffix not in (".yaml", ".yml"):
        compiler.Compiler().compile(pipeline, str(path))
        return
    documents = [spec]
    if pipeline.platform_spec.platforms:
        documents.append(json_format.MessageToDict(pipeline.platform_spec))
    comments = compiler.pipeline_spec_builder.extract_comments_from_pipeline_spec(spec, pipeline.description)
    path.write_text(comments + _yaml(documents))


def _yaml(documents: list[dict[str, Any]]) -> str:
    import yaml

    dumper = getattr(yaml, "CSafeDumper", yaml.SafeDumper)
    return str(yaml.dump_all(documents, Dumper=dumper, sort_keys=True))
