"""Partition columns: rows are written into a folder, or a file, for each of their values."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from datetime import date, datetime
from decimal import Decimal
from typing import Any, Final
from urllib.parse import quote, unquote, urlsplit

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from evenflow.errors import SinkError

MOST_PLACES: Final = 1_000
"""Values of the partition columns in one commit of one writer: each is a file, and more of them are a mistake."""
NULL_PLACE: Final = "__HIVE_DEFAULT_PARTITION__"
"""What a folder of rows without a value is called, by the custom of Hive."""
EMPTY_PLACE: Final = "__EMPTY__"


def directory_of(path: str) -> str:
    """A local path or URI in one spelling, as far as that can be told from here."""
    parts = urlsplit(path)
    if parts.scheme in ("", "file"):
        return os.path.realpath(unquote(parts.path) if parts.scheme else path)
    return path.rstrip("/")


def is_text(type_: pa.DataType) -> bool:
    return bool(pa.types.is_string(type_) or pa.types.is_large_string(type_) or type_ == pa.string_view())


def check_partition_by(name: str, partition_by: Sequence[str], schema: pa.Schema) -> None:
    """Raise SinkError if rows of these columns cannot be told apart by them."""
    for column in partition_by:
        if column not in schema.names:
            raise SinkError(f"{name}: partition_by has {column!r}, and there is no such column; there are {', '.join(schema.names)}")
        type_ = schema.field(column).type
        fits = (pa.types.is_integer, pa.types.is_boolean, pa.types.is_date, pa.types.is_timestamp, pa.types.is_decimal, is_text)
        if not any(fit(type_) for fit in fits):
            raise SinkError(f"{name}: partition_by has {column!r}, which is {type_}; give text, whole numbers, dates, times or decimals")
    if partition_by and set(schema.names) <= set(partition_by):
        raise SinkError(f"{name}: all columns are in partition_by, so nothing is left for the files; leave one out")


def split_by(table: pa.Table, columns: Sequence[str], name: str = "a sink") -> Iterator[tuple[dict[str, Any], pa.Table]]:
    """The values of the columns and the rows that have them, in order of first appearance; rows keep their order. Raises SinkError for
    too many."""
    if not columns:
        yield {}, table
        return
    keys = table.select(list(columns)).combine_chunks()
    codes = np.zeros(table.num_rows, np.int64)
    for column in keys.columns:
        encoded = column.combine_chunks().dictionary_encode(null_encoding="encode")
        own = np.asarray(encoded.indices, np.int64)
        _, codes = np.unique(codes * (len(encoded.dictionary) + 1) + own, return_inverse=True)
    found, first, owners = np.unique(codes, return_index=True, return_inverse=True)
    if len(found) > MOST_PLACES:
        raise SinkError(
            f"{name}: {len(found):,} values of {', '.join(columns)} in one commit would be as many files; partition_by takes columns with "
            f"few values, at most {MOST_PLACES:,} at a time, such as a date"
        )
    order = np.argsort(owners, kind="stable")
    bounds = np.searchsorted(owners[order], np.arange(len(found) + 1))
    for code in np.argsort(first).tolist():
        mine = order[bounds[code] : bounds[code + 1]]
        values = {column: keys.column(column)[int(first[code])].as_py() for column in columns}
        yield values, table.take(pa.array(mine))


def without_empty(table: pa.Table, columns: Sequence[str]) -> pa.Table:
    """The table with no value where a text is empty: in a log or a folder's name those are the same."""
    for name in columns:
        at = table.schema.get_field_index(name)
        if is_text(table.schema.field(at).type):
            column = table.column(at)
            table = table.set_column(at, name, pc.if_else(pc.equal(column, ""), pa.scalar(None, column.type), column))
    return table


def value_text(value: Any) -> str | None:
    """A value of a partition column as Delta's log and Hive's folders have it."""
    if value is None:
        return None
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, datetime):
        return value.replace(tzinfo=None).isoformat(" ", "microseconds")
    if isinstance(value, date):
        return value.isoformat()
    return f"{value:f}" if isinstance(value, Decimal) else str(value)


def place_of(values: Mapping[str, Any]) -> str:
    """The folder of rows with these values, with a slash behind it: `day=2026-11-23/`; "" without any."""
    texts = ((quote(name, safe=""), value_text(value)) for name, value in values.items())
    return "".join(f"{name}={NULL_PLACE if text is None else quote(text or EMPTY_PLACE, safe=' ')}/" for name, text in texts)


__all__ = ["check_partition_by", "is_text", "place_of", "split_by", "value_text", "without_empty"]
