"""Messages of JSON, CSV and text as rows, parsed as the lines of one text: at once, which is many times faster than one by one.

What a message is must not depend on what came with it: whoever reads again gets other messages at once. So that text is taken only if it
is sure to be what the messages are one by one, and has a row of each.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final, Literal

import pyarrow as pa

from evenflow.sources.tcp import parse_lines

JSON_SPACE: Final = b" \t\r\n"
FIELD: Final = rb'(?:"[^"\r\n]*+(?:""[^"\r\n]*+)*+"[^,\r\n]*+|(?!")[^,\r\n]*+)'
CSV_LINE: Final = re.compile(FIELD + rb"(?:," + FIELD + rb")*+")
"""A line whose quotes are all closed. A quote in the middle of a field is a letter."""
MARK: Final = b"\xef\xbb\xbf"
"""Of UTF-8. It is left out at the begin of a text, and is part of a field elsewhere."""


def parse_messages(
    values: Sequence[bytes | None], columns: pa.Schema, format_: Literal["json", "csv", "text"]
) -> pa.RecordBatch | None:  # fmt: skip
    """A row per message; None if one of them is not one row of the schema, or if that is only known by parsing each by itself."""
    try:
        if format_ == "text":
            texts = pa.array([None if value is None else value.decode() for value in values], pa.string())
            return pa.RecordBatch.from_arrays([texts], schema=columns)
        data = _objects(values) if format_ == "json" else _lines(values)
        rows = None if data is None else parse_lines(data, columns, format_)
    except (pa.ArrowInvalid, pa.ArrowKeyError, UnicodeDecodeError):
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


__all__ = ["parse_messages"]
