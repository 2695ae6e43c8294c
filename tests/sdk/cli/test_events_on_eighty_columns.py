"""`trainlet events` on a terminal of 80 columns: each event with its time, type, subject, source, id and verdicts."""

from __future__ import annotations

from trainlet.cli.events import paragraph
from trainlet.core.triggers import EventView, MatchView

RECEIVED = "2026-12-03T10:00:01.250Z"
CASES = [
    EventView(
        number=12,
        id="5f1c0a9e2b7d4c3f8a6e1b0d9c2f7a45",
        source="s3://digits-raw",
        type="com.amazonaws.s3.objectcreated",
        subject="images/1.png",
        received_at=RECEIVED,
        matches=[
            MatchView(
                trigger="on-images",
                state="started",
                reason="",
                run_id="retrain-0123456789ab",
                run_state="succeeded",
                matched_at=RECEIVED,
                replay=0,
            ),
            MatchView(
                trigger="nightly-evaluation",
                state="skipped",
                reason="loop guard: this event was caused by retrain -> nightly-evaluation, and nightly-evaluation must "
                "not start itself again. Allow it with max_repeats=, or narrow the filter.",
                matched_at=RECEIVED,
                replay=0,
            ),
        ],
    ),
    EventView(number=11, id="1", source="/s", type="t", received_at=RECEIVED),
    EventView(
        number=123456,
        id="e",
        source="https://github.com/an-organization-with-a-long-name/a-repository-with-a-long-name",
        type="com.github.pull_request.closed",
        subject="1",
        received_at=RECEIVED,
        matches=[
            MatchView(
                trigger="on-merge",
                state="held",
                reason="collecting events, until 2026-12-03T10:10:01Z",
                matched_at=RECEIVED,
                replay=0,
            )
        ],
    ),
]
GOLDEN = """\
    12  2026-12-03 10:00:01  com.amazonaws.s3.objectcreated
        about images/1.png  from s3://digits-raw
        id 5f1c0a9e2b7d4c3f8a6e1b0d9c2f7a45
        -> on-images: run retrain-0123456789ab succeeded
        -> nightly-evaluation: skipped: loop guard: this event was caused by
           retrain -> nightly-evaluation, and nightly-evaluation must not start
           itself again. Allow it with max_repeats=, or narrow the filter.
    11  2026-12-03 10:00:01  t
        from /s  id 1
        -> matched nothing
123456  2026-12-03 10:00:01  com.github.pull_request.closed
        about 1
        from https://github.com/an-organization-with-a-long-name/a-repository-with-a-long-name
        id e
        -> on-merge: waits: collecting events, until 2026-12-03T10:10:01Z
"""


def test_an_event_is_told_on_eighty_columns() -> None:
    lines = [line for view in CASES for line in paragraph(view, 80)]
    assert "\n".join(lines) + "\n" == GOLDEN
    assert [line for line in lines if len(line) > 80] == [lines[12]], "an address is never broken"
