"""`trainlet doctor`: looks at what a run needs and says, for each, what it saw and what to do."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import secrets
import shutil
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

import click

from trainlet.cli import output, storage
from trainlet.core import durations, wire
from trainlet.core.errors import TrainletError, UserError
from trainlet.core.protocols import ObjectStore
from trainlet.core.settings import Settings

LOW_DISK_BYTES = 2 * 1024**3


@dataclass(frozen=True)
class Finding:
    """One check: what was looked at, how it is, what was seen, what to do, why it matters."""

    check: str
    state: Literal["ok", "warn", "bad"]
    saw: str
    fix: str = ""
    why: str = ""


@click.command()
@click.option("--cluster", "of_cluster", is_flag=True, help="Check the cluster that kubectl talks to instead.")
@click.option(
    "--settings",
    "cluster_file",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Its settings, for --cluster (default: cluster.yaml).",
)
@click.option("--project", "projects", multiple=True, help="A project to look at, for --cluster.")
@click.option("--store", "store_url", metavar="URL", help="Check a store instead: a folder, or s3://bucket/prefix.")
@click.option("--grace", metavar="TIME", default="30s", help="What a stop leaves, for --store (default: 30s).")
@click.option("--sweep", is_flag=True, help="With --store: end uploads that were given up more than a day ago.")
@output.json_option
def doctor(
    of_cluster: bool,
    cluster_file: Path | None,
    projects: tuple[str, ...],
    store_url: str | None,
    grace: str,
    sweep: bool,
    as_json: bool,
) -> int:
    """Check this machine and the platform, a cluster, or a store, and say what to do.

    Exits with 3 when something is bad; what only deserves a look is a warning.
    """
    settings = Settings.from_environment()
    if sweep and store_url is None:
        raise UserError("--sweep is for a store. Write: trainlet doctor --store s3://bucket/prefix --sweep")
    if (cluster_file or projects) and not of_cluster:
        raise UserError("--settings and --project are for a cluster. Write: trainlet doctor --cluster ...")
    if store_url is not None:
        found, reached = _store(store_url)
        findings = [found]
        if reached:
            grace_s = durations.parse_duration_s(grace, "--grace ")
            findings += [Finding(*row) for row in storage.examine(store_url, grace_s, sweep=sweep)]
    elif of_cluster:
        findings = _cluster(cluster_file, projects or (settings.project,))
    else:
        findings = [finding for check in (_python, _home, _disk, _platform) for finding in check(settings)]
    if as_json:
        output.print_json([asdict(finding) for finding in findings])
    elif of_cluster:
        for finding in findings:
            _show(finding)
    else:
        output.table("", ["check", "state", "saw", "what to do"], [[f.check, f.state, f.saw, f.fix] for f in findings])
    return 3 if any(finding.state == "bad" for finding in findings) else 0


def _cluster(cluster_file: Path | None, projects: Sequence[str]) -> list[Finding]:
    from trainlet_knative import diagnosis, installs
    from trainlet_knative.clusters import Cluster
    from trainlet_knative.connections import Kubernetes

    here = Path("cluster.yaml")
    example = installs.FOLDER / "base" / "cluster.yaml"  # what an admin would start from
    cluster = Cluster.load(cluster_file or (here if here.is_file() else example))
    found = diagnosis.diagnose(Kubernetes(), cluster, projects)
    return [Finding(one.check, one.state, one.saw, one.fix, one.why) for one in found]


def _show(finding: Finding) -> None:
    """Print a finding with room for its command, which a table would break."""
    color = {"ok": "green", "warn": "yellow", "bad": "red"}[finding.state]
    click.echo(f"{click.style(f'{finding.state:4}', fg=color)} {finding.check}: {finding.saw}")
    if finding.why:
        click.echo(f"     why: {finding.why}")
    if finding.fix:
        click.echo(f"     fix: {finding.fix}")


def _python(settings: Settings) -> Iterator[Finding]:
    version = ".".join(map(str, sys.version_info[:3]))
    good = (3, 11) <= sys.version_info[:2] <= (3, 13)
    yield Finding("python", "ok" if good else "warn", version, "" if good else "use Python 3.11 to 3.13")
    if importlib.util.find_spec("flask") is None and settings.api is None:
        yield Finding("packages", "bad", "the training API's packages are missing", "pip install 'trainlet[server]'")


def _home(settings: Settings) -> Iterator[Finding]:
    home = settings.home
    try:
        home.mkdir(parents=True, exist_ok=True, mode=0o700)
        probe = home / ".doctor"
        probe.write_text("x")
        probe.unlink()
        yield Finding("home", "ok", str(home))
    except OSError as error:
        yield Finding("home", "bad", f"{home}: {error.strerror}", "set TRAINLET_HOME to a folder that you can write to")


def _disk(settings: Settings) -> Iterator[Finding]:
    place: Path = settings.home if settings.home.exists() else settings.home.parent
    free = shutil.disk_usage(place).free
    low = free < LOW_DISK_BYTES
    yield Finding("disk", "warn" if low else "ok", f"{free / 1024**3:.1f} GiB free", "free some space" if low else "")


def _platform(settings: Settings) -> Iterator[Finding]:
    from trainlet.client import connect

    fix = f"see {settings.home / 'platform.log'}" if settings.api is None else "check TRAINLET_API and TRAINLET_TOKEN"
    try:
        client = connect(settings)
        info = client.get_info()
    except TrainletError as error:
        yield Finding("training API", "bad", str(error).splitlines()[0], fix)
        return
    where = f"{client.url} ({f'embedded, process {info.pid}' if info.embedded else 'remote'}, {info.version})"
    same = info.protocol == wire.PROTOCOL
    yield Finding("training API", "ok" if same else "bad", where, "" if same else "update trainlet or the API")
    yield from _versions(info)
    yield _store(info.store_url)[0]
    yield _devices(info)
    if info.embedded and sys.stdout.isatty():  # the link holds the token: not for logs and bug reports
        yield Finding("dashboard", "ok", f"{client.url}/?token={client.token}")


def _versions(info: wire.ServiceInfo) -> Iterator[Finding]:
    ours = importlib.metadata.version("trainlet")
    if info.version and info.version != ours:
        fix = "end it: the next command starts the new one" if info.embedded else "use the same version on both sides"
        yield Finding("version", "warn", f"trainlet {ours} here, {info.version} at the API", fix)
    here = f"{sys.version_info.major}.{sys.version_info.minor}"
    if info.python and not info.python.startswith(here + "."):
        fix = f"use Python {info.python.rpartition('.')[0]} here, or workers with {here}"
        yield Finding("python of workers", "warn", f"{info.python}, here {here}", fix)


def _store(url: str) -> tuple[Finding, bool]:
    """Write, read and remove a small object, as every run does; say also whether the store can be reached."""
    from trainlet.client.stores import open_store

    key = f"doctor/{secrets.token_hex(8)}"
    try:
        store = open_store(url)
        store.create(key, b"doctor")
        good = store.get(key) == b"doctor"
        store.delete(key)
        broken = _broken(store)
    except (TrainletError, OSError) as error:
        fix = "make it writable for this user"
        return Finding("store", "bad", f"{url}: {str(error).splitlines()[0]}", fix), False
    if broken:
        return Finding("store", "bad", f"{url}: {broken}", storage.ALONE), True
    return Finding("store", "ok" if good else "bad", url, "" if good else "it gives other bytes than it got"), True


def _broken(store: ObjectStore) -> str:
    from trainlet_functions.checkpoints import conditions, probes

    seen = probes.breaks_promise(store)
    conditions.correct(store, seen)
    return seen


def _devices(info: wire.ServiceInfo) -> Finding:
    real = [device for device in info.devices if not device.virtual]
    if real:
        return Finding("devices", "ok", f"{len(real)} real: {', '.join(sorted({device.sku for device in real}))}")
    fix = "set TRAINLET_VIRTUAL_GPUS for another number"
    return Finding("devices", "warn", f"no GPU; {len(info.devices)} virtual devices stand in", fix)


COMMANDS = (doctor,)
