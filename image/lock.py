"""Write the locks of the images (`make locks`), or say whether they are what pyproject.toml asks for (`--check`).

Each lock names every package by version and by the hashes of its wheels, for every Python that is supported. Versions that
a lock holds stay until they no longer fit, or until `--upgrade`; so a lock is current when locking again changes nothing.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[1]
LOCKS = Path(__file__).parent / "locks"
# What an image has beside the core: extras of pyproject.toml, and packages that are tools there.
EXTRAS: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "dispatch": ((), ()),
    "worker": (("worker",), ("uv",)),  # uv installs the locked packages of a step
    "api": (("server", "cluster", "billing"), ()),  # the CronJob of exports runs in it, too
}


def main() -> int:
    """Lock every image; returns 1 when `--check` found a lock that is not current."""
    parser = argparse.ArgumentParser(prog="image/lock.py", description=__doc__)
    parser.add_argument("--check", action="store_true", help="change nothing; exit 1 when a lock is not current")
    parser.add_argument("--upgrade", action="store_true", help="take the newest versions that are allowed")
    options = parser.parse_args()
    stale = []
    with tempfile.TemporaryDirectory() as folder:
        for name in ("build", *EXTRAS):
            kept = LOCKS / f"{name}.lock"
            made = Path(folder) / kept.name
            if kept.exists() and not options.upgrade:
                made.write_bytes(kept.read_bytes())
            _compile(name, made)
            if kept.exists() and kept.read_bytes() == made.read_bytes():
                continue
            stale.append(kept.name)
            if not options.check:
                kept.write_bytes(made.read_bytes())
    if stale:
        print(f"{', '.join(stale)}: " + ("not current; run `make locks`" if options.check else "written"))
    return 1 if stale and options.check else 0


def _compile(name: str, output: Path) -> None:
    uv = Path(sys.executable).parent / "uv"
    command = [str(uv), "pip", "compile", "--quiet", "--universal", "--generate-hashes", "--python-version", "3.11"]
    command += ["--no-build", "--custom-compile-command", "make locks", "--no-annotate", "--output-file", str(output)]
    if name == "build":
        wanted = tomllib.loads((ROOT / "pyproject.toml").read_text())["build-system"]["requires"]
        command += ["-"]
    else:
        extras, wanted = EXTRAS[name]
        command += [part for extra in extras for part in ("--extra", extra)] + ["pyproject.toml"]
        command += ["-"] if wanted else []
    subprocess.run(command, cwd=ROOT, input="\n".join(wanted), text=True, check=True)


if __name__ == "__main__":
    sys.exit(main())
