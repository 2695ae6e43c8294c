"""Lines of text made column by column: those of a CSV file, and those that stand for rows in a digest.

A line is made of texts that a charge has of its own, and of runs: what stands between two of them. Very many charges
share a run, so it is made once for each of their kinds. pyarrow joins them; nothing here loops over charges.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from trainlet.core.sums import OWN, between, quoted
from trainlet_functions.exports.charges import Lot

_DAY_S = 86_400


class Lines:
    """Lines in the making. `places` says of which kind each charge is."""

    def __init__(self, places: Any, kinds: int) -> None:
        self._places = places
        self._run = [""] * kinds
        self._pieces: list[Any] = []

    def same(self, text: str) -> None:
        """Add a text to every line."""
        if text:
            self._run = [run + text for run in self._run]

    def shared(self, texts: Sequence[str]) -> None:
        """Add a text for each kind of charge."""
        self._run = [run + text for run, text in zip(self._run, texts, strict=True)]

    def own(self, texts: Any) -> None:
        """Add an array of texts; null adds nothing."""
        self._end_run()
        self._pieces.append(texts)

    def bytes(self) -> memoryview:
        """Return the lines, which are ended with this."""
        from pyarrow import compute

        self._end_run()
        made = compute.binary_join_element_wise(*self._pieces, "", null_handling="replace", null_replacement="")
        return _text_of(made)

    def _end_run(self) -> None:
        import pyarrow as pa

        if self._run and self._run.count(self._run[0]) == len(self._run):
            if self._run[0]:
                self._pieces.append(self._run[0])
        else:
            self._pieces.append(pa.array(self._run, pa.string()).take(self._places))
        self._run = [""] * len(self._run)


def _text_of(array: Any) -> memoryview:
    """Return the texts of an array without nulls, one after the other, as they lie in memory."""
    _, offsets, text = array.buffers()
    ends = memoryview(offsets).cast("i")
    return memoryview(text)[ends[array.offset] : ends[array.offset + len(array)]]


def of_rows(lot: Lot, places: Any) -> memoryview:
    """Return what stands for rows in digests: `trainlet.core.sums.line` of each, one after the other."""

    runs = list(zip(*(between(kind) for kind in lot.kinds), strict=True))
    made = Lines(places, len(lot.kinds))
    for number, name in enumerate(OWN):
        made.shared(runs[number])
        if name == "tags":
            made.own(_strings([one or "{}" for one in lot.own["Tags"]]))
        elif name.endswith(("_nano", "_s")) or name == "epoch":
            made.own(_whole(lot.own_fields[name]))
        else:
            made.same('"')
            made.own(_escaped(lot.own_fields[name]))
            made.same('"')
    made.shared(runs[-1])
    return made.bytes()


def _strings(values: Sequence[str]) -> Any:
    import pyarrow as pa

    return pa.array(values, pa.string())


def _whole(values: Sequence[int | None]) -> Any:
    import pyarrow as pa

    return pa.array(values, pa.int64()).cast(pa.string()).fill_null("null")


def _escaped(values: Sequence[str]) -> Any:
    """Return texts as they stand between quotes in JSON."""
    together = "".join(values)
    if len(quoted(together)) > len(together) + 2:  # every escape is longer than what it stands for
        values = [quoted(one)[1:-1] for one in values]
    return _strings(values)


def digits(nanos: Any, scale: int) -> Any:
    """Return integers as decimals with all of `scale` digits, never in scientific notation."""
    import pyarrow as pa
    from pyarrow import compute

    whole, sign = nanos, ""
    if compute.any(compute.less(nanos, 0)).as_py():
        whole, sign = compute.abs(nanos), compute.if_else(compute.less(nanos, 0), "-", "")
    units = compute.divide(whole, 10**scale)
    rest = compute.subtract(whole, compute.multiply(units, 10**scale))
    padded = compute.utf8_lpad(rest.cast(pa.string()), scale, "0")
    return compute.binary_join_element_wise(sign, units.cast(pa.string()), ".", padded, "")


def moments(seconds: Any) -> Any:
    """Return UTC seconds as texts such as `2026-07-01T00:00:00Z`: few days, and two tables, instead of a calendar."""
    import pyarrow as pa
    from pyarrow import compute

    dates = seconds.cast(pa.timestamp("s")).cast(pa.date32()).dictionary_encode()
    of_day = compute.subtract(
        seconds, compute.multiply(dates.cast(pa.date32()).cast(pa.int32()).cast(pa.int64()), _DAY_S)
    )
    minute = compute.divide(of_day, 60)
    second = compute.subtract(of_day, compute.multiply(minute, 60))
    minutes = pa.array([f"T{one // 60:02}:{one % 60:02}:" for one in range(_DAY_S // 60)])
    ends = pa.array([f"{one:02}Z" for one in range(60)])
    days = dates.dictionary.cast(pa.string()).take(dates.indices)
    return compute.binary_join_element_wise(days, minutes.take(minute), ends.take(second), "")
