"""Commands that make things happen: `up`, `run`, `cancel`, `resume`."""

from __future__ import annotations

import contextlib
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from trainlet.cli import live, loading, output, summary
from trainlet.core import wire
from trainlet.core.errors import TrainletError, UserError
from trainlet.core.settings import Settings
from trainlet.pipelines import Pipeline
from trainlet.runs import Run, get


@click.command()
@click.option("--port", type=int, default=0, help="Port to listen on (default: the last one, else any).")
@output.json_option
def up(port: int, as_json: bool) -> int:
    """Run the platform in the foreground, with its dashboard."""
    home = Settings.from_environment().home
    home.mkdir(parents=True, exist_ok=True, mode=0o700)
    command = [sys.executable, "-m", "trainlet_functions.api", "--home", str(home), "--port", str(port), "--stay"]
    with subprocess.Popen(command) as process:
        signal.signal(signal.SIGTERM, lambda *_: process.terminate())  # a service manager stops both, as Ctrl-C does
        threading.Thread(target=_announce, args=(home, process, as_json), daemon=True).start()
        try:
            return process.wait()
        except KeyboardInterrupt:
            process.terminate()
            return process.wait()


def _announce(home: Path, process: subprocess.Popen[bytes], as_json: bool) -> None:
    from trainlet.client import embedded
    from trainlet.client.http import Client

    while process.poll() is None:
        with contextlib.suppress(TrainletError):
            known = embedded.find(home)
            if known is not None and Client(*known).get_info().pid == process.pid:
                dashboard = f"{known[0]}/?token={known[1]}"
                if as_json:
                    output.print_json({"url": known[0], "token": known[1], "dashboard": dashboard, "pid": process.pid})
                else:
                    click.echo(f"dashboard: {dashboard}")
                return
        time.sleep(0.1)


@click.command()
@click.argument("target", metavar="FILE[:PIPELINE]")
@click.option("--param", "-p", "params", multiple=True, metavar="NAME=VALUE", help="A parameter; JSON or text.")
@click.option("--tag", "-t", "tags", multiple=True, metavar="NAME=TEXT", help="A tag for the bill.")
@click.option("--budget", metavar="SUM", help='Stop after a checkpoint when so much is spent: "20 USD".')
@click.option("--local", is_flag=True, help="Run in this process instead of on the training API.")
@click.option("--cache", is_flag=True, help="Do only what is new: results of equal code and inputs are used again.")
@output.json_option
def run(
    target: str,
    params: tuple[str, ...],
    tags: tuple[str, ...],
    budget: str | None,
    local: bool,
    cache: bool,
    as_json: bool,
) -> int:
    """Run a pipeline (or a step) and follow it to its end."""
    found = loading.load(target)
    values = loading.parameters(params, found)
    if cache and not isinstance(found, Pipeline):
        raise UserError(f"{target} is a step; only the tasks of a @tl.pipeline are cached. Leave --cache out.")
    if local:
        result = found.local(cache=cache, **values) if isinstance(found, Pipeline) else found(**values)
        output.print_json({"result": result}) if as_json else click.echo(f"result: {result}")
        return 0
    chosen: dict[str, Any] = {"tags": loading.tags(tags), "budget": budget}
    if isinstance(found, Pipeline):
        return follow(found.run(cache=cache, **chosen, **values), as_json)
    return follow(found._run("run", (), values, **chosen), as_json)


@click.command()
@click.argument("run_id", metavar="RUN")
@click.option("--budget", metavar="SUM", help='The budget of the run from now on: "30 USD".')
@output.json_option
def resume(run_id: str, budget: str | None, as_json: bool) -> int:
    """Continue a failed, cancelled or abandoned run from its checkpoints and follow it."""
    return follow(get(run_id).resume(budget=budget), as_json)


@click.command()
@click.argument("run_id", metavar="RUN")
@output.json_option
def cancel(run_id: str, as_json: bool) -> None:
    """Stop a run after a checkpoint."""
    found = get(run_id)
    found.cancel()
    view = found.view
    output.print_json(view.model_dump(mode="json")) if as_json else click.echo(
        f"{view.id} is {view.state}: {view.reason}"
    )


def follow(started: Run, as_json: bool) -> int:
    """Show task states and log lines as they come, then the summary; returns the exit code."""
    error: Exception | None = None
    with live.screen(quiet=as_json) as screen:
        screen.say(f"run {started.id}")
        changes = Changes(screen.say)

        def tell(task: wire.TaskView) -> None:
            changes(task)
            screen.show(task)

        started.on_change = tell
        logs = threading.Thread(target=_print_logs, args=(started, screen.say), daemon=True)
        logs.start()
        try:
            started.wait()
        except Exception as failure:  # noqa: BLE001 - shown after the table, with its exit code
            error = failure
        logs.join(timeout=10.0)
    if as_json:
        view = started.view.model_dump(mode="json", exclude={"graph"})
        view["tasks"] = [task.model_dump(mode="json") for task in started.tasks]
        output.print_json(view)
    else:
        summary.tasks_table(started)
        summary.bill(started)
        for name, value in ({} if error is not None else started.outputs).items():
            click.echo(f"{name}: {value}")
    if error is not None:
        raise error
    return 0


class Changes:
    """Says a task's state when it or its reason changes."""

    def __init__(self, say: Callable[[str], object]) -> None:
        self._say = say
        self._last: dict[str, tuple[str, str]] = {}

    def __call__(self, task: wire.TaskView) -> None:
        now = (task.state, task.reason)
        if self._last.get(task.key) == now:
            return
        self._last[task.key] = now
        name = task.key.removeprefix(f"{task.run_id}.")
        epoch = f" (epoch {task.epoch})" if task.epoch > 1 else ""
        self._say(f"{output.clock(task.updated_at)} {name} {task.state}{epoch}: {task.reason}")


def _print_logs(started: Run, say: Callable[[str], object]) -> None:
    try:
        for line in started.logs(follow=True):
            say(output.log_line(line))
    except TrainletError as error:
        say(f"logs: {error}")


COMMANDS = (up, run, resume, cancel)
