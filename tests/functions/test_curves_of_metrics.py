"""The page of a task's metrics is whole HTML that cannot be broken by a metric's name, and needs nothing from outside."""

from __future__ import annotations

from xml.etree import ElementTree

from trainlet_functions import curves


def drawn(points: dict[str, list[tuple[float, float]]]) -> ElementTree.Element:
    """Parse what follows the head, which XML does not know."""
    page = curves.page("train", points)
    assert "http" not in page and "<script" not in page
    return ElementTree.fromstring(f"<all>{page.partition('</style>')[2]}</all>")


def test_each_metric_has_a_chart_with_its_last_value_and_the_ends_of_both_axes() -> None:
    page = drawn({"loss": [(0, 1.0), (60, 0.5), (7200, 0.25)], "accuracy": [(0, 0.9)], "none": []})
    figures = page.findall("figure")
    assert ["".join(one.find("figcaption").itertext()) for one in figures] == [  # type: ignore[union-attr]
        "loss: 0.25 (least 0.25, most 1)",
        "accuracy: 0.9 (least 0.9, most 0.9)",
    ]
    labels = [one.text for one in figures[0].iter("text")]
    assert labels == ["0.25", "0.625", "1", "0 s", "2.0 h"]
    places = figures[0].find("svg/polyline").attrib["points"].split()  # type: ignore[union-attr]
    assert places[0] == "64.0,10.0" and places[-1] == "448.0,174.0"


def test_the_name_of_a_metric_breaks_nothing() -> None:
    page = drawn({'<b>"&': [(0, 1.0), (1, 2.0)]})
    assert "".join(page.find("figure/figcaption").itertext()).startswith('<b>"&: 2')  # type: ignore[union-attr]


def test_a_step_without_metrics_says_how_to_get_them() -> None:
    assert "ctx.metrics(step, loss=...)" in curves.page("train", {})
