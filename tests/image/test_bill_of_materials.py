"""An image's bill of materials is valid CycloneDX, complete, and the same for the same image."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import Any

from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator

ROOT = Path(__file__).parents[2]


def made() -> str:
    """Return the bill of this environment."""
    command = [sys.executable, str(ROOT / "image" / "bill.py"), "worker", sysconfig.get_paths()["purelib"]]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def named(bill: dict[str, Any], kind: str) -> dict[str, str]:
    """Return the packages of a kind (pypi, deb) in a bill, and their versions."""
    parts = [one for one in bill["components"] if one["purl"].startswith(f"pkg:{kind}/")]
    return {one["name"]: one["version"] for one in parts}


def test_the_bill_is_valid_and_always_the_same() -> None:
    text = made()
    assert JsonStrictValidator(SchemaVersion.V1_5).validate_str(text) is None
    assert made() == text


def test_the_bill_names_what_is_installed() -> None:
    import httpx

    bill = json.loads(made())
    assert named(bill, "pypi")["httpx"] == httpx.__version__
    assert bill["metadata"]["component"]["name"] == "trainlet-worker"
    assert "trainlet" not in named(bill, "pypi")


def test_the_bills_of_the_images_name_all_of_their_locks(images: Any) -> None:
    for target in ("dispatch", "worker", "api"):
        text = (images.files(target) / "opt/trainlet/code/sbom.cdx.json").read_text()
        assert JsonStrictValidator(SchemaVersion.V1_5).validate_str(text) is None
        lock = (ROOT / "image" / "locks" / f"{target}.lock").read_text()
        pinned = re.findall(r"^([\w.-]+)==(\S+) *(?:;(.*))?\\$", lock, re.MULTILINE)
        here = {name.lower(): version for name, version, marker in pinned if applies(marker)}
        assert named(json.loads(text), "pypi") == here
        assert "libc6" in named(json.loads(text), "deb")


def applies(marker: str) -> bool:
    """Say whether a marker holds in the image."""
    from packaging.markers import Marker

    return not marker.strip() or Marker(marker.strip()).evaluate({"python_version": "3.11", "sys_platform": "linux"})
