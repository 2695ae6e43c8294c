"""Files of charges: Parquet with DECIMAL(38, 9), and CSV with the same digits; written and read in batches.

In CSV a text is quoted and a null is nothing, so an empty text and a null stay two things. pyarrow is imported here,
when files are made or read, and nowhere else.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Protocol

from trainlet.core.errors import UserError
from trainlet_functions.exports.columns import PRECISION, SCALE, Column

FORMATS = ("parquet", "csv")
_NANO = 10**SCALE
_TIME = "%Y-%m-%dT%H:%M:%SZ"


class Writer(Protocol):
    """What a new file of charges is written with."""

    def write_batch(self, batch: Any) -> None:
        """Add charges."""
        ...

    def close(self) -> None:
        """End the file."""
        ...


def arrow() -> Any:
    """Return pyarrow; raises UserError where it is not installed."""
    try:
        import pyarrow
    except ImportError as error:
        raise UserError("Billing exports need pyarrow, which is not installed: install trainlet[billing].") from error
    return pyarrow


def schema(columns: Sequence[Column]) -> Any:
    """Return the Parquet schema of columns."""
    pa = arrow()
    return pa.schema([pa.field(column.name, _type(pa, column), nullable=column.nullable) for column in columns])


def batch(columns: Sequence[Column], values: dict[str, list[Any]], count: int) -> Any:
    """Return charges as a record batch; times are seconds and decimals nano-units, and a column without values is null."""
    pa = arrow()
    arrays = [
        _array(pa, column, values[column.name]) if column.name in values else pa.nulls(count, _type(pa, column))
        for column in columns
    ]
    return pa.record_batch(arrays, schema=schema(columns))


def writer(path: Path, columns: Sequence[Column], kind: str) -> Writer:
    """Open a new file of charges."""
    arrow()
    if kind == "csv":
        return CsvWriter(path, columns)
    from pyarrow import parquet

    made: Writer = parquet.ParquetWriter(path, schema(columns), compression="zstd", version="2.6")
    return made


class CsvWriter:
    """CSV in UTF-8 with a line of names. Its cells are made column by column, its lines by one join."""

    def __init__(self, path: Path, columns: Sequence[Column]) -> None:
        self._columns = columns
        self._file = path.open("wb")
        self._file.write(",".join(column.name for column in columns).encode() + b"\n")

    def write_batch(self, batch: Any) -> None:
        """Add charges."""
        from pyarrow import compute

        cells = [_cells(column, array) for column, array in zip(self._columns, batch.columns, strict=True)]
        lines = compute.binary_join_element_wise(*cells, ",", null_handling="replace", null_replacement="")
        self._file.write("".join(f"{line}\n" for line in lines.to_pylist()).encode())

    def close(self) -> None:
        """End the file."""
        self._file.close()


def decimals(nanos: Sequence[int | None]) -> Any:
    """Return decimals with nine digits from nano-units, whose integers are the decimals' own: none is made one by one."""
    pa = arrow()
    whole = pa.array(nanos, pa.int64()).cast(pa.decimal128(PRECISION, 0))
    return pa.Array.from_buffers(pa.decimal128(PRECISION, SCALE), len(whole), whole.buffers(), whole.null_count)


def _type(pa: Any, column: Column) -> Any:
    return {
        "string": pa.string(),
        "json": pa.string(),
        "decimal": pa.decimal128(PRECISION, SCALE),
        "time": pa.timestamp("s", tz="UTC"),
        "integer": pa.int64(),
        "boolean": pa.bool_(),
    }[column.kind]


def _array(pa: Any, column: Column, values: list[Any]) -> Any:
    if column.kind == "decimal":
        return decimals(values)
    if column.kind == "time":
        return pa.array(values, pa.int64()).cast(_type(pa, column))
    return pa.array(values, _type(pa, column))


def _cells(column: Column, array: Any) -> Any:
    """Return a column as the texts that stand in a CSV file."""
    from pyarrow import compute

    pa = arrow()
    if column.kind == "decimal":
        return _digits(array)
    if column.kind == "time":
        return compute.strftime(array.cast(pa.int64()).cast(pa.timestamp("s")), format=_TIME)
    if column.kind in ("integer", "boolean"):
        return array.cast(pa.string())
    return compute.binary_join_element_wise('"', compute.replace_substring(array, '"', '""'), '"', "")


def _digits(array: Any) -> Any:
    """Return decimals as texts with all nine digits, never in scientific notation."""
    from pyarrow import compute

    pa = arrow()
    whole = pa.Array.from_buffers(
        pa.decimal128(PRECISION, 0), len(array), array.buffers(), array.null_count, array.offset
    )
    nano = whole.cast(pa.int64())
    units = compute.divide(compute.abs(nano), _NANO)
    rest = compute.subtract(compute.abs(nano), compute.multiply(units, _NANO))
    digits = compute.utf8_lpad(rest.cast(pa.string()), SCALE, "0")
    sign = compute.if_else(compute.less(nano, 0), "-", "")
    return compute.binary_join_element_wise(sign, units.cast(pa.string()), ".", digits, "")


def plain(column: Column, array: Any) -> list[Any]:
    """Return a Parquet column as plain values: nano-units, UTC seconds, texts; what has another type becomes texts."""
    pa = arrow()
    try:
        if column.kind == "decimal":
            if array.type != _type(pa, column):
                array = array.cast(_type(pa, column))
            buffers = array.buffers()
            array = pa.Array.from_buffers(
                pa.decimal128(PRECISION, 0), len(array), buffers, array.null_count, array.offset
            )
            return list(array.cast(pa.int64()).to_pylist())
        if column.kind == "time":
            if not pa.types.is_timestamp(array.type) or array.type.tz != "UTC":
                raise pa.ArrowInvalid("not a time in UTC")
            return list(array.cast(pa.timestamp("s", tz="UTC")).cast(pa.int64()).to_pylist())
        if array.type == _type(pa, column):
            return list(array.to_pylist())
    except pa.ArrowInvalid:
        pass
    return [None if one is None else str(one) for one in array.to_pylist()]


def read(path: Path, kind: str) -> Iterator[Any]:
    """Yield the record batches of a file; those of CSV hold texts and nulls only. Raises UserError for what is none."""
    pa = arrow()
    try:
        yield from (_read_csv(pa, path) if kind == "csv" else _read_parquet(path))
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        raise UserError(f"{path.name} cannot be read as {kind}: {str(error).splitlines()[0]}") from error


def _read_csv(pa: Any, path: Path) -> Iterator[Any]:
    from pyarrow import csv

    with path.open("rb") as file:
        names = file.readline().decode().rstrip("\r\n").split(",")
    convert = csv.ConvertOptions(
        column_types={name.strip('"'): pa.string() for name in names},
        null_values=[""],
        strings_can_be_null=True,
        quoted_strings_can_be_null=False,
    )
    with csv.open_csv(path, parse_options=csv.ParseOptions(newlines_in_values=True), convert_options=convert) as found:
        yield from found


def _read_parquet(path: Path) -> Iterator[Any]:
    from pyarrow import parquet

    with parquet.ParquetFile(path) as file:
        yield from file.iter_batches()
