"""Files of charges: Parquet with DECIMAL(38, 9), and CSV with the same digits; written and read in batches.

In CSV a text is quoted and a null is nothing, so an empty text and a null stay two things. pyarrow is imported here and in
`lines`, when files are made or read, and nowhere else.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Protocol

from trainlet.core.errors import UserError
from trainlet_functions.exports import formats, lines
from trainlet_functions.exports.charges import Lot
from trainlet_functions.exports.columns import PRECISION, SCALE, Column

FORMATS = ("parquet", "csv")


class Writer(Protocol):
    """What a new file of charges is written with."""

    def write(self, batch: Batch) -> None:
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


class Batch:
    """Charges as arrays: of what many of them share, one value for each of their kinds. An array is made once."""

    def __init__(self, columns: Sequence[Column], lot: Lot) -> None:
        pa = arrow()
        self.columns, self.lot = columns, lot
        self.places = pa.array(lot.places, pa.int32())
        self._known: dict[tuple[str, int], tuple[Any, Any]] = {}

    def own(self, column: Column) -> Any:
        """Return a column of values that charges have of their own."""
        return self._once(column.kind, self.lot.own[column.name], lambda values: _own_array(column, values))

    def cells(self, column: Column) -> Any:
        """Return such a column as texts."""
        return self._once(f"{column.kind}-cells", self.lot.own[column.name], lambda _: _cells(column, self.own(column)))

    def record_batch(self) -> Any:
        """Return all columns, each with a value for every charge; a column without values is null."""
        pa = arrow()
        arrays = []
        for column in self.columns:
            values = self.lot.shared.get(column.name)
            if column.name in self.lot.own:
                arrays.append(self.own(column))
            elif values is None:
                arrays.append(pa.nulls(len(self.lot.rows), _type(pa, column)))
            else:
                arrays.append(_array(pa, column, values).take(self.places))
        return pa.record_batch(arrays, schema=schema(self.columns))

    def _once(self, what: str, values: Any, make: Callable[[Any], Any]) -> Any:
        key = (what, id(values))
        if key not in self._known:
            self._known[key] = (values, make(values))  # holds the values, too, so that no others get their id
        return self._known[key][1]


def writer(path: Path, columns: Sequence[Column], kind: str) -> Writer:
    """Open a new file of charges."""
    arrow()
    return CsvWriter(path, columns) if kind == "csv" else ParquetWriter(path, columns)


class ParquetWriter:
    """Parquet, a row group for each batch."""

    def __init__(self, path: Path, columns: Sequence[Column]) -> None:
        from pyarrow import parquet

        self._file = parquet.ParquetWriter(path, schema(columns), compression="zstd", version="2.6")

    def write(self, batch: Batch) -> None:
        """Add charges."""
        self._file.write_batch(batch.record_batch())

    def close(self) -> None:
        """End the file."""
        self._file.close()


class CsvWriter:
    """CSV in UTF-8 with a line of names."""

    def __init__(self, path: Path, columns: Sequence[Column]) -> None:
        self._columns = columns
        self._file = path.open("wb")
        self._file.write(",".join(column.name for column in columns).encode() + b"\n")

    def write(self, batch: Batch) -> None:
        """Add charges."""
        made = lines.Lines(batch.places, len(batch.lot.kinds))
        for number, column in enumerate(self._columns):
            made.same("," if number else "")
            if column.name in batch.lot.own:
                quoted = column.kind in ("string", "json") and not batch.own(column).null_count
                made.same('"' if quoted else "")
                made.own(batch.cells(column))
                made.same('"' if quoted else "")
            elif column.name in batch.lot.shared:
                made.shared([_cell(column, value) for value in batch.lot.shared[column.name]])
        made.same("\n")
        self._file.write(made.bytes())

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


def _array(pa: Any, column: Column, values: Sequence[Any]) -> Any:
    if column.kind == "decimal":
        return decimals(values)
    if column.kind == "time":
        return pa.array(values, pa.int64()).cast(_type(pa, column))
    return pa.array(values, _type(pa, column))


def _own_array(column: Column, values: Sequence[Any]) -> Any:
    from pyarrow import compute

    pa = arrow()
    array = _array(pa, column, values)
    if column.nullable and column.kind in ("string", "json") and "" in values:
        return compute.if_else(compute.equal(array, ""), pa.scalar(None, array.type), array)
    return array


def _cells(column: Column, array: Any) -> Any:
    """Return a column as the texts that stand in a CSV file, without quotes around them where none is null."""
    from pyarrow import compute

    pa = arrow()
    if column.kind == "decimal":
        return lines.digits(array.view(pa.decimal128(PRECISION, 0)).cast(pa.int64()), SCALE)
    if column.kind == "time":
        return lines.moments(array.cast(pa.int64()))
    if column.kind == "integer":
        return array.cast(pa.string())
    if compute.any(compute.match_substring(array, '"')).as_py():
        array = compute.replace_substring(array, '"', '""')
    return compute.binary_join_element_wise('"', array, '"', "") if array.null_count else array


def _cell(column: Column, value: Any) -> str:
    """Return one value as the text that stands in a CSV file."""
    if value is None:
        return ""
    if column.kind == "decimal":
        units, rest = divmod(abs(value), 10**SCALE)
        return f"{'-' if value < 0 else ''}{units}.{rest:0{SCALE}}"
    if column.kind == "time":
        return formats.moment(value)
    if column.kind == "boolean":
        return "true" if value else "false"
    if column.kind == "integer":
        return str(value)
    text: str = value.replace('"', '""')
    return f'"{text}"'


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
