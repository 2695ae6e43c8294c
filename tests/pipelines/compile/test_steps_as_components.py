"""A trainlet step inside of somebody's own `@dsl.pipeline`; kfp reads no annotations that are strings."""

import contextlib
import sys
from pathlib import Path
from typing import Any

import yaml
from kfp import compiler, dsl

from trainlet.client.stores import DirectoryStore
from trainlet.core import bundles

from .conftest import HERE, TARGET

sys.path.insert(0, str(HERE.parents[1] / "kubeflow"))
from kfp_launcher import Launcher


def compiled(pipeline: Any, path: Path) -> dict[str, Any]:
    compiler.Compiler().compile(pipeline, str(path))
    found: dict[str, Any] = next(yaml.safe_load_all(path.read_text()))
    return found


def test_a_gpu_step_takes_what_kfp_says_about_placement(constructs: Any, tmp_path: Path) -> None:
    train, prepare = constructs.train.as_component(TARGET), constructs.prepare.as_component(TARGET)

    @dsl.pipeline
    def own(lr: float = 0.1):
        data = prepare(seed=3)
        train(data=data.outputs["output"], lr=lr).set_accelerator_type("nvidia.com/gpu").set_accelerator_limit(2)

    ir = compiled(own, tmp_path / "own.yaml")
    component = ir["components"]["comp-train"]
    assert set(component["inputDefinitions"]["parameters"]) == {"lr", "layers", "task_config"}
    assert component["outputDefinitions"]["artifacts"]["output"]["artifactType"]["schemaTitle"] == "system.Model"
    assert {one["field"] for one in component["taskConfigPassthroughs"]} >= {"RESOURCES", "KUBERNETES_TOLERATIONS"}
    container = ir["deploymentSpec"]["executors"]["exec-train"]["container"]
    assert container["resources"]["accelerator"]["resourceCount"] == "2"
    assert container["env"] == [{"name": "TRAINLET_API", "value": TARGET["api"]}]


def test_its_defaults_and_descriptions_are_shown_by_kfp(constructs: Any, tmp_path: Path) -> None:
    prepare = constructs.prepare.as_component(TARGET)

    @dsl.pipeline
    def own():
        prepare()

    known = compiled(own, tmp_path / "own.yaml")["components"]["comp-prepare"]["inputDefinitions"]["parameters"]
    assert known["seed"] == {"parameterType": "NUMBER_INTEGER", "defaultValue": 7.0, "isOptional": True}
    assert prepare.description == "Make some data."


def test_values_and_files_flow_between_steps_and_native_components(constructs: Any, tmp_path: Path) -> None:
    steps = [constructs.prepare, constructs.read, constructs.add]
    prepare, read, add = (step.as_component({"token_secret": None}) for step in steps)

    @dsl.pipeline
    def own():
        text = read(data=constructs.measure(data=prepare(name="12345").outputs["output"]).outputs["copy"])
        rows = constructs.count_rows(text=text.outputs["output"])
        half = constructs.halve(value=add(left=2.0).outputs["output"])
        add(left=half.output).set_display_name(f"{rows.name}")

    store = DirectoryStore(tmp_path / "store")
    for step in steps:
        with contextlib.suppress(FileExistsError):
            store.create(bundles.bundle_key(step.bundle().digest), step.bundle().data)
    compiled(own, tmp_path / "own.yaml")
    environment = {
        "TRAINLET_STORE": store.url,
        "TRAINLET_HOME": str(tmp_path / "pod"),
        "PATH": f"{Path(sys.executable).parent}:/usr/bin:/bin",
    }
    launcher = Launcher(tmp_path / "own.yaml", tmp_path / "root", environment)
    launcher.run()
    assert launcher.outputs["read"]["output"] == "written by kfp: 5"
    assert launcher.outputs["add-2"]["output"] == 1.5 + 1.0
