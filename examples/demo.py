"""Run the digits pipeline twice, the second time with its worker killed in mid-training, and print both bills."""

import os
import signal
import time
from pathlib import Path

import digits

from trainlet.cli import execution, summary
from trainlet.core.settings import Settings
from trainlet.runs import Run


def kill_worker(run: Run) -> None:
    """Wait until training has a checkpoint, then kill its worker without notice."""
    while True:
        train = next((task for task in run.tasks if task.node == "train"), None)
        if train is not None and train.checkpoints and train.checkpoints[-1].step >= 8:
            break
        time.sleep(0.05)
    worker = train.attempts[-1].worker
    pid = int((Path(Settings.from_environment().home) / "workers" / worker / "pid").read_text())
    os.kill(pid, signal.SIGKILL)
    print(
        f"-- killed worker {worker} (process {pid}) with SIGKILL; its newest checkpoint: step {train.checkpoints[-1].step}"
    )


def main() -> None:
    print("== first run: undisturbed")
    first = digits.digits.run()
    first.on_change = execution.Changes(print)
    accuracy = first.result()
    print("\n== second run: its worker is killed in mid-training")
    second = digits.digits.run()
    second.on_change = execution.Changes(print)
    kill_worker(second)
    again = second.result()
    print()
    for run in (first, second):
        summary.tasks_table(run, for_people=True)
        print()
    summary.bill(second)
    resumed = second.task("train").attempts[-1].resumed_from_step
    print(f"\naccuracy of the first run  {accuracy:.4f}")
    print(f"accuracy of the second run {again:.4f}, resumed from step {resumed}")
    if again != accuracy or resumed is None:
        raise SystemExit("the second run did not resume to the same accuracy")


if __name__ == "__main__":
    main()
