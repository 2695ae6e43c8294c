"""Where a pod's training API and store are, and how its program ends: one exit code for each kind of failure."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from trainlet.client import ApiUnreachable, connect
from trainlet.client.stores import open_store
from trainlet.core.errors import PlatformError, TrainletError, UserError
from trainlet.core.protocols import ObjectStore
from trainlet.core.settings import Settings
from trainlet_pipelines.pods import inputs, orders

if TYPE_CHECKING:
    from trainlet.client.http import Client

EXIT_DONE, EXIT_FAILED, EXIT_TRANSPORT = 0, 1, 75
Work = Callable[[inputs.ExecutorInput, orders.Order], int]


def run(program: str, arguments: Sequence[str] | None, work: Work) -> int:
    """Read the two arguments, work, and turn what goes wrong into a last line and an exit code.

    0: done. 1: the step failed, or what it was given is wrong. 75: something that may work the next time.
    """
    parser = argparse.ArgumentParser(prog=program)
    parser.add_argument("--executor-input", required=True, help="what KFP puts in the place of {{$}}")
    parser.add_argument("--step", required=True, help="what the compiler wrote")
    options = parser.parse_args(arguments)
    try:
        return work(inputs.read(options.executor_input), orders.read(options.step))
    except (ApiUnreachable, PlatformError) as error:
        say(f"trainlet: {error}")
        return EXIT_TRANSPORT
    except (TrainletError, OSError) as error:
        say(f"trainlet: {error}")
        return EXIT_FAILED


def say(text: str) -> None:
    """Write to the task's log, at once."""
    try:
        print(text, flush=True)
    except UnicodeEncodeError:
        sys.stdout.buffer.write(text.encode("utf-8", "backslashreplace") + b"\n")
        sys.stdout.flush()


def client(settings: Settings) -> Client:
    """Return the client of the training API; a pod never starts one of its own."""
    if settings.api is None and Path("/var/run/secrets/kubernetes.io").exists():
        raise UserError("TRAINLET_API is not set in this pod. Compile with Target(api=...), or --api.")
    return connect(settings)


def store(settings: Settings) -> ObjectStore:
    """Return the store: of TRAINLET_STORE, else the one that the training API names."""
    url = os.environ.get("TRAINLET_STORE") or client(settings).get_info().store_url
    return open_store(url)
