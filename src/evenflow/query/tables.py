"""Tables that streams are joined with: what a library's table is here, and those that are read again while the dataflow runs.

A refreshed table is whatever a DataFrame, or a function that gives one, has when it is read. What was read is data of the join's box, so
a new content is a version of the dataflow (V2): it takes effect at one epoch everywhere. Who reads it, when, and where it is written down
for a restart, is the world's business.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from evenflow.errors import EvenflowError, QueryError, TableError, TypeMismatch
from evenflow.plan.layout import Layout, Segment, Step
from evenflow.query.duration import duration_us
from evenflow.query.given import names_of
from evenflow.query.kinds.judging import known, naming
from evenflow.stream.collations import check_collations
from evenflow.stream.schema import ddl_of

REFRESHED_BYTES: Final = 2**26
"""A table that is refreshed goes to every site whenever it has changed, and must not be larger."""


@dataclass(frozen=True, slots=True, eq=False)
class RefreshedTable:
    """A table that is read again while the dataflow runs; made by `Dataflow.table`.

    given: a batch DataFrame, or a function of no arguments that returns a table; or a pyarrow table, which was read of it. schema: its
    columns, all nullable. key: columns of which no two rows have the same values, or none. every_us: microseconds from one reading to the
    next; None: only on demand.
    """

    name: str
    given: Any
    schema: pa.Schema
    key: tuple[str, ...]
    every_us: int | None

    @staticmethod
    def of(given: Any, name: str, key: str | Sequence[str] | None, refresh: str | timedelta | None) -> RefreshedTable:
        """See `Dataflow.table`."""
        if not name or not isinstance(name, str):
            raise QueryError("a refreshed table needs a name, by which it is refreshed and reported, such as flow.table(df, 'shops')")
        if not callable(given) and not hasattr(given, "limit"):
            raise QueryError(
                f"table {name!r}: a {type(given).__name__} does not change; join with it as it is, or give a DataFrame of Spark, or a "
                "function that returns what there is"
            )
        try:
            found = given() if callable(given) else given
        except EvenflowError:
            raise
        except Exception as error:  # It is the user's function.
            raise QueryError(f"table {name!r}: the function that returns it raised {type(error).__name__}: {error}; mend it") from error
        schema = table_of(name, found.limit(0) if hasattr(found, "limit") else found).schema
        keys = () if key is None else names_of(name, "key", key)
        with naming(name):
            for column in keys:
                if pa.types.is_nested(known(name, column, schema).type):
                    raise TypeMismatch(f"{column!r} is {schema.field(column).type} and cannot be a key; use columns of plain types")
            every_us = None if refresh is None else duration_us(refresh)
        if every_us == 0:
            raise QueryError(f"table {name!r} would be read all the time; say how often, such as refresh='5 minutes'")
        return RefreshedTable(name, given, pa.schema([field.with_nullable(True) for field in schema]), keys, every_us)

    @property
    def content(self) -> pa.Table:
        """What was read of it; no rows, if nothing was."""
        return self.given if isinstance(self.given, pa.Table) else self.schema.empty_table()

    def checked(self, found: Any) -> pa.Table:
        """What was read, if it can take the place of what was there: in order of its key, or of all columns, so that what is equal
        looks the same. Raises TableError for other columns, two rows with one key, or too many bytes.

        Cost: O(rows x log(rows)).
        """
        table = table_of(self.name, found)
        if [(f.name, f.type) for f in table.schema] != [(f.name, f.type) for f in self.schema]:
            now, before = ", ".join(f"{f.name} {f.type}" for f in table.schema), ", ".join(f"{f.name} {f.type}" for f in self.schema)
            raise TableError(f"table {self.name!r} has other columns: {now} instead of {before}")
        if table.nbytes > REFRESHED_BYTES:
            raise TableError(
                f"table {self.name!r} has {table.nbytes:,} bytes and goes to every site whenever it changes; leave out columns and rows "
                f"until it has {REFRESHED_BYTES:,}, or join with its changes as a stream (join_latest)"
            )
        table = table.cast(self.schema)
        order = self.key or tuple(field.name for field in self.schema if not pa.types.is_nested(field.type))
        table = table.sort_by([(column, "ascending") for column in order]).combine_chunks() if order else table
        if self.key and table.num_rows:
            counts = table.group_by(list(self.key)).aggregate([([], "count_all")])
            twice = counts.filter(pc.greater(counts.column("count_all"), 1))
            if twice.num_rows:
                row = ", ".join(f"{column} = {twice.column(column)[0].as_py()!r}" for column in self.key)
                many = twice.column("count_all")[0]
                raise TableError(f"table {self.name!r} has {many} rows with the key {row}; leave all but one of them out, or give no key")
        return table


def same_rows(one: pa.Table, other: pa.Table) -> bool:
    """Whether two readings of a table are equal. NaN equals NaN."""
    return one.num_rows == other.num_rows and all(_same(a, b) for a, b in zip(one.columns, other.columns, strict=True))


def _same(one: pa.ChunkedArray, other: pa.ChunkedArray) -> bool:
    if not pa.types.is_floating(one.type):
        return bool(one.equals(other))
    nan, others = pc.is_nan(one), pc.is_nan(other)
    return bool(nan.equals(others)) and bool(pc.if_else(nan, 0.0, one).equals(pc.if_else(others, 0.0, other)))


def with_tables(layout: Layout, contents: Mapping[str, pa.Table]) -> Layout:
    """The layout with what was read of its refreshed tables, by name."""
    segments = (replace(s, steps=tuple(_filled(step, contents) for step in s.steps)) for s in layout.segments)
    return replace(layout, segments=tuple(segments))


def _filled(step: Step, contents: Mapping[str, pa.Table]) -> Step:
    name = step.params.get("refreshed")
    return step if name is None or name not in contents else replace(step, params={**step.params, "table": contents[name]})


def steps_with(segment: Segment, name: str, table: pa.Table) -> Iterator[tuple[int, Step]]:
    """(index, the step with this content) of each step of the segment that is joined with the refreshed table."""
    for at, step in enumerate(segment.steps):
        if step.params.get("refreshed") == name:
            yield at, _filled(step, {name: table})


# ---------------------------------------------------------------- tables of other libraries


def table_of(box: str, given: Any) -> pa.Table:
    """A pyarrow table, batch or batch DataFrame of Spark, pandas or Polars as a table of Evenflow's types. QueryError otherwise."""
    if getattr(given, "isStreaming", False):
        raise QueryError(f"box {box!r}: this DataFrame is a stream; bring it in with flow.from_spark(df) and join with that stream")
    if callable(described := getattr(getattr(given, "schema", None), "jsonValue", None)):
        check_collations(described(), f"box {box!r}")
    for method in ("toArrow", "to_arrow"):
        if callable(getattr(given, method, None)):
            given = getattr(given, method)()
    if isinstance(given, pa.RecordBatch):
        given = pa.Table.from_batches([given])
    elif type(given).__module__.split(".")[0] == "pandas":
        given = pa.Table.from_pandas(given, preserve_index=False)
    if not isinstance(given, pa.Table):
        raise QueryError(f"box {box!r} cannot join with {type(given).__name__}; give a stream, a batch DataFrame or a pyarrow table")
    columns = [_plain(column.combine_chunks()) for column in given.columns]
    fields = [pa.field(f.name, c.type, f.nullable) for f, c in zip(given.schema, columns, strict=True)]
    table = pa.Table.from_arrays(columns, schema=pa.schema(fields))
    try:
        ddl_of(table.schema)
    except QueryError as error:
        raise TypeMismatch(f"box {box!r}: {error}") from error
    return table


def _plain(column: pa.Array) -> pa.Array:
    """The column in the one form that Evenflow has for its type."""
    if isinstance(column, pa.ChunkedArray):
        column = pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], column.type)
    kind = column.type
    if pa.types.is_dictionary(kind):
        return _plain(column.dictionary_decode())
    if pa.types.is_large_string(kind):
        return column.cast(pa.string())
    if pa.types.is_large_binary(kind):
        return column.cast(pa.binary())
    if pa.types.is_timestamp(kind):
        return pc.cast(column, pa.timestamp("us", None if kind.tz is None else "UTC"))
    return column
