"""The command line: everything that a person does with runs without writing Python.

Tables and progress on a terminal, plain lines when piped, JSON with `--json`. Errors fit one screen; the exit code says
whose turn it is. This room must not know how anything works: it calls `trainlet.runs` and the client.
"""

from __future__ import annotations

import os
import sys
import traceback
import warnings
from typing import Any

import click

from trainlet.core.errors import StepFailed, TrainletError, UserError

EXIT_FAILED, EXIT_USAGE, EXIT_UNREACHABLE, EXIT_INTERRUPTED = 1, 2, 3, 130
SCREEN_LINES = 40


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(package_name="trainlet")
def cli() -> None:
    """Serverless training in plain Python.

    State is under TRAINLET_HOME; TRAINLET_API and TRAINLET_TOKEN name a training API elsewhere.
    TRAINLET_DEBUG=1 shows whole Python tracebacks.

    Exit codes: 0 done, 1 the run failed or was cancelled, 2 wrong use, 3 the platform failed or cannot be reached,
    130 interrupted.
    """


def main() -> None:
    """Run the command line and turn errors into one clear message and an exit code."""
    from trainlet.cli import (
        billing,
        budgets,
        clusters,
        costs,
        deployment,
        doctor,
        events,
        execution,
        hooks,
        kubeflow,
        listing,
        prices,
        saved,
        secrets,
        sinks,
        triggers,
        usage,
    )

    for module in (
        execution,
        kubeflow,
        deployment,
        triggers,
        events,
        hooks,
        sinks,
        listing,
        usage,
        saved,
        secrets,
        prices,
        billing,
        budgets,
        costs,
        clusters,
        doctor,
    ):
        for command in module.COMMANDS:
            cli.add_command(command)
    warnings.showwarning = _show_warning
    try:
        code = cli.main(standalone_mode=False)
        sys.exit(code if isinstance(code, int) else 0)
    except click.ClickException as error:
        error.show()
        sys.exit(EXIT_USAGE)
    except (click.Abort, KeyboardInterrupt):
        sys.exit(EXIT_INTERRUPTED)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # nobody reads any more; that is no error
        sys.exit(0)
    except Exception as error:  # noqa: BLE001 - shown to the person, with an exit code
        if os.environ.get("TRAINLET_DEBUG"):
            traceback.print_exc()
        click.echo(message_of(error), err=True)
        sys.exit(code_of(error))


def message_of(error: Exception) -> str:
    """Return what a person reads of an error: its message, or the traceback through their own files."""
    from trainlet.cli import tracebacks

    if isinstance(error, TrainletError):
        return _on_one_screen(f"trainlet: {error}")
    text = tracebacks.text_of(error)
    if not tracebacks.is_own(error):
        text += "\ntrainlet: that is a fault of trainlet itself. TRAINLET_DEBUG=1 shows where."
    return _on_one_screen(text)


def code_of(error: Exception) -> int:
    """Return the exit code of an error."""
    from trainlet.cli import tracebacks

    if isinstance(error, StepFailed):
        return EXIT_FAILED
    if isinstance(error, TrainletError):
        return EXIT_USAGE if isinstance(error, UserError) else EXIT_UNREACHABLE
    return EXIT_FAILED if tracebacks.is_own(error) else EXIT_UNREACHABLE


def _on_one_screen(text: str) -> str:
    """Cut the middle out of a text that is longer than a screen; what happened is at its ends."""
    lines = text.splitlines()
    if len(lines) <= SCREEN_LINES or os.environ.get("TRAINLET_DEBUG"):
        return text
    head, tail = SCREEN_LINES // 3, SCREEN_LINES - SCREEN_LINES // 3 - 1
    left_out = len(lines) - head - tail
    return "\n".join([*lines[:head], f"  ... {left_out} more lines; TRAINLET_DEBUG=1 shows them", *lines[-tail:]])


def _show_warning(
    message: Warning | str,
    category: type[Warning],
    filename: str,
    lineno: int,
    file: Any = None,
    line: str | None = None,
) -> None:
    click.echo(f"trainlet: warning: {message}", err=True)
