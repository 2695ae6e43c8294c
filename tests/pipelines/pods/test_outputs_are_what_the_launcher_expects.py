"""Files, metadata and types of what a task hands back."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import trainlet as tl
from trainlet.core import codecs
from trainlet.core.errors import UserError
from trainlet_pipelines.pods import inputs, orders, outputs


def executor(root: Path, artifacts: tuple[str, ...] = (), parameters: tuple[str, ...] = ("output",)) -> Any:
    return inputs.ExecutorInput.model_validate(
        {
            "inputs": {},
            "outputs": {
                "parameters": {name: {"outputFile": str(root / name)} for name in parameters},
                "artifacts": {
                    name: {"artifacts": [{"name": name, "uri": str(root / "task" / "uuid" / name)}]}
                    for name in artifacts
                },
                "outputFile": str(root / "out" / "executor.json"),
            },
        }
    )


def write(root: Path, store: Any, value: Any, **exports: orders.Export) -> dict[str, Any]:
    order = orders.Order(outputs=exports)
    files = tuple(name for name, one in exports.items() if ":" in one.kind or one.kind == "metrics")
    written = outputs.Outputs(executor(root, files, tuple(exports)), order, store)
    written.result(codecs.encode(value, store))
    written.close()
    found: dict[str, Any] = json.loads((root / "out" / "executor.json").read_text())
    return found


def test_a_long_result_goes_to_the_store_and_comes_back(tmp_path: Path, store: Any) -> None:
    value = list(range(10_000))
    write(tmp_path, store, value, output=orders.Export())
    text = (tmp_path / "output").read_text()
    assert len(text) < 10_000, "KFP refuses longer parameters"
    assert codecs.decode(json.loads(text), store) == value


@pytest.mark.parametrize(
    ("value", "kind", "text"),
    [(2.0, "float", "2.0"), (3, "int", "3"), (True, "bool", "true"), ("a b", "str", "a b"), ([1], "list", "[1]")],
)
def test_a_typed_output_is_written_as_kfp_reads_that_type(
    value: Any, kind: str, text: str, tmp_path: Path, store: Any
) -> None:
    write(tmp_path, store, value, output=orders.Export(kind=kind))
    assert (tmp_path / "output").read_text() == text


@pytest.mark.parametrize(("value", "kind"), [(float("nan"), "float"), (1.5, "int"), (None, "str"), (1, "bool")])
def test_a_typed_output_of_another_kind_is_refused(value: Any, kind: str, tmp_path: Path, store: Any) -> None:
    with pytest.raises(UserError, match="cannot pass on as"):
        write(tmp_path, store, value, output=orders.Export(kind=kind))


def test_a_file_has_its_content_and_a_reference_has_none(tmp_path: Path, store: Any) -> None:
    model = tl.Model(accuracy=0.5)
    (model.path / "w.txt").write_text("weights")
    told = write(
        tmp_path, store, model, file=orders.Export(kind="file:Model"), ref=orders.Export(kind="reference:Model")
    )
    place = tmp_path / "task" / "uuid"
    assert (place / "file" / "w.txt").read_text() == "weights"
    assert (place / "ref").stat().st_size < 500
    metadata = told["artifacts"]["ref"]["artifacts"][0]["metadata"]
    assert metadata["accuracy"] == 0.5 and metadata["size_bytes"] == 7
    back = codecs.decode(json.loads(metadata[inputs.REFERENCE]), store, workdir=tmp_path / "work")
    assert (back.path / "w.txt").read_text() == "weights"


def test_a_reference_is_taken_without_reading_its_file(tmp_path: Path, store: Any) -> None:
    model = tl.Model(accuracy=0.5)
    told = write(tmp_path, store, model, ref=orders.Export(kind="reference:Model"))
    file = told["artifacts"]["ref"]["artifacts"][0] | {"uri": "s3://bucket/not/there"}
    given = inputs.ExecutorInput.model_validate(
        {"inputs": {"artifacts": {"model": {"artifacts": [file]}}}, "outputs": {"outputFile": "o"}}
    )
    order = orders.Order(ports={"model": ["artifact", "Model"]})
    found = inputs.Inputs(given, order, store, tmp_path / "work").arguments()
    assert codecs.decode(found["model"], store).metadata == {"accuracy": 0.5}


@pytest.mark.parametrize(
    ("uri", "path"),
    [
        ("minio://mlpipeline/v2/a/b", "/minio/mlpipeline/v2/a/b"),
        ("s3://bucket/a", "/s3/bucket/a"),
        ("gs://bucket/a", "/gcs/bucket/a"),
        ("/tmp/x", "/tmp/x"),
    ],
)
def test_an_artifact_is_where_the_launcher_puts_it(uri: str, path: str) -> None:
    assert str(inputs.File(uri=uri).path) == path


def test_the_task_root_is_that_of_any_output(tmp_path: Path) -> None:
    given = executor(tmp_path, ("metrics", "report"))
    assert given.task_root() is not None and given.task_root().parts[-2:] == ("task", "uuid")
    assert executor(tmp_path).task_root() is None


def test_metrics_that_are_not_finite_become_text(tmp_path: Path, store: Any) -> None:
    order = orders.Order(outputs={"metrics": orders.Export(kind="metrics")})
    written = outputs.Outputs(executor(tmp_path, ("metrics",)), order, store)
    written.metrics({"loss": float("nan"), "accuracy": 0.5})
    written.close()
    told = json.loads((tmp_path / "out" / "executor.json").read_text())
    assert told["artifacts"]["metrics"]["artifacts"][0]["metadata"] == {"loss": "nan", "accuracy": 0.5}
