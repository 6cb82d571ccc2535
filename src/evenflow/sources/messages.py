"""Messages and lines of JSON, CSV and text as rows, parsed as the lines of one text: at once, which is many times faster than one by one.

What a message is must not depend on what came with it: whoever reads again gets other messages at once. So that text is taken only if it
is sure to be what the messages are one by one, and has a row of each.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final, Literal

import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.json as pa_json

from evenflow.sources.decimals import check_decimals, far, has_decimal
from evenflow.sources.json_rows import needs_reading, object_of, rows_of

LineFormat = Literal["csv", "json", "text"]
JSON_SPACE: Final = b" \t\r\n"
FIELD: Final = rb'(?:"[^"\r\n]*+(?:""[^"\r\n]*+)*+"[^,\r\n]*+|(?!")[^,\r\n]*+)'
CSV_LINE: Final = re.compile(FIELD + rb"(?:," + FIELD + rb")*+")
"""A line whose quotes are all closed. A quote in the middle of a field is a letter."""
UNFIT: Final = (pa.ArrowInvalid, pa.ArrowKeyError, UnicodeDecodeError)
"""What `parse_lines` raises of a line that does not fit."""
MARK: Final = b"\xef\xbb\xbf"
"""Of UTF-8. It is left out at the begin of a text, and is part of a field elsewhere."""


def parse_lines(data: bytes, schema: pa.Schema, format_: LineFormat) -> pa.RecordBatch:
    """Whole lines as rows. data ends with a newline; empty lines are skipped. Raises one of UNFIT if any line is bad."""
    if format_ == "text":
        lines = [line.rstrip("\r") for line in data.decode().split("\n")[:-1]]
        return pa.RecordBatch.from_arrays([pa.array([line for line in lines if line], pa.string())], schema=schema)
    if not data.strip():
        return pa.RecordBatch.from_pylist([], schema=schema)
    if format_ == "json" and needs_reading(schema):
        return rows_of(data.split(b"\n"), schema, strict=False)
    _check_decimals(data, schema, format_)
    if format_ == "csv":
        table = _csv(data, schema)
    else:
        parse = pa_json.ParseOptions(explicit_schema=schema, unexpected_field_behavior="ignore")
        table = pa_json.read_json(pa.BufferReader(data), pa_json.ReadOptions(use_threads=False, block_size=max(len(data), 1)), parse)
    batch = table.select(schema.names).combine_chunks().to_batches()
    return pa.RecordBatch.from_arrays(batch[0].columns, schema=schema) if batch else pa.RecordBatch.from_pylist([], schema=schema)


def _csv(data: bytes, schema: pa.Schema) -> pa.Table:
    read = pa_csv.ReadOptions(column_names=schema.names, use_threads=False, block_size=max(len(data), 1))
    types = pa_csv.ConvertOptions(column_types={field.name: field.type for field in schema})
    return pa_csv.read_csv(pa.BufferReader(data), read, convert_options=types)


def _check_decimals(data: bytes, schema: pa.Schema, format_: LineFormat) -> None:
    """Raises pa.ArrowInvalid for a decimal that has far more places than its column: of 1e-999999999 Arrow's readers end the process."""
    decimals = [field for field in schema if has_decimal(field.type)]
    if not decimals or not (found := far(data)):
        return
    if format_ == "csv":
        texts = _csv(data, pa.schema([pa.field(field.name, pa.string() if field in decimals else field.type) for field in schema]))
        given = [[text for text in texts[field.name].to_pylist() if far(text.encode())] for field in decimals]
    else:
        starts = sorted({data.rfind(b"\n", 0, at) + 1 for at in found})
        rows = [object_of(data[start : data.index(b"\n", start)]) for start in starts]
        given = [[row.get(field.name) for row in rows] for field in decimals]
    for field, values in zip(decimals, given, strict=True):
        check_decimals(field.name, values, field.type)


def parse_messages(values: Sequence[bytes | None], columns: pa.Schema, format_: LineFormat) -> pa.RecordBatch | None:
    """A row per message; None if one of them is not one row of the schema, or if that is only known by parsing each by itself."""
    try:
        if format_ == "text":
            texts = pa.array([None if value is None else value.decode() for value in values], pa.string())
            return pa.RecordBatch.from_arrays([texts], schema=columns)
        data = _objects(values) if format_ == "json" else _lines(values)
        rows = None if data is None else parse_lines(data, columns, format_)
    except UNFIT:
        return None
    return rows if rows is not None and rows.num_rows == len(values) else None


def _objects(values: Sequence[bytes | None]) -> bytes | None:
    """A line for each, None if one may go on in the next.

    What ends with a bracket and is followed by one that opens is followed by another object: no string has a line break, and inside of an
    object a comma would come first.
    """
    lines = [value.strip(JSON_SPACE) for value in values if value is not None]
    data = b"\n".join([*lines, b""])
    if data.count(b"\n") != len(lines):  # A line break inside a message is white space in JSON.
        data = b"\n".join([*(line.replace(b"\n", b" ") for line in lines), b""])
    apart = data.startswith(b"{") and data.endswith(b"}\n") and data.count(b"}\n{") == len(lines) - 1
    return data if apart or len(lines) == 1 else None


def _lines(values: Sequence[bytes | None]) -> bytes | None:
    """A line for each, None if one may go on in the next or have several."""
    lines = [value.rstrip(b"\r\n") for value in values if value is not None]
    data = b"\n".join([*lines, b""])
    if len(lines) == 1:
        return data
    if b"\r" in data or data.count(b"\n") != len(lines) or MARK in data:
        return None
    return data if b'"' not in data or all(map(CSV_LINE.fullmatch, lines)) else None


__all__ = ["UNFIT", "LineFormat", "parse_lines", "parse_messages"]
