"""The command line: everything that a person does with runs without writing Python.

Tables and progress on a terminal, plain lines when piped, JSON with `--json`. Errors fit one screen; the exit code says
whose turn it is. This room must not know how anything works: it calls `trainlet.runs` and the client.
"""

from __future__ import annotations

import os
import sys

import click

from trainlet.core.errors import StepFailed, TrainletError, UserError

EXIT_FAILED, EXIT_USAGE, EXIT_UNREACHABLE, EXIT_INTERRUPTED = 1, 2, 3, 130


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(package_name="trainlet")
def cli() -> None:
    """Serverless training in plain Python.

    State is under TRAINLET_HOME; TRAINLET_API and TRAINLET_TOKEN name a training API elsewhere.

    Exit codes: 0 done, 1 the run failed or was cancelled, 2 wrong use, 3 the platform failed or cannot be reached,
    130 interrupted.
    """


def main() -> None:
    """Run the command line and turn errors into one clear message and an exit code."""
    from trainlet.cli import doctor, execution, listing

    for command in (*execution.COMMANDS, *listing.COMMANDS, *doctor.COMMANDS):
        cli.add_command(command)
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
    except TrainletError as error:
        if os.environ.get("TRAINLET_DEBUG"):
            raise
        click.echo(f"trainlet: {error}", err=True)
        sys.exit(code_of(error))


def code_of(error: TrainletError) -> int:
    """Return the exit code of an error."""
    if isinstance(error, StepFailed):
        return EXIT_FAILED
    return EXIT_USAGE if isinstance(error, UserError) else EXIT_UNREACHABLE
