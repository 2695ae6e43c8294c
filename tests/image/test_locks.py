"""The locks of the images hold what pyproject.toml asks for, and nothing without a hash.

Whether a lock is what locking again would give needs a registry: `make locks-current` says so.
"""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
EXTRAS = {"dispatch": (), "worker": ("worker",), "api": ("server", "cluster")}


def pins(name: str) -> dict[str, str]:
    """Return the packages of a lock and their versions."""
    text = (ROOT / "image" / "locks" / f"{name}.lock").read_text()
    return {
        canonicalize_name(found): version for found, version in re.findall(r"^([\w.-]+)==(\S+)", text, re.MULTILINE)
    }


def wanted(extras: tuple[str, ...]) -> list[Requirement]:
    """Return what the core and some extras ask for, extras of extras too."""
    lines = [*PROJECT["dependencies"], *(one for name in extras for one in PROJECT["optional-dependencies"][name])]
    found = [Requirement(line) for line in lines]
    nested = tuple(extra for one in found if one.name == PROJECT["name"] for extra in one.extras)
    return [one for one in found if one.name != PROJECT["name"]] + (wanted(nested) if nested else [])


@pytest.mark.parametrize("target", EXTRAS)
def test_a_lock_holds_what_the_project_asks_for(target: str) -> None:
    held = pins(target)
    for one in wanted(EXTRAS[target]):
        assert one.specifier.contains(held[canonicalize_name(one.name)]), f"{one} is not what the lock has: make locks"


@pytest.mark.parametrize("name", [*EXTRAS, "build"])
def test_every_package_of_a_lock_has_a_hash(name: str) -> None:
    text = (ROOT / "image" / "locks" / f"{name}.lock").read_text()
    packages = re.split(r"\n(?=\S)", text.replace("\\\n", ""))
    for package in (one for one in packages if "==" in one):
        assert re.search(r"--hash=sha256:[0-9a-f]{64}", package), package


def test_the_dispatch_image_has_no_server_in_it() -> None:
    assert not {"flask", "sqlalchemy", "kubernetes", "kfp", "psycopg", "cryptography", "cloudevents"} & set(
        pins("dispatch")
    )
    assert not {"flask", "sqlalchemy", "kubernetes", "kfp", "psycopg"} & set(pins("worker"))
