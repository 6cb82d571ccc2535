"""Files of rows: which there are, their schema, and their batches one after the other.

The columns of Evenflow are a subset of Arrow's types, so every file's columns are brought to them (timestamps to microseconds,
dictionaries to their values). What a file is not able to give is a SourceError that names the file and the place in it.
"""

from __future__ import annotations

import glob
import os
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from typing import Any, Final, Literal

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pa_csv
import pyarrow.json as pa_json
import pyarrow.parquet as pq

from evenflow.errors import SchemaChanged, SourceError
from evenflow.sources.decimals import check_decimals, far, has_decimal
from evenflow.sources.json_rows import needs_reading, rows_of
from evenflow.sources.packets import SCHEMA as PACKETS
from evenflow.sources.pcap import batches as pcap_batches
from evenflow.sources.places import ending_of, is_remote, listed, opened, shown, size_of

Format = Literal["parquet", "csv", "tsv", "json", "arrow", "pcap"]
ENDINGS: Final[dict[str, Format]] = {
    ".parquet": "parquet", ".csv": "csv", ".tsv": "tsv", ".json": "json", ".jsonl": "json", ".ndjson": "json",
    ".arrow": "arrow",
    ".feather": "arrow", ".ipc": "arrow", ".arrows": "arrow", ".pcap": "pcap", ".cap": "pcap", ".pcapng": "pcap",
}  # fmt: skip
BATCH_ROWS: Final = 65536
BLOCK_BYTES: Final = 1 << 20
LAST_US: Final = 2**63 - 1


