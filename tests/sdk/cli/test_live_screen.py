"""On a terminal, running tasks have a row with their progress; what is said scrolls above."""

from __future__ import annotations

import io

from rich.console import Console

from trainlet.cli import live
from trainlet.core import wire


def task(state: str, **fields: object) -> wire.TaskView:
    return wire.TaskView.model_validate(
        {
            "key": "r-1.train", "project": "p", "run_id": "r-1", "node": "train", "function": "f", "digest": "0" * 64,
            "state": state, "created_at": "", "updated_at": "", **fields,
        }
    )  # fmt: skip


def test_a_running_task_has_a_row_until_it_ends():
    text = io.StringIO()
    with live.terminal(Console(file=text, force_terminal=True, width=120)) as screen:
        screen.show(task("queued"))
        screen.show(task("running", progress={"done": 3, "total": 10, "message": "epoch 1"}, metrics={"loss": 0.25}))
        screen.say("12:00:00 [train] [bold]not markup[/bold]")
        board = screen._progress.get_renderable()  # type: ignore[attr-defined]
        shown = io.StringIO()
        Console(file=shown, width=120).print(board)
        screen.show(task("succeeded"))
        screen.show(task("succeeded"))
        assert screen._rows == {}  # type: ignore[attr-defined]
    for part in ("train", "3/10", "epoch 1", "loss 0.25"):
        assert part in shown.getvalue()
    assert "[bold]not markup[/bold]" in text.getvalue()


def test_nothing_is_printed_when_quiet(capsys):
    with live.screen(quiet=True) as screen:
        screen.say("text")
        screen.show(task("running"))
    assert capsys.readouterr().out == ""


def test_plain_lines_where_there_is_no_terminal(capsys):
    with live.screen() as screen:
        screen.show(task("running"))
        screen.say("text")
    assert capsys.readouterr().out == "text\n"
