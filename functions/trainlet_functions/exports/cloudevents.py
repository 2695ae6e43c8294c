"""Charges as CloudEvents in the shape that usage meters such as OpenMeter take.

A charge is cut at UTC minutes, the finest window of such meters, and an event's time is the start of its piece. Ids are a
function of the charge and the piece, so sending a period again changes nothing where ids are looked at. Numbers are texts:
none is rounded on its way.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from trainlet.core.bills import FULL_SHARE, Row
from trainlet.core.errors import PlatformError, UserError
from trainlet.core.models import canonical_json
from trainlet_functions.batches import batches
from trainlet_functions.exports import formats
from trainlet_functions.exports.charges import NANO

MEDIA = "application/cloudevents-batch+json"
BATCH, TRIES = 100, 6
_TYPES = {
    "usage": "dev.trainlet.gpu.segment.v1",
    "reversal": "dev.trainlet.gpu.correction.v1",
    "correction": "dev.trainlet.gpu.correction.v1",
    "rounding": "dev.trainlet.invoice.rounding.v1",
}


def events(rows: Iterable[Row], source: str) -> Iterator[dict[str, Any]]:
    """Yield the events of charges; their seconds and costs sum to those of the charges, exactly."""
    for row in rows:
        for start_s, end_s, cost_nano in _pieces(row):
            yield _event(row, source, start_s, end_s, cost_nano)


def send(found: Iterable[dict[str, Any]], post: Callable[[bytes, str], int]) -> int:
    """Post events in batches; `post` takes (body, media type) and returns an HTTP status, or 0 for no answer.

    What fails for now is sent again with growing pauses. Returns how many were taken; raises UserError for what is refused.
    """
    sent = 0
    for together in batches(found, BATCH):
        body = canonical_json(together)
        for attempt in range(TRIES):
            if attempt:
                time.sleep(random.uniform(0, 0.1 * 3 ** (attempt - 1)))
            status = post(body, MEDIA)
            if 200 <= status < 300:
                break
            if status and status not in (408, 429) and status < 500:
                raise UserError(
                    f"The sink refused a batch with HTTP {status} after {sent} events. Check its URL and "
                    "TRAINLET_SINK_TOKEN, and send the period again: the ids are the same."
                )
        else:
            raise PlatformError(
                f"The sink does not answer (HTTP {status or 'nothing'}) after {sent} events. Send the period again later: "
                "the ids are the same."
            )
        sent += len(together)
    return sent


def _pieces(row: Row) -> Iterator[tuple[int, int, int]]:
    if row.kind == "rounding":
        yield row.start_s, row.end_s, row.cost_nano or 0
        return
    at = row.start_s
    while at < row.end_s:
        until = min(row.end_s, at - at % 60 + 60)
        yield at, until, row.cost_between(at, until)
        at = until


def _event(row: Row, source: str, start_s: int, end_s: int, cost_nano: int) -> dict[str, Any]:
    seconds = 0 if row.kind == "rounding" else end_s - start_s
    seconds = -seconds if row.kind == "reversal" else seconds
    data = {
        "seconds": str(seconds),
        "gpu_seconds": _decimal(seconds * row.share, FULL_SHARE),
        "gpus": _decimal(row.share, FULL_SHARE),
        "cost_nano": str(cost_nano),
        "currency": row.currency,
        "kind": row.kind,
        "sku": row.sku,
        "phase": row.phase,
        "rate": row.rate,
        "share": f"{row.share}/{FULL_SHARE}",
        "mig_profile": row.sku.partition("/")[2],
        "price_version": row.version,
        "priced": "false" if row.unpriced else "true",
        "project": row.project,
        "run_id": row.run_id,
        "task": row.task,
        "attempt": str(row.epoch),
        "lease_id": row.lease,
        "device": row.device,
        "virtual": "true" if row.virtual else "false",
        "billing_period": row.period,
        "start": formats.moment(start_s),
        "end": formats.moment(end_s),
        **({"corrects": row.corrects} if row.corrects else {}),
        **{f"tag_{name}": text for name, text in row.tags.items()},
    }
    return {
        "specversion": "1.0",
        "type": _TYPES[row.kind],
        "source": source,
        "id": f"{row.id}:{start_s}+{end_s - start_s}",
        "time": formats.moment(start_s),
        "subject": row.project,
        "datacontenttype": "application/json",
        "data": data,
    }


def _decimal(parts: int, whole: int) -> str:
    if parts % whole == 0:
        return str(parts // whole)
    nano = (abs(parts) * NANO + whole // 2) // whole
    return f"{'-' if parts < 0 else ''}{nano // NANO}.{nano % NANO:09}"
