"""What the regions of a group have made, as a source: dataflows of several regions chain without a word between them (race.md, W6).

A reader subscribes to a stream sink of all the regions, and takes each epoch from whichever has it. An upstream epoch's rows are the same
in all regions, and their order is not (E3), so they are put into one that follows from their values. Then whoever reads, and whichever
region answers, reads the same rows at the same places. Where the source is cut by content its cut is the upstream epoch: a row's log time
is when that began, and what the reader promises is that an upstream epoch is through, with rows or without.

How regions are reached is the business of the world in which the reader lives (`Reader.reach`): this file knows no connection.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Final, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from evenflow.errors import EpochsGone, EvenflowError, QueryError, SchemaChanged, SourceError
from evenflow.sources.source import Reader, Source
from evenflow.stream.arrays import arrow_of
from evenflow.stream.change import is_changelog
from evenflow.stream.declared import WIDEST, Declared, May, each, number, optional, row_schema, text, whole
from evenflow.stream.region_url import places_of

POSITION, TIME = "group_position", "group_time"
"""Columns behind those that are declared: a row's place, and when its upstream epoch ended."""
ROW_BITS: Final = 24
"""A place is an epoch's number and, in so many bits, that of a row in it."""
LAST_ROW: Final = (1 << ROW_BITS) - 1
"""The place of the last row of each epoch, however many it has: who goes on behind it needs nothing of that epoch."""
WAIT_S: Final = 0.02
"""So long one `read` waits for an epoch: its thread is its own."""
FIELDS: Final = (pa.field(POSITION, pa.int64(), False), pa.field(TIME, pa.timestamp("us", "UTC"), False))

Begin = Callable[[Mapping[str, Any]], int]
"""The epoch behind which to begin, from what a region says of its group. Raises SourceError if it is no region of a group."""


class Upstream(Protocol):
    """The way to all regions of a group. facts: what they say of it; None until one has answered. through: all rows of the epochs up to
    this one have been taken. ended: no more will come, and all have been taken."""

    @property
    def facts(self) -> Mapping[str, Any] | None: ...
    @property
    def through(self) -> int: ...
    @property
    def ended(self) -> bool: ...

    def take(self, wait_s: float) -> tuple[int, pa.RecordBatch] | None:
        """The next epoch with rows, these in an order that is the same whichever region they are from. None if it has not come by then.
        Raises EvenflowError when none will."""

    def close(self) -> None: ...


Reach = Callable[["GroupSource", Begin], Upstream]


