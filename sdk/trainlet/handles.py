"""One task of a run, as a person looks at it. It asks the API each time, so it is never older than the question."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from trainlet.core import wire
from trainlet.core.errors import StepFailed

if TYPE_CHECKING:
    from trainlet.client.http import Client


class TaskHandle:
    """One task: its state, its attempts, its lines, its result."""

    def __init__(self, client: Client, run_id: str, key: str, decode: Callable[[Any], Any]) -> None:
        self.key = key
        self._client = client
        self._run_id = run_id
        self._decode = decode

    def __repr__(self) -> str:
        return f"<task {self.key} {self.state}>"

    @property
    def view(self) -> wire.TaskView:
        """Return the task as the API has it now."""
        return self._client.get_task(self.key)

    @property
    def state(self) -> str:
        """Return queued, dispatched, running, succeeded, failed or canceled."""
        return self.view.state

    @property
    def reason(self) -> str:
        """Return in words why it is in this state."""
        return self.view.reason

    @property
    def attempts(self) -> Sequence[wire.AttemptView]:
        """Return the attempts, the first one first."""
        return self.view.attempts

    def result(self) -> Any:
        """Return the decoded output of a task that succeeded; raises StepFailed otherwise."""
        from trainlet_pipelines.failures import step_failed

        view = self.view
        if view.state == "failed" and view.error is not None:
            raise step_failed(self.key.removeprefix(f"{self._run_id}."), view.error, self.key, self._run_id)
        if view.state != "succeeded":
            raise StepFailed(f"{view.node} is {view.state}: {view.reason}.", task=self.key)
        return self._decode(view.output)

    def logs(self, follow: bool = False) -> Iterator[wire.LogLine]:
        """Yield the lines that the task has printed so far; with `follow`, until it ends."""
        return lines(self._client, self._run_id, task=self.key, follow=follow)

    def timeline(self) -> Sequence[wire.TimelineEntry]:
        """Return every state it has had, with the reasons."""
        return self._client.timeline(self.key)

    def cancel(self, reason: str = "cancelled by the user") -> None:
        """Stop this task after a checkpoint."""
        self._client.cancel_task(self.key, reason)


def lines(client: Client, run_id: str, *, task: str | None = None, follow: bool = False) -> Iterator[wire.LogLine]:
    """Yield the log lines of a run, or of one of its tasks, in their order."""
    if follow:
        yield from client.follow_logs(run_id, task=task)
        return
    after = 0
    while found := client.logs(run_id, task=task, after=after, limit=5000):
        yield from found
        after = found[-1].seq
