from __future__ import annotations

from trainlet import versions
from trainlet.core.wire import ServiceInfo


def info(python: str = "3.11.9", **packages: str) -> ServiceInfo:
    return ServiceInfo(
        version="0.1.0", protocol=1, project="p", store_url="file:///s", python=python, packages=packages
    )


def test_nothing_is_said_when_all_is_equal() -> None:
    assert versions.differences(["numpy"], {"numpy": "2.0.0"}, "3.11", info(numpy="2.0.0")) == []


def test_another_python_is_said() -> None:
    assert versions.differences([], {}, "3.11", info("3.12.1")) == ["this is Python 3.11, the workers have 3.12.1."]


def test_another_version_of_an_imported_package_is_said() -> None:
    (sentence,) = versions.differences(["numpy"], {"numpy": "2.0.0"}, "3.11", info(numpy="1.26.4", torch="2.0"))
    assert "numpy 2.0.0" in sentence and "1.26.4" in sentence


def test_a_package_that_workers_lack_is_said_with_the_fix() -> None:
    (sentence,) = versions.differences(["torch"], {"torch": "2.4.0"}, "3.11", info(numpy="1.26.4"))
    assert "packages=['torch==2.4.0']" in sentence


def test_packages_are_compared_without_regard_to_case() -> None:
    assert versions.differences(["yaml"], {"PyYAML": "6.0"}, "3.11", info(pyyaml="6.0")) == []