class GroupReader(Reader):
    """All that there is: a group's epochs are one partition."""

    def __init__(self, source: GroupSource) -> None:
        self._source = source
        self._reach: Reach | None = None
        self._upstream: Upstream | None = None
        self._from = (source.after + 1) << ROW_BITS
        self._wanted_us: int | None = None
        self._rest: pa.RecordBatch | None = None
        self._through = source.after

    def reach(self, way: Any) -> None:
        self._reach = way

    def forgo(self, before: int) -> None:
        self._wanted_us = before

    def skip(self, rows: int) -> None:
        """rows: the place to go on from."""
        self._from = max(self._from, rows)

    def read(self, now_us: int, max_rows: int) -> pa.RecordBatch | None:
        upstream = self._upstream or self._open()
        rest = self._next(upstream) if self._rest is None else self._rest
        self._rest = rest.slice(max_rows) if rest is not None and rest.num_rows > max_rows else None
        if self._rest is None:
            self._through, self.ended = upstream.through, upstream.ended
        return None if rest is None else rest.slice(0, max_rows)

    def times(self, batch: pa.RecordBatch) -> npt.NDArray[np.int64]:
        """When the upstream epochs of the rows began."""
        origin_us, width_us = self._grid()
        epochs = batch.column(POSITION).to_numpy() >> ROW_BITS
        found: npt.NDArray[np.int64] = origin_us + (epochs - 1) * width_us
        return found

    def promise(self, now_us: int) -> int | None:
        if self._upstream is None or self._upstream.facts is None:
            return None
        origin_us, width_us = self._grid()
        return origin_us + self._through * width_us

    def close(self) -> None:
        if self._upstream is not None:
            self._upstream.close()
            self._upstream = None
        self.ended = True

    # ------------------------------------------------------------ upstream

    def _open(self) -> Upstream:
        if self._reach is None:
            raise SourceError(f"{self._source}: regions cannot be reached from here; start the dataflow in an engine")
        try:
            self._upstream = self._reach(self._source, self._begin)
        except EvenflowError as error:
            raise SourceError(f"{self._source}: {error}") from error
        return self._upstream

    def _begin(self, facts: Mapping[str, Any]) -> int:
        """Behind which epoch: what is before it was read, or is not wanted."""
        origin_us, width_us = grid_in(facts, str(self._source))
        found = (self._from >> ROW_BITS) - 1
        if self._wanted_us is not None:
            found = max(found, -(-(self._wanted_us - origin_us) // width_us))
        self._through = found
        return found

    def _grid(self) -> tuple[int, int]:
        assert self._upstream is not None and self._upstream.facts is not None, "rows have come"
        return grid_in(self._upstream.facts, str(self._source))

    def _next(self, upstream: Upstream) -> pa.RecordBatch | None:
        """The rows of the next epoch that are wanted. Raises SourceError."""
        try:
            taken = upstream.take(WAIT_S)
        except EpochsGone as error:
            raise SourceError(
                f"{self._source}: what comes after epoch {error.after} is kept by no region any more, and they can go on behind epoch "
                f"{error.first}. Let regions keep more (keep_s, keep_mb of ef.sinks.stream), or begin a new run with after={error.first}"
            ) from error
        except SourceError:
            raise
        except EvenflowError as error:
            raise SourceError(f"{self._source}: {error}") from error
        if taken is None:
            return None
        epoch, rows = taken
        made = self._placed(epoch, rows)
        had = self._from - (epoch << ROW_BITS)
        return made if had <= 0 else made.slice(had) if had < made.num_rows else None

    def _placed(self, epoch: int, rows: pa.RecordBatch) -> pa.RecordBatch:
        """The declared columns, and where each row is. Raises SchemaChanged, SourceError."""
        source, count = self._source, rows.num_rows
        if count > LAST_ROW:
            raise SourceError(
                f"{source}: epoch {epoch} has {count:,} rows, and {LAST_ROW:,} is the most; give the upstream a smaller width_ms"
            )
        columns = []
        for field in source.columns:
            at = rows.schema.get_field_index(field.name)
            if at < 0 or rows.schema.field(at).type != field.type:
                there = ", ".join(f"{f.name} {f.type}" for f in rows.schema)
                raise SchemaChanged(
                    f"{source}: schema= has {field.name} {field.type}, and the regions' rows are ({there}); declare what they have"
                )
            columns.append(rows.column(at))
        places = (epoch << ROW_BITS) + np.arange(count, dtype=np.int64)
        places[-1] = (epoch << ROW_BITS) + LAST_ROW
        origin_us, width_us = self._grid()
        ended = arrow_of(np.full(count, origin_us + epoch * width_us, np.int64), pa.int64()).cast(FIELDS[1].type)
        return pa.RecordBatch.from_arrays([*columns, arrow_of(places, pa.int64()), ended], schema=source.schema)


def grid_in(facts: Mapping[str, Any], whose: str) -> tuple[int, int]:
    """When the group's first epoch began, and how long each is, microseconds. Raises SourceError."""
    origin_us, width_us = facts.get("origin_us"), facts.get("width_us")
    if type(origin_us) is not int or type(width_us) is not int or width_us < 1:
        raise SourceError(
            f"{whose}: {facts.get('name')!r:.100} is no group, so its epochs have no times; start it with group=ef.group(...), or read it "
            "with ef.subscribe"
        )
    return origin_us, width_us


@dataclass(frozen=True)
class GroupSource(Declared, Source):
    """See `evenflow.sources.group`. columns: of the sink's rows, those that are wanted. after: the epoch behind which to begin."""

    kind: ClassVar[str] = "group"
    blocking: ClassVar[bool] = True
    cuts: ClassVar[tuple[str, ...]] = ("time",)
    urls: tuple[str, ...]
    group: str
    sink: str
    columns: pa.Schema
    after: int = 0
    race: bool = False
    secret_file: str | None = None
    tls_ca: str | None = None
    patience_s: float = 300.0
    MAY: ClassVar[Mapping[str, May]] = {
        "urls": each(text("host:port of a region"), "regions, each as host:port"), "columns": row_schema().called("schema"),
        "after": whole(0, 2**38), "secret_file": optional(text("a file that every site has")),
        "tls_ca": optional(text("a file in PEM that every site has")), "patience_s": number(None, WIDEST),
    }  # fmt: skip
    option_owner: ClassVar[str] = "group source"

    def __post_init__(self) -> None:
        super().__post_init__()
        places_of(self.urls, self.tls_ca, str(self))
        if is_changelog(self.columns):
            raise QueryError(
                f"{self}: the order of changes within an epoch counts, and regions agree on its rows and not on their order; let the "
                "upstream give rows that come once, such as those of windows"
            )
        taken = next((name for name in (POSITION, TIME) if name in self.columns.names), None)
        if taken is not None:
            raise QueryError(f"{self}: the schema has a column {taken!r}, which every row gets; rename it upstream")

    def __str__(self) -> str:
        return f"group source {self.sink} of {self.group}"

    @property
    def schema(self) -> pa.Schema:
        return pa.schema([*self.columns, *FIELDS])

    @property
    def position(self) -> str:
        return POSITION

    def partitions(self, sites: int) -> int:
        return 1

    def open(self, partition: int, of: int) -> GroupReader:
        return GroupReader(self)


__all__ = ["POSITION", "TIME", "Begin", "GroupReader", "GroupSource", "Reach", "Upstream"]
