"""Every construct compiles to the IR that was looked at once, and kfp takes it back.

`TRAINLET_UPDATE_GOLDEN=1` writes the files anew; look at the difference before it is committed.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from kfp import components
from kfp.pipeline_spec import pipeline_spec_pb2

from .conftest import TARGET, normal

GOLDEN = Path(__file__).parent / "golden"
NAMES = ("plain", "constants", "branches", "loops", "ends", "ends_with_several", "nested", "boxes", "natives")


@pytest.mark.parametrize("name", NAMES)
def test_a_construct_compiles_to_its_golden_ir(name: str, constructs: Any, tmp_path: Path) -> None:
    path = getattr(constructs, name).compile(tmp_path / f"{name}.yaml", TARGET)
    found, golden = normal(path.read_text()), GOLDEN / f"{name}.yaml"
    if os.environ.get("TRAINLET_UPDATE_GOLDEN"):
        golden.write_text(found)
    assert found == golden.read_text()


@pytest.mark.parametrize("name", NAMES)
def test_kfp_loads_what_was_compiled(name: str, constructs: Any, tmp_path: Path) -> None:
    path = getattr(constructs, name).compile(tmp_path / f"{name}.yaml", TARGET)
    loaded = components.load_component_from_file(str(path))
    assert isinstance(loaded.pipeline_spec, pipeline_spec_pb2.PipelineSpec)
    assert loaded.pipeline_spec.pipeline_info.name == name.replace("_", "-")
    assert set(loaded.component_spec.inputs or {}) == set(getattr(constructs, name).signature.parameters)


def test_every_construct_has_a_golden_file(constructs: Any) -> None:
    assert {pipeline.name.replace("-", "_") for pipeline in constructs.ALL} == set(NAMES)
    assert {path.stem for path in GOLDEN.glob("*.yaml")} == set(NAMES)
