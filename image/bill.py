"""Print an image's bill of materials: CycloneDX 1.5 JSON of its Python distributions and its base's Debian packages.

`bill.py TARGET FOLDER...`: run in the build, with nothing but the standard library, over the folders that hold the
distributions. The same image gives the same bytes: there is no time and no random number in it.
"""

from __future__ import annotations

import hashlib
import json
import sys
import uuid
from collections.abc import Iterable, Iterator
from importlib.metadata import Distribution, distributions
from pathlib import Path
from typing import Any
from urllib.parse import quote

SUBJECT = "trainlet"
DPKG = Path("/var/lib/dpkg/status")
OS_RELEASE = Path("/etc/os-release")


def bill(target: str, folders: Iterable[str]) -> dict[str, Any]:
    """Return the bill of an image."""
    found = {_name(one): one for one in distributions(path=list(folders))}
    subject = found.pop(SUBJECT)
    parts = [python_component(found[name]) for name in sorted(found)]
    if DPKG.exists():
        parts += debian_components(DPKG.read_text(errors="replace"), _release())
    digest = hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).digest()
    return {
        "$schema": "http://cyclonedx.org/schema/bom-1.5.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "serialNumber": f"urn:uuid:{uuid.UUID(bytes=digest[:16], version=4)}",
        "version": 1,
        "metadata": {
            "component": {
                **python_component(subject),
                "type": "container",
                "name": f"{SUBJECT}-{target}",
                "bom-ref": f"{SUBJECT}-{target}",
            }
        },
        "components": parts,
    }


def python_component(found: Distribution) -> dict[str, Any]:
    """Describe an installed distribution."""
    name, version = _name(found), found.version
    url = f"pkg:pypi/{quote(name)}@{quote(version)}"
    part: dict[str, Any] = {"type": "library", "bom-ref": url, "name": name, "version": version, "purl": url}
    expression, words = found.metadata.get("License-Expression"), found.metadata.get("License")
    if expression:
        part["licenses"] = [{"expression": expression}]
    elif words and "\n" not in words:
        part["licenses"] = [{"license": {"name": words}}]
    else:
        classes = [one for one in found.metadata.get_all("Classifier") or () if one.startswith("License :: ")]
        part |= {"licenses": [{"license": {"name": one.rsplit(" :: ", 1)[1]}} for one in classes]} if classes else {}
    return part


def debian_components(status: str, release: dict[str, str]) -> Iterator[dict[str, Any]]:
    """Describe what dpkg says is installed."""
    vendor, version_id = release.get("ID", "debian"), release.get("VERSION_ID", "")
    for paragraph in status.split("\n\n"):
        fields = dict(line.split(": ", 1) for line in paragraph.splitlines() if ": " in line and line[0] != " ")
        if not fields.get("Status", "").endswith(" installed"):
            continue
        name, version, machine = fields["Package"], fields["Version"], fields["Architecture"]
        url = f"pkg:deb/{vendor}/{quote(name)}@{quote(version)}?arch={machine}&distro={vendor}-{version_id}"
        yield {"type": "library", "bom-ref": url, "name": name, "version": version, "purl": url}


def _name(found: Distribution) -> str:
    return str(found.metadata["Name"]).lower().replace("_", "-").replace(".", "-")


def _release() -> dict[str, str]:
    lines = OS_RELEASE.read_text().splitlines() if OS_RELEASE.exists() else []
    pairs = [line.split("=", 1) for line in lines if "=" in line]
    return {name: value.strip('"') for name, value in pairs}


if __name__ == "__main__":
    json.dump(bill(sys.argv[1], sys.argv[2:]), sys.stdout, indent=1, sort_keys=True)
