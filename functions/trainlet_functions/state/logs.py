"""Logs: appended by offset, read by a dense sequence per run, archived in the store after the end.

A batch of lines is one row, so a flood costs rows per request and not per line. The sequence number of a line never
changes, also when its row has moved to the archive.
"""

from __future__ import annotations

import contextlib
import gzip
from typing import Any

import sqlalchemy as sa

from trainlet.core import wire
from trainlet.core.clocks import rfc3339
from trainlet.core.models import sha256_hex
from trainlet.core.protocols import ObjectStore
from trainlet_functions.state import attempts, schema, transitions
from trainlet_functions.state.database import Database, Transaction, dumps, loads
from trainlet_functions.state.problems import LinesMissing

_TABLE = schema.logs
_OFFSETS = schema.log_offsets
_ARCHIVE_LINES = 20_000  # about how many lines one object of the archive holds
_BATCHES = 16  # rows read at once; one row holds the lines of one request


def append(tx: Transaction, ref: attempts.AttemptRef, body: wire.LogsRequest) -> int:
    """Append lines of one rank at an offset and return the next one. Known lines are skipped, so a resend is harmless.

    Raises LinesMissing when lines are missing in between, FencedAttempt when the attempt is not the current one.
    """
    attempts.current(ref)
    key, epoch = ref.task.key, ref.attempt.epoch
    where = (_OFFSETS.c.task == key) & (_OFFSETS.c.epoch == epoch) & (_OFFSETS.c.rank == body.rank)
    known = tx.conn.execute(sa.select(_OFFSETS.c.next_offset).where(where)).scalar()
    expected = known or 0
    if body.offset > expected:
        raise LinesMissing(expected, body.offset)
    fresh = body.lines[expected - body.offset :]
    if not fresh:
        return int(expected)
    runs = schema.runs
    late = sa.case((runs.c.state != "running", transitions.archive_due(tx)), else_=runs.c.archive_due_ns)
    values = {"log_seq": runs.c.log_seq + len(fresh), "archive_due_ns": late}
    counted = runs.update().where(runs.c.id == ref.task.run_id).values(values)
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
    if store is not None:
        archives = schema.log_archives
        where = (archives.c.run_id == run_id) & (archives.c.seq_end > after)
        for part in tx.all(sa.select(archives).where(where).order_by(archives.c.seq_end)):
            raw = gzip.decompress(store.get(part.key)).splitlines()
            skip = max(0, after - (part.seq_end - len(raw)))
            for text in raw[skip:]:
                if task is None or task.encode() in text:
                    line = wire.LogLine.model_validate_json(text)
                    if task is None or line.task == task:
                        lines.append(line)
                        if len(lines) == limit:
                            return lines
    chosen = _TABLE.c.run_id == run_id
    if task is not None:
        chosen &= _TABLE.c.task == task
    while True:
        query = sa.select(_TABLE).where(chosen & (_TABLE.c.seq_end > after)).order_by(_TABLE.c.seq_end)
        batches = tx.all(query.limit(_BATCHES))
        for batch in batches:
            lines.extend(_unfold(batch, after, limit - len(lines)))
            after = batch.seq_end
            if len(lines) >= limit:
                return lines
        if len(batches) < _BATCHES:
            return lines


def last(tx: Transaction, run_id: str, *, limit: int, store: ObjectStore | None = None) -> list[wire.LogLine]:
    """Return the newest lines of a run, in order."""
    query = sa.select(schema.runs.c.log_seq).where(schema.runs.c.id == run_id)
    newest = int(tx.conn.execute(query).scalar() or 0)
    return read(tx, run_id, after=max(0, newest - limit), limit=limit, store=store)


def _unfold(batch: sa.Row[Any], after: int = 0, limit: int = 1_000_000_000) -> list[wire.LogLine]:
    """Return up to `limit` lines of a row that come after a sequence number."""
    first = batch.seq_end - batch.count + 1
    skip = max(0, after + 1 - first)
    return [
        wire.LogLine(
            seq=first + skip + index,
            task=batch.task,
            node=batch.node,
            epoch=batch.epoch,
            rank=batch.rank,
            stream=stream,
            at=rfc3339(at_ms * 1_000_000),
            text=text,
        )
        for index, (at_ms, stream, text) in enumerate(loads(batch.lines)[skip : skip + limit])
    ]


def to_archive(tx: Transaction, limit: int = 5) -> list[str]:
    """Return runs that ended a while ago and whose logs are still to be moved."""
    runs = schema.runs
    due = sa.select(runs.c.id).where(runs.c.archive_due_ns <= tx.now_ns).order_by(runs.c.archive_due_ns)
    return [row.id for row in tx.all(due.limit(limit))]


def archive(database: Database, store: ObjectStore, run_id: str) -> int:
    """Move a run's lines to the store as create-once objects of gzipped JSON lines; return how many.

    The upload happens outside of any transaction, so a slow store holds nobody up; a crash between upload and commit
    only leaves an object that the next try finds there.
    """
    moved = 0
    while True:
        with database.read() as tx:
            rows = _part(tx, run_id)
        if rows:
            lines = [line.model_dump_json() for row in rows for line in _unfold(row)]
            data = gzip.compress("\n".join(lines).encode(), compresslevel=5, mtime=0)
            # The content is part of the name: after a restore from a backup other lines have the same numbers.
            numbers = f"{rows[-1].seq_end - len(lines) + 1}-{rows[-1].seq_end}"
            key = f"logs/{run_id}/{numbers}-{sha256_hex(data)[:12]}.jsonl.gz"
            with contextlib.suppress(FileExistsError):
                store.create(key, data)
            moved += len(lines)
        with database.write() as tx:
            if rows:
                last = rows[-1].seq_end
                tx.run(schema.log_archives.insert().values(run_id=run_id, seq_end=last, key=key))
                tx.run(_TABLE.delete().where((_TABLE.c.run_id == run_id) & (_TABLE.c.seq_end <= last)))
            if not rows:
                ended = (schema.runs.c.id == run_id) & (schema.runs.c.state != "running")
                tx.run(schema.runs.update().where(ended).values(archive_due_ns=None))
                return moved


def _part(tx: Transaction, run_id: str) -> list[sa.Row[Any]]:
    """Return the first rows of a run, enough for one object of the archive."""
    counts = sa.select(_TABLE.c.seq_end, _TABLE.c.count).where(_TABLE.c.run_id == run_id)
    total, last = 0, 0
    for row in tx.conn.execute(counts.order_by(_TABLE.c.seq_end)):
        total, last = total + row[1], row[0]
        if total >= _ARCHIVE_LINES:
            break
    chosen = (_TABLE.c.run_id == run_id) & (_TABLE.c.seq_end <= last)
    return tx.all(sa.select(_TABLE).where(chosen).order_by(_TABLE.c.seq_end))
