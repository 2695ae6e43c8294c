"""Logs: appended by offset, read by a dense sequence per run, archived in the store after the end.

A batch of lines is one row, so a flood costs rows per request and not per line. The sequence number of a line never
changes, also when its row has moved to the archive.
"""

from __future__ import annotations

import gzip
import json
from typing import Any

import sqlalchemy as sa

from trainlet.core import wire
from trainlet.core.clocks import rfc3339
from trainlet.core.errors import UserError
from trainlet.core.protocols import ObjectStore
from trainlet_functions.state import attempts, schema
from trainlet_functions.state.database import Transaction, dumps, loads

_TABLE = schema.logs
_OFFSETS = schema.log_offsets


def append(tx: Transaction, ref: attempts.AttemptRef, body: wire.LogsRequest) -> int:
    """Append lines of one rank at an offset and return the next one. Known lines are skipped, so a resend is harmless.

    Raises UserError when lines are missing in between, FencedAttempt when the attempt is not the current one.
    """
    attempts.current(ref)
    key, epoch = ref.task.key, ref.attempt.epoch
    where = (_OFFSETS.c.task == key) & (_OFFSETS.c.epoch == epoch) & (_OFFSETS.c.rank == body.rank)
    known = tx.conn.execute(sa.select(_OFFSETS.c.next_offset).where(where)).scalar()
    expected = known or 0
    if body.offset > expected:
        raise UserError(f"Lines {expected} to {body.offset - 1} are missing; send from offset {expected}.")
    fresh = body.lines[expected - body.offset :]
    if not fresh:
        return int(expected)
    runs = schema.runs
    counted = runs.update().where(runs.c.id == ref.task.run_id).values(log_seq=runs.c.log_seq + len(fresh))
    seq_end = tx.conn.execute(counted.returning(runs.c.log_seq)).scalar_one()
    tx.run(
        _TABLE.insert().values(
            run_id=ref.task.run_id,
            seq_end=seq_end,
            task=key,
            node=ref.task.node,
            epoch=epoch,
            rank=body.rank,
            count=len(fresh),
            lines=dumps(fresh),
        )
    )
    following = expected + len(fresh)
    if known is None:
        tx.run(_OFFSETS.insert().values(task=key, epoch=epoch, rank=body.rank, next_offset=following))
    else:
        tx.run(_OFFSETS.update().where(where).values(next_offset=following))
    return int(following)


def read(
    tx: Transaction,
    run_id: str,
    *,
    task: str | None = None,
    after: int = 0,
    limit: int = 1000,
    store: ObjectStore | None = None,
) -> list[wire.LogLine]:
    """Return lines after a sequence number, in order, from the archive and the database."""
    lines: list[wire.LogLine] = []
    archives = schema.log_archives
    where = (archives.c.run_id == run_id) & (archives.c.seq_end > after)
    if store is not None:
        for part in tx.all(sa.select(archives).where(where).order_by(archives.c.seq_end)):
            for raw in gzip.decompress(store.get(part.key)).splitlines():
                line = wire.LogLine.model_validate_json(raw)
                if line.seq > after and (task is None or line.task == task):
                    lines.append(line)
            if len(lines) >= limit:
                return lines[:limit]
    chosen = (_TABLE.c.run_id == run_id) & (_TABLE.c.seq_end > after)
    if task is not None:
        chosen &= _TABLE.c.task == task
    # A row holds at least one line, so `limit` rows are always enough.
    for batch in tx.conn.execute(sa.select(_TABLE).where(chosen).order_by(_TABLE.c.seq_end).limit(limit)):
        lines.extend(line for line in _unfold(batch) if line.seq > after)
        if len(lines) >= limit:
            break
    return lines[:limit]


def _unfold(batch: sa.Row[Any]) -> list[wire.LogLine]:
    first = batch.seq_end - batch.count + 1
    return [
        wire.LogLine(
            seq=first + index,
            task=batch.task,
            node=batch.node,
            epoch=batch.epoch,
            rank=batch.rank,
            stream=stream,
            at=rfc3339(at_ms * 1_000_000),
            text=text,
        )
        for index, (at_ms, stream, text) in enumerate(loads(batch.lines))
    ]


def to_archive(tx: Transaction, quiet_s: float = 30.0, limit: int = 5) -> list[str]:
    """Return runs that ended a while ago and still have lines in the database."""
    runs, tasks = schema.runs, schema.tasks
    live = sa.exists().where((tasks.c.run_id == runs.c.id) & tasks.c.state.in_(("queued", "dispatched", "running")))
    has_lines = sa.exists().where(_TABLE.c.run_id == runs.c.id)
    old = (runs.c.finished_ns < tx.now_ns - round(quiet_s * 1e9)) & (runs.c.state != "running")
    return [row.id for row in tx.all(sa.select(runs.c.id).where(old & has_lines & ~live).limit(limit))]


def archive(tx: Transaction, store: ObjectStore, run_id: str) -> None:
    """Move a run's lines to the store as one create-once object of gzipped JSON lines, then drop their rows."""
    rows = tx.all(sa.select(_TABLE).where(_TABLE.c.run_id == run_id).order_by(_TABLE.c.seq_end))
    if not rows:
        return
    text = "\n".join(line.model_dump_json() for row in rows for line in _unfold(row))
    key = f"logs/{run_id}/{rows[0].seq_end - rows[0].count + 1}-{rows[-1].seq_end}.jsonl.gz"
    try:
        store.create(key, gzip.compress(text.encode(), compresslevel=5, mtime=0))
    except FileExistsError:
        json.loads(gzip.decompress(store.get(key)).splitlines()[0])  # an earlier try wrote it; it must be readable
    tx.run(schema.log_archives.insert().values(run_id=run_id, seq_end=rows[-1].seq_end, key=key))
    tx.run(_TABLE.delete().where((_TABLE.c.run_id == run_id) & (_TABLE.c.seq_end <= rows[-1].seq_end)))