@dataclass(slots=True)
class Skip:
    """The first rows of a partition, which are left out. left: how many still. last: those that were cut off last, if any were."""

    left: int = 0
    last: pa.RecordBatch | None = None

    def cut(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The rows of a batch that are not left out."""
        if not self.left:
            return batch
        count = min(self.left, batch.num_rows)
        self.left -= count
        if count:
            self.last = batch.slice(0, count)
        return batch.slice(count)


def list_files(path: str) -> tuple[str, ...]:
    """The files at a path, in a directory (hidden ones left out) or of a glob pattern, sorted. Raises SourceError if there is
    none.
    """
    if is_remote(path):
        files = listed(path)
    elif os.path.isdir(path):
        files = [e.path for e in os.scandir(path) if e.is_file() and not e.name.startswith(("_", "."))]
    else:
        files = [path] if os.path.isfile(path) else [f for f in glob.glob(path) if os.path.isfile(f)]
    if not files:
        raise SourceError(
            f"replay source: there is no file at {shown(path)}; give a file, a directory or a glob pattern that every executor can read"
        )
    return tuple(sorted(f if is_remote(f) else os.path.abspath(f) for f in files))


def format_of(file: str) -> Format:
    """The format that a file's name tells. Raises SourceError for an unknown ending."""
    ending = ending_of(file)
    if ending not in ENDINGS:
        raise SourceError(
            f"replay source: cannot tell the format of {shown(file)}; give format= one of {', '.join(sorted(set(ENDINGS.values())))}"
        )
    return ENDINGS[ending]


def plain_type(type_: pa.DataType) -> pa.DataType:
    """The type that a column of this type has inside Evenflow."""
    if pa.types.is_timestamp(type_):
        return pa.timestamp("us", type_.tz and "UTC")  # A zone is how a moment is shown.
    if pa.types.is_dictionary(type_):
        return plain_type(type_.value_type)
    if pa.types.is_large_string(type_) or type_ == pa.string_view():
        return pa.string()
    if pa.types.is_large_binary(type_) or pa.types.is_fixed_size_binary(type_):
        return pa.binary()
    if pa.types.is_null(type_):
        return pa.string()
    if pa.types.is_nested(type_):
        return _inside(type_, plain_type)
    widened = {
        pa.uint8(): pa.int16(),
        pa.uint16(): pa.int32(),
        pa.uint32(): pa.int64(),
        pa.float16(): pa.float32(),
        pa.date64(): pa.date32(),
    }
    return widened.get(type_, type_)


def _inside(type_: pa.DataType, of: Callable[[pa.DataType], pa.DataType]) -> pa.DataType:
    """A list, a map or a structure with other types in it, any of which may be null; any other type as `of` has it."""
    if pa.types.is_struct(type_):
        return pa.struct([pa.field(field.name, _inside(field.type, of)) for field in type_])
    if pa.types.is_map(type_):
        return pa.map_(_inside(type_.key_type, of), _inside(type_.item_type, of))
    return pa.list_(_inside(type_.value_type, of)) if hasattr(type_, "value_type") and pa.types.is_nested(type_) else of(type_)


def plain_schema(schema: pa.Schema) -> pa.Schema:
    """The schema with Evenflow's types and without metadata."""
    return pa.schema([pa.field(f.name, plain_type(f.type)) for f in schema])


def conform(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """The batch with exactly this schema, whose names it has in some order. Nanoseconds are cut to microseconds.

    Raises SourceError for a timestamp of seconds or milliseconds that microseconds cannot hold.
    """
    if batch.schema.equals(schema, check_metadata=True):
        return batch
    arrays = []
    for field in schema:
        column = batch.column(field.name)
        if pa.types.is_dictionary(column.type):
            column = column.dictionary_decode()
        if pa.types.is_timestamp(column.type) and pa.types.is_timestamp(field.type):
            column = _micros(column, field.name)
        elif pa.types.is_nested(column.type) and column.type != field.type:
            column = _micros_inside(column, field.name)
        arrays.append(column if column.type == field.type else column.cast(field.type))
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _micros(column: pa.Array, name: str) -> pa.Array:
    """A timestamp column in microseconds."""
    type_ = pa.timestamp("us", column.type.tz)
    if column.type.unit in ("us", "ns"):
        return column.cast(type_, safe=False)
    try:
        return column.cast(type_)
    except pa.ArrowInvalid:
        most = LAST_US // (1_000_000 if column.type.unit == "s" else 1_000)
        values = column.cast(pa.int64())
        row = int(pc.index(pc.or_(pc.greater(values, most), pc.less(values, -most)), True).as_py())
    raise SourceError(
        f"column {name!r}: {values[row]} as {column.type} (value {row} of its batch) is no time in microseconds, which end in the years "
        "-290308 and 294247; is the column's unit right?"
    )


def _micros_inside(column: pa.Array, name: str) -> pa.Array:
    """A nested column of Evenflow's types. Nanoseconds are cut, and nothing else loses anything."""
    try:
        exact = column.cast(_inside(column.type, lambda kind: kind if _is_nanos(kind) else plain_type(kind)))
    except pa.ArrowInvalid as error:
        raise SourceError(f"column {name!r}: {error}; is the unit of a time in it right?") from error
    return exact.cast(plain_type(column.type), safe=False)


def _is_nanos(kind: pa.DataType) -> bool:
    return bool(pa.types.is_timestamp(kind) and kind.unit == "ns")


def check_schema(file: str, found: pa.Schema, declared: pa.Schema) -> None:
    """Raises SchemaChanged, naming the columns, unless `found` has the columns of `declared`, in any order."""
    types, wanted = {f.name: plain_type(f.type) for f in found}, {f.name: plain_type(f.type) for f in declared}
    complaints = [f"column {n!r} is missing" for n in wanted if n not in types]
    complaints += [f"column {n!r} is new" for n in types if n not in wanted]
    complaints += [f"column {n!r} is {types[n]}, not {wanted[n]}" for n in wanted if n in types and types[n] != wanted[n]]
    if complaints:
        raise SchemaChanged(
            f"{shown(file)} does not have the declared schema: {'; '.join(complaints)}. Give schema=, or replay files of one schema"
        )


def delimited(file: str, format_: Format, schema: pa.Schema | None) -> pa.RecordBatchReader:
    """A CSV or TSV file with a header line. TSV has no quotes."""
    # Without the last of these a block of a file may end within quotes, and what is left of the value is a row.
    parse = pa_csv.ParseOptions(delimiter="\t", quote_char=False) if format_ == "tsv" else pa_csv.ParseOptions(newlines_in_values=True)
    types = {f.name: f.type for f in schema} if schema is not None else {}
    read = pa_csv.ReadOptions(use_threads=False, block_size=BLOCK_BYTES)  # Without threads, errors tell the row.
    decimals = {name: type_ for name, type_ in types.items() if has_decimal(type_)}
    if decimals and any(map(far, _whole_lines(file))):  # It is read once more, which few files are.
        texts = pa_csv.ConvertOptions(column_types=dict.fromkeys(decimals, pa.string()), include_columns=list(decimals))
        for batch in pa_csv.open_csv(opened(file), read, parse, texts):
            for name, type_ in decimals.items():
                check_decimals(name, [text for text in batch.column(name).to_pylist() if far(text.encode())], type_)
    return pa_csv.open_csv(opened(file), read, parse, pa_csv.ConvertOptions(column_types=types))


def _whole_lines(file: str) -> Iterator[bytes]:
    """A file in parts of some lines each, none of them cut."""
    with opened(file) if is_remote(file) else open(file, "rb") as source:
        rest = b""
        while part := source.read(BLOCK_BYTES):
            lines, newline, rest = (rest + part).rpartition(b"\n")
            if newline:
                yield lines + newline
        if rest:
            yield rest + b"\n"


def json_lines(file: str, schema: pa.Schema | None) -> Iterator[pa.RecordBatch]:
    """A file of one JSON object per line. Fields that the schema lacks are an error."""
    if schema is not None and (needs_reading(schema) or any(has_decimal(field.type) for field in schema)):
        return json_in_parts(file, schema)
    return iter(pa_json.open_json(opened(file), pa_json.ReadOptions(use_threads=False, block_size=BLOCK_BYTES), _strict(schema)))


def json_in_parts(file: str, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Those of which Arrow cannot be given all: maps, and decimals that are looked at first."""
    maps = needs_reading(schema)
    for lines in _whole_lines(file):
        if maps or far(lines):
            yield rows_of(lines.split(b"\n"), schema, strict=True)
        elif lines.strip():
            read = pa_json.ReadOptions(use_threads=False, block_size=len(lines) + 1)
            yield from pa_json.read_json(pa.BufferReader(lines), read, _strict(schema)).to_batches()


def _strict(schema: pa.Schema | None) -> pa_json.ParseOptions:
    return pa_json.ParseOptions(explicit_schema=schema, unexpected_field_behavior="infer")


def arrow_batches(file: str) -> Iterator[pa.RecordBatch]:
    """An Arrow IPC file or stream. It is read, and not mapped: who cuts off a file that is mapped ends the process. Raises ArrowInvalid for
    offsets that lead out of what is there: nobody who reads rows looks at them, and behind them is somebody else's memory."""
    with opened(file) if is_remote(file) else pa.OSFile(file) as source:
        for batch in _arrow_batches(source):
            batch.validate(full=True)
            yield batch


def _arrow_batches(source: Any) -> Iterator[pa.RecordBatch]:
    if source.read(6) == b"ARROW1":
        reader = pa.ipc.open_file(source)
        yield from (reader.get_batch(i) for i in range(reader.num_record_batches))
        return
    source.seek(0)
    yield from pa.ipc.open_stream(source)


def parquet_file(file: Any) -> pq.ParquetFile:
    """A Parquet file. Its INT96, in which Spark has long written times, are microseconds: nanoseconds would end in the year 2262."""
    return pq.ParquetFile(file, coerce_int96_timestamp_unit="us")


def without_zones(type_: pa.DataType) -> pa.DataType:
    """The type in Evenflow, whose times are of no zone."""
    return _inside(plain_type(type_), lambda kind: pa.timestamp("us") if pa.types.is_timestamp(kind) else kind)


def parquet_batches(
    file: str, schema: pa.Schema | None, groups: Callable[[int], bool], skip: Skip, only: Collection[str] | None
) -> Iterator[pa.RecordBatch]:
    """Those row groups of a Parquet file whose number `groups` accepts, and of them the columns that are wanted.

    Row groups that are left out whole are not read, except the one with the last row left out: its time tells where a pace goes on.
    """
    with parquet_file(opened(file)) as source:
        if schema is not None:
            check_schema(file, source.schema_arrow, schema)
        chosen = [g for g in range(source.num_row_groups) if groups(g)]
        while chosen and (rows := source.metadata.row_group(chosen[0]).num_rows) < skip.left:
            skip.left -= rows
            del chosen[0]
        if not chosen:
            yield pa.RecordBatch.from_pylist([], schema=source.schema_arrow)
            return
        # A site has one core: to deal columns out to threads costs more than they gain.
        yield from source.iter_batches(BATCH_ROWS, row_groups=chosen, columns=wanted_of(source, only), use_threads=False)


def wanted_of(source: pq.ParquetFile, only: Collection[str] | None) -> list[str] | None:
    """The columns of a file that are to be read, those of these names; None: all. A name with a dot would be taken for a field's."""
    names: list[str] = source.schema_arrow.names
    if only is None or any("." in name for name in names):
        return None
    return [name for name in names if name in only]


def raw_batches(
    file: str, format_: Format, schema: pa.Schema | None, groups: Callable[[int], bool], skip: Skip, only: Collection[str] | None = None
) -> Iterator[pa.RecordBatch]:
    """Batches of one file as they are, without some that `skip` leaves out, and perhaps without columns that are not wanted."""
    if format_ == "parquet":
        return parquet_batches(file, schema, groups, skip, only)
    if format_ in ("csv", "tsv", "json") and schema is not None and not size_of(file):
        return iter(())  # Of a task that had no rows.
    if format_ in ("csv", "tsv"):
        return iter(delimited(file, format_, schema))
    if format_ == "json":
        return json_lines(file, schema)
    if format_ == "arrow":
        return arrow_batches(file)
    if is_remote(file):
        raise SourceError(f"{shown(file)}: captures are read from a disk; copy it to one that every site sees")
    return pcap_batches(file, BATCH_ROWS)


def every_group(group: int) -> bool:
    return True


def file_batches(
    file: str, format_: Format, schema: pa.Schema | None, groups: Callable[[int], bool] = every_group, skip: Skip | None = None,
    only: Collection[str] | None = None,
) -> Iterator[pa.RecordBatch]:  # fmt: skip
    """The batches of one file in the declared schema, or in its own brought to Evenflow's types.

    groups: which row groups of a Parquet file. skip: rows to leave out, counted down. only: of the declared columns those that are wanted.
    Raises SourceError naming the file and how far it could be read, SchemaChanged.
    """
    skip = skip if skip is not None else Skip()
    rows, left = 0, skip.left
    wanted = schema if schema is None or only is None else pa.schema([field for field in schema if field.name in only])
    try:
        for batch in raw_batches(file, format_, schema, groups, skip, only):
            if schema is not None and format_ != "parquet":
                check_schema(file, batch.schema, schema)
            try:
                whole = conform(batch, wanted if wanted is not None else plain_schema(batch.schema))
            except SourceError as error:
                raise SourceError(f"{shown(file)}, behind row {left - skip.left + rows}: {error}") from None
            given = skip.cut(whole)
            yield given
            rows += given.num_rows
    except (pa.ArrowException, OSError, ValueError) as error:
        raise broken(file, left - skip.left + rows, error) from error


def broken(file: str, rows: int, error: Exception) -> SourceError:
    """What is wrong with a file, and after how many good rows."""
    size = "in a store" if is_remote(file) else f"{os.path.getsize(file)} bytes long" if os.path.exists(file) else "not there"
    return SourceError(
        f"{shown(file)} (the file is {size}) cannot be read beyond row {rows}: {error}. It is truncated, damaged, or of another format; "
        "repair it, leave it out, or give format= and schema="
    )


def schema_of(file: str, format_: Format) -> pa.Schema:
    """The schema of one file, in Evenflow's types, from its metadata or its first rows. Raises SourceError."""
    if format_ == "pcap":
        return PACKETS
    try:
        if format_ == "parquet":
            with parquet_file(opened(file)) as source:
                return plain_schema(source.schema_arrow)
        if format_ in ("csv", "tsv"):
            return plain_schema(delimited(file, format_, None).schema)
        return plain_schema(next(iter(raw_batches(file, format_, None, every_group, Skip()))).schema)
    except StopIteration:
        raise SourceError(f"{shown(file)} has no rows to take a schema from; give schema=") from None
    except (pa.ArrowException, OSError, ValueError) as error:
        raise broken(file, 0, error) from error


def row_groups(file: str) -> int:
    """How many row groups a Parquet file has."""
    try:
        metadata: Any = pq.read_metadata(opened(file))
    except (pa.ArrowException, OSError) as error:
        raise broken(file, 0, error) from error
    return int(metadata.num_row_groups)
