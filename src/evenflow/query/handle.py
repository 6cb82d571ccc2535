"""What a stream is besides the methods that draw: a handle on an output port of a box, which survives a renaming."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Self

import pyarrow as pa

from evenflow.errors import QueryError
from evenflow.query.absent import absent, by_name
from evenflow.query.check import stream_type
from evenflow.query.drawing import Aliased, Drawing, Handle
from evenflow.query.given import box_name, spelled
from evenflow.query.kinds.judging import known
from evenflow.query.kinds.kind import StreamType
from evenflow.query.network import Box, is_aside, is_late, port_suffix
from evenflow.query.spark_column import column_of
from evenflow.query.whose import number_for
from evenflow.stream.schema import ddl_of


class HandledStream:
    """An output port of a box: its columns, its event time, its name."""

    def __init__(
        self, flow: Drawing, handle: Handle, port: int = 0, parts: Mapping[str, Handle] | None = None,
        late_columns: Sequence[str] | None = None,
    ) -> None:  # fmt: skip
        """parts: the boxes that were drawn together for this stream, by suffix of their name; "" is the one that the user means.
        late_columns: columns of the late rows, where the box got others beside them."""
        self.flow: Drawing = flow
        self.port = port
        self._handle = handle
        self._parts = parts or {"": handle}
        self._late_columns = late_columns
        self._number: int | None = None
        self.alias_name: str | None = None

    # ------------------------------------------------ what it is

    @property
    def box(self) -> Box:
        """The box it comes from."""
        return self.flow.box_of(self._handle)

    @property
    def handle(self) -> Handle:
        return self._handle

    @property
    def number(self) -> int:
        """By which its columns know it."""
        if self._number is None:
            self._number = number_for(self)
        return self._number

    @property
    def type(self) -> StreamType:
        """Columns and event time together."""
        return stream_type(self.box, self.port)

    @property
    def schema(self) -> pa.Schema:
        return self.type.schema

    @property
    def columns(self) -> list[str]:
        """Names of the columns."""
        return list(self.schema.names)

    @property
    def event_time(self) -> str | None:
        """The event-time column, if there is a watermark on it."""
        return self.type.event_time

    def __repr__(self) -> str:
        port = port_suffix(self.box, self.port)
        time = f", event time {self.event_time}" if self.event_time else ""
        return f"Stream({self.box.name + port!r}: {ddl_of(self.schema)}{time})"

    if not TYPE_CHECKING:  # A type checker knows which attributes there are.

        def __getattr__(self, name: str) -> Any:
            """Only called for what is not there: a column, as PySpark's, where that has a session. Whoever knows PySpark is told what to
            write in place of anything else."""
            columns = self.columns if "_handle" in vars(self) and not name.startswith("_") else []
            column = column_of(name, self.number) if name in columns else None
            if column is None:
                raise AttributeError(absent("Stream", name, columns), name=name, obj=self)
            return column

        def __getitem__(self, name: object) -> Any:
            """The column of that name, as PySpark's. Raises UnknownColumn if there is none, TypeError where PySpark has no session."""
            found = known(self.box.name, spelled(name, self.columns), self.schema).name if isinstance(name, str) else None
            column = None if found is None else column_of(found, self.number)
            if column is None:
                raise TypeError(f"a Stream has no columns of its own: {by_name(name)}")
            return column

    def alias(self, alias: str) -> Self:
        """The same stream under a name that goes before its columns, as in PySpark: `a.alias("o").join(b.alias("s"), F.col("o.k") ==
        F.col("s.k")).select("o.id", "s.v")`. In texts, in columns, and in whatever is drawn behind it. See `name` for that of its box."""
        if not isinstance(alias, str) or not alias.isidentifier():
            raise QueryError(f"{alias!r:.60} cannot go before names of columns: give the stream an alias such as 'orders'")
        made = type(self)(self.flow, self._handle, self.port, self._parts, self._late_columns)
        made.alias_name = alias
        self.flow.aliases.setdefault(alias, []).append(Aliased(self._handle, self.port))
        return made

    def name(self, name: str) -> Self:
        """Rename the box that this stream comes from. Returns the stream. Raises QueryError if the name is taken."""
        if is_aside(self.box, self.port):
            raise QueryError(
                f"{'late rows' if is_late(self.box, self.port) else 'dead letters'} belong to box {self.box.name!r}; name that one"
            )
        box_name(name, self.box.name)
        with self.flow.whole():
            for suffix, handle in self._parts.items():
                self.flow.rename(handle, name + suffix)
        return self

    def _then(self, kind: str, params: Mapping[str, Any], name: str | None = None, stem: str | None = None) -> Self:
        return self._drawn(kind, params, (self,), name, stem or kind)

    def _selecting(self, columns: Sequence[tuple[str, Any]]) -> Self:
        """Exactly these columns. Event time goes on under another name, if that is what its column gets, as in Spark."""
        time = self.event_time
        renamed = [name for name, made in columns if isinstance(made, str) and made == time]
        moved = {} if time is None or (time, time) in columns or not renamed else {"event_time": renamed[0]}
        return self._then("select", {"columns": tuple(columns), **moved})

    def _drawn(self, kind: str, params: Mapping[str, Any], inputs: Sequence[HandledStream], name: str | None, stem: str) -> Self:
        """What comes out of a new box in the dataflow of this stream, as a stream like it: see `Drawing.draw`."""
        return type(self)(self.flow, self.flow.draw(kind, params, inputs, name, stem))
