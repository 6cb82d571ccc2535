"""Debezium's envelopes as changes: what a row of a database was and is becomes rows of a changelog (decision 34).

    op c, r    the row after, `insert`
    op u       the row before, `update_before`, and directly behind it the row after, `update_after`
    op d       the row before, `delete`
    none       a tombstone behind a deletion, and what is no change (op m): no row

A message is up to two rows, so an offset is no place in the stream of rows. Their place is twice the offset, and one more for the last row
of a message: whoever goes on from a place knows the offset, and whether the first of two rows has been given.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any, Final

import pyarrow as pa

from evenflow.sources.json_rows import UNREADABLE, check_numbers
from evenflow.stream.change import CHANGE, CHANGE_FIELD

POSITION: Final = "kafka_position"
SEMANTIC: Final[Mapping[str, pa.DataType]] = {
    "io.debezium.time.Date": pa.date32(),
    "io.debezium.time.Timestamp": pa.timestamp("ms"),
    "io.debezium.time.MicroTimestamp": pa.timestamp("us"),
    "io.debezium.time.NanoTimestamp": pa.timestamp("ns"),
    "org.apache.kafka.connect.data.Timestamp": pa.timestamp("ms"),
    "org.apache.kafka.connect.data.Date": pa.date32(),
}
"""What a number stands for, by the name that the envelope's schema gives it."""


class Misfit(Exception):
    """A message is no change of rows of the schema, and why."""


def changes_of(value: bytes | None) -> tuple[list[tuple[str, Mapping[str, Any]]], Mapping[str, pa.DataType]]:
    """(change, row) of an envelope in JSON, and what numbers of its columns stand for. Raises Misfit."""
    if value is None:
        return [], {}
    try:
        said = json.loads(value, parse_float=Decimal)
    except UNREADABLE as error:
        raise Misfit(f"it is not JSON ({error})") from error
    if not isinstance(said, dict):
        raise Misfit("it is no object")
    units: dict[str, pa.DataType] = {}
    if "payload" in said and "schema" in said:
        try:
            for part in (said["schema"] or {}).get("fields", ()):
                if part.get("field") in ("before", "after"):
                    units |= {each["field"]: SEMANTIC[each["name"]] for each in part.get("fields", ()) if each.get("name") in SEMANTIC}
        except (AttributeError, KeyError, TypeError) as error:
            raise Misfit("its 'schema' is none of Kafka Connect's") from error
        said = said["payload"]
    return ([] if said is None else changes(said)), units


def changes(envelope: Any) -> list[tuple[str, Mapping[str, Any]]]:
    """(change, row) of an envelope. Raises Misfit."""
    if not isinstance(envelope, Mapping) or not isinstance(envelope.get("op"), str):
        raise Misfit("it is no envelope of Debezium: there is no 'op'; is the connector's 'unwrap' transformation on?")
    op, before, after = envelope["op"], envelope.get("before"), envelope.get("after")
    if op in ("c", "r") and isinstance(after, Mapping):
        return [("insert", after)]
    if op == "m":
        return []
    if op not in ("u", "d"):
        raise Misfit(f"its op is {op!r}, which is no change of a row")
    if not isinstance(before, Mapping):
        raise Misfit("it does not say what the row was before; in PostgreSQL: ALTER TABLE ... REPLICA IDENTITY FULL")
    if op == "u" and isinstance(after, Mapping):
        return [("update_before", before), ("update_after", after)]
    if op == "d":
        return [("delete", before)]
    raise Misfit(f"its op is {op!r}, which is no change of a row")


class DebeziumDecoder:
    """columns: of the database's table."""

    def __init__(self, columns: pa.Schema) -> None:
        self._columns = columns
        self.schema = pa.schema([*columns, CHANGE_FIELD])

    def rows(self, value: bytes | None) -> pa.RecordBatch:
        """The rows of one message, none to two. Raises Misfit."""
        found, units = changes_of(value)
        return self.batch([found], units)

    def batch(self, found: Sequence[Sequence[tuple[str, Mapping[str, Any]]]], units: Mapping[str, pa.DataType]) -> pa.RecordBatch:
        """The rows of some messages whose numbers stand for the same. Raises Misfit."""
        flat = [change for changes_ in found for change in changes_]
        arrays = []
        for column in self._columns:
            missing = next((row for _, row in flat if column.name not in row), None)
            if missing is not None:
                raise Misfit(f"there is no column {column.name!r}; there are {', '.join(missing)}")
            try:
                arrays.append(_array([row[column.name] for _, row in flat], column.type, units.get(column.name)))
            except (pa.ArrowException, TypeError, AttributeError, *UNREADABLE) as error:
                raise Misfit(f"column {column.name!r} is not {column.type}: {error}") from error
        return pa.RecordBatch.from_arrays([*arrays, pa.array([change for change, _ in flat], pa.string())], schema=self.schema)


def _array(values: list[Any], type_: pa.DataType, unit: pa.DataType | None) -> pa.Array:
    """Values of JSON as a column. Raises TypeError, ValueError and what UNREADABLE and Arrow have for those that it cannot have."""
    check_numbers(values, type_)
    if pa.types.is_timestamp(type_) or pa.types.is_date(type_):
        if any(isinstance(value, int) for value in values):
            if unit is None:
                raise ValueError("a number, and the message does not say in which unit: let the converter write schemas (schemas.enable)")
            plain = pa.array(values, pa.int32() if pa.types.is_date(unit) else pa.int64()).cast(unit)
            return plain.cast(pa.timestamp("us"), safe=False).cast(type_) if pa.types.is_timestamp(unit) else plain.cast(type_)
        return pa.array(values, pa.string()).cast(type_)
    if pa.types.is_decimal(type_):
        return pa.array([None if value is None else Decimal(str(value)) for value in values], type_)
    if pa.types.is_binary(type_):
        return pa.array([None if value is None else base64.b64decode(value) for value in values], type_)
    if pa.types.is_floating(type_):
        return pa.array([None if value is None else float(value) for value in values], type_)
    if pa.types.is_string(type_) and any(value is not None and not isinstance(value, str) for value in values):
        raise ValueError("it is no text")
    return pa.array(values, type_)


__all__ = ["CHANGE", "POSITION", "DebeziumDecoder", "Misfit"]
