"""One pipeline for each construct, as a user would write it; `ALL` names those with golden files, the rest are walked."""

from dataclasses import dataclass

from kfp import dsl

import trainlet as tl


@dataclass
class Score:
    loss: float
    labels: list[str]


@dsl.component(base_image="python:3.11", install_kfp_package=False)
def count_rows(text: str, least: int = 1) -> int:
    return max(least, len(text.splitlines()))


@dsl.component(base_image="python:3.11", install_kfp_package=False)
def halve(value: float) -> float:
    return value / 2


@dsl.pipeline(name="twice")
def twice(value: float) -> float:
    return halve(value=halve(value=value).output).output


@dsl.component(base_image="python:3.11", install_kfp_package=False)
def measure(data: dsl.Input[dsl.Dataset], copy: dsl.Output[dsl.Dataset]):
    from pathlib import Path

    rows = len(Path(data.path, "x.txt").read_text())
    Path(copy.path).write_text(f"written by kfp: {rows}")
    copy.metadata["rows"] = rows


@dsl.container_component
def scan(data: dsl.Input[dsl.Dataset], found: dsl.OutputPath(int), cleaned: dsl.Output[dsl.Dataset]):
    return dsl.ContainerSpec(image="alpine", command=["scan"], args=[data.path, found, cleaned.path])


@tl.step
def prepare(seed: int = 7, name: str = "x") -> tl.Dataset:
    """Make some data.

    More about it.
    """
    data = tl.Dataset(seed=seed)
    (data.path / "x.txt").write_text(name)
    return data


@tl.step(gpu=["H100:2", "A100:2"], retries=2, checkpoint=tl.Checkpoint(every="1m"), timeout="2h", secrets=["hub-token"])
def train(data: tl.Dataset, lr: float, layers: list[int] | None = None, *, ctx: tl.Context = tl.INJECTED) -> tl.Model:
    """Train a model."""
    return tl.Model(lr=lr)


@tl.step(cpu=2, memory="4Gi", retries=tl.Retries(3, delay="5s"), timeout="10m", secrets=["hub-token"], image="me/cpu:1")
def evaluate(model: tl.Model, options: dict | None = None) -> Score:
    return Score(0.25, ["a"])


@tl.step
def add(left: float, right: float = 1.0) -> float:
    return left + right


@tl.step
def numbers(count: int) -> list[int]:
    return list(range(count))


@tl.step
def total(values: list) -> float:
    return float(sum(values))


@tl.step
def tell(status: dict, channel: str = "#runs") -> None:
    print(status)


@tl.step
def read(data: tl.Dataset) -> str:
    return data.path.read_text()


@tl.step
def describe(value: object) -> str:
    return str(value)


@tl.pipeline
def plain(lr: float = 2.0, layers: list[int] | None = None, options: dict = {"deep": [1, 2]}, seed: int = 1) -> Score:  # noqa: B006
    """Prepare, train, evaluate.

    Only the first paragraph is shown.
    """
    return evaluate(train(prepare(seed), lr, layers), options)


@tl.pipeline
def constants() -> str:
    add(2.0, right=3)
    prepare(name="{{workflow.name}} {{$.inputs}}")
    return describe([1, 2.0, {"a": None}, "text"])


@tl.pipeline
def branches(lr: float = 0.5, deep: bool = False) -> None:
    score = add(lr)
    with tl.when(score > 0.9):
        describe("good")
    with tl.when(~(score > 0.9)):
        describe("bad")
    with tl.when(lr < 0.1):
        describe("slow")
    with tl.when(deep), tl.when(score <= lr):
        describe("deep")


@tl.pipeline
def loops(count: int = 3, rates: list[float] = [0.1, 2.0]) -> float:  # noqa: B006
    sums = tl.each(numbers(count), add, max_parallel=2)
    tl.each(rates, lambda rate: describe(rate))
    pairs = tl.each(["a", "b"], lambda item: {"name": item, "text": describe(item)})
    describe(pairs)
    grid = tl.each([1, 2], lambda one: tl.each([3, 4], lambda two: add(one, two)))
    describe(grid)
    return total(sums)


@tl.pipeline
def ends(lr: float = 0.5) -> float:
    with tl.on_exit():
        tell(tl.run_status())
    return add(lr)


@tl.pipeline
def ends_with_several(who: str = "me") -> float:
    with tl.on_exit():
        status = tl.run_status()
        tell(status, who)
        with tl.when(status["state"] == "failed"):
            describe(tl.future(describe(status["state"])))
    return add(1.0)


@tl.pipeline
def inner(value: float) -> float:
    """Add a lot."""
    return add(add(value), 10.0)


@tl.pipeline
def nested(value: float = 1.0) -> float:
    first = inner(value)
    second = inner(first)
    return tl.future(add(second, first)).after(describe("before"))


@tl.pipeline
def fan(values: list, data: tl.Dataset) -> dict:
    sums = tl.each(values, inner)
    with tl.when(total(sums) > 3.0):
        describe(sums)
    return {"sums": sums, "rows": tl.from_kfp(measure)(data=data)}


@tl.pipeline
def boxes(rates: list[float] = [0.1, 2.0], uri: str = "/data") -> str:  # noqa: B006
    data = tl.from_kfp(dsl.importer)(artifact_uri=uri, artifact_class=dsl.Dataset, metadata={"from": "here"})
    found = fan(rates, data)
    read(found["rows"])
    tl.from_kfp(twice)(value=total(found["sums"]))
    return describe(found["sums"])


@tl.pipeline
def natives(text: str = "a", limit: int = 1) -> str:
    rows = tl.from_kfp(count_rows)(text=text, least=limit)
    half = tl.from_kfp(halve)(value=add(1.0))
    looked = tl.from_kfp(scan)(data=prepare())
    scanned = tl.from_kfp(scan)(data=looked["cleaned"])
    model = train(scanned["cleaned"], half)
    score = evaluate(model)
    again = tl.from_kfp(halve)(value=score.loss)
    with tl.when(looked["found"] > 3):
        describe([rows, again])
    return describe(rows)


ALL = (plain, constants, branches, loops, ends, ends_with_several, nested, boxes, natives)


@tl.step
def listed(a: float, b: int, c: list[int], d: dict[str, float], e: int | None, f: bool) -> str:
    return str([a, b, c, d, e, f])


@tl.pipeline
def kinds(
    lr: float = 2.0,
    epochs: int = 3,
    layers: list[int] = [1],  # noqa: B006
    scale: dict[str, float] = {"a": 1.0},  # noqa: B006
    none: int | None = None,
    flag: bool = True,
) -> str:
    return describe(listed(lr, epochs, layers, scale, none, flag))


@tl.pipeline
def quotes() -> str:
    return describe(describe({"a": "{{$}} {{workflow.name}} $(x) '\"", "b": "\n"}))


@tl.step
def divide(left: float) -> float:
    return left / 0


@tl.pipeline
def ends_badly() -> float:
    with tl.on_exit():
        tell(tl.run_status())
    return divide(1.0)


@tl.pipeline
def several_badly() -> float:
    with tl.on_exit():
        describe(tl.run_status()["state"])
        tell(tl.run_status())
    return divide(1.0)


@tl.pipeline
def mixed(text: str = "a") -> str:
    rows = tl.from_kfp(count_rows)(text=text)
    half = tl.from_kfp(halve)(value=rows)
    copied = tl.from_kfp(measure)(data=prepare(name="123456789"))
    return describe([rows, half, read(copied)])
