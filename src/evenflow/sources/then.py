"""One source after another: what a table or files have, then what goes on.

`ChainSource` is read inside the sites. Each of its partitions gives the first source's share, then the second's. The engine's watermark is
the least of all partitions', so a partition that is live makes no row late that another one still gives of the first. `AfterSource` is for
rows that Spark pushes: the second is opened, or pushed, when all rows of the first are in settled records.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Final

import numpy as np
import pyarrow as pa

from evenflow.errors import QueryError, SourceError
from evenflow.sources.source import Reader, Source, place
from evenflow.stream.declared import Declared, May, a
from evenflow.stream.waiting import Waiting

POSITION: Final = "_position"
"""The column that says in which of the two a row is, and where: see `SECOND`. No box reads it."""
SECOND: Final = 2**61
"""What a row's place in the second source is counted from. Below are the places in the first."""
SOURCE: Final = a("a source", lambda value: isinstance(value, Source))


def refused(first: Source, second: Source) -> str | None:
    """Why the second cannot follow the first, or None."""
    if first.streaming:
        return f"the {first.kind} source may go on for ever, so nothing comes after it; give one that ends, such as files"
    return lacking(first.schema, second.schema)


def lacking(first: pa.Schema, second: pa.Schema) -> str | None:
    """What the columns of the second lack of the first's, or None. It may have more, which are left out."""
    for field in first:
        if field.name not in second.names:
            return f"what comes second has no column {field.name!r}; its columns are {_columns(second)}, and the first's {_columns(first)}"
        if second.field(field.name).type != field.type:
            return f"column {field.name!r} is {field.type} first, and {second.field(field.name).type} then; make the types equal"
    return None


def _columns(schema: pa.Schema) -> str:
    return "(" + ", ".join(f"{f.name} {f.type}" for f in schema) + ")"


class ChainReader(Reader):
    """One partition: the first's share, then the second's; None where one of them has no such partition. Each is opened when it begins."""

    def __init__(self, source: ChainSource, partition: int, first: int | None, second: int | None) -> None:
        self._source, self._partition, self._of = source, partition, (first, second)
        self._reader: Reader | None = None
        self._at, self._expected = 0, 0
        self._came: tuple[str, ...] = ()
        self._way: Any = None
        self._in_second = first is None
        self.ended = first is None and second is None

    def skip(self, rows: int) -> None:
        self._in_second = self._in_second or rows > SECOND
        self._at = rows - SECOND if rows > SECOND else rows

    def expect(self, through: int) -> None:
        self._expected = through

    def reach(self, way: Any) -> None:
        self._way = way

    def read(self, now_us: int, max_rows: int) -> pa.RecordBatch | None:
        while not self.ended:
            reader = self._opened()
            if reader is not None:
                batch = reader.read(now_us, max_rows)
                self.wake_us = reader.wake_us
                if batch is not None and batch.num_rows:
                    return self._placed(batch)
                if not reader.ended:
                    return None
            self._go_on()
        return None

    def _opened(self) -> Reader | None:
        """The reader of the one that is being read, if that has this partition."""
        of = self._of[self._in_second]
        if self._reader is None and of is not None:
            described = self._source.second if self._in_second else self._source.first
            inside = (self._expected > SECOND) == self._in_second
            through = self._expected - SECOND * self._in_second if inside else 0
            self._reader = place(described.open(self._partition, of), self._at, through)
            self._reader.reach(self._way)
            if self._in_second and self._came:
                self._reader.meet(self._came)
        return self._reader

    def _go_on(self) -> None:
        """This one has given all its rows."""
        self.close()
        self.wake_us = None
        if self._in_second or self._of[1] is None:
            self.ended = True
        self._in_second, self._at = True, 0

    def _placed(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The rows, each with its place."""
        described = self._source.second if self._in_second else self._source.first
        if described.position is None:
            places = np.arange(self._at, self._at + batch.num_rows, dtype=np.int64)
        else:
            places = batch.column(described.position).to_numpy(zero_copy_only=False).astype(np.int64)
        self._at = int(places[-1]) + 1
        if self._at > SECOND:
            raise SourceError(
                f"{described.kind} source: a row is at {self._at - 1}; where one source comes after another, {SECOND - 1} is the last"
            )
        if self._in_second:
            places += SECOND
        assert self._reader is not None
        self.ended = self._reader.ended and (self._in_second or self._of[1] is None)
        schema = self._source.schema
        return pa.RecordBatch.from_arrays([*[batch.column(name) for name in schema.names[:-1]], pa.array(places)], schema=schema)

    def meet(self, names: Sequence[str]) -> None:
        self._came = tuple(names)
        reader = self._reader
        if reader is not None and self._in_second:
            reader.meet(names)

    def fileno(self) -> int | None:
        return None if self._reader is None else self._reader.fileno()

    def behind(self) -> tuple[str, int] | None:
        reader = self._reader
        return None if reader is None else reader.behind()

    def waiting(self, now_us: int) -> Waiting | None:
        reader = self._reader
        return None if reader is None else reader.waiting(now_us)

    def close(self) -> None:
        if self._reader is not None:
            self._reader.close()
            self._reader = None


@dataclass(frozen=True)
class ChainSource(Declared, Source):
    """All rows of the first, partition by partition, then those of the second. Their columns are the first's, which the second has, too."""

    kind: ClassVar[str] = "then"
    uncut: ClassVar[str] = "one source comes after another, and when that is is nowhere in its rows"
    first: Source
    second: Source
    MAY: ClassVar[Mapping[str, May]] = {"first": SOURCE, "second": SOURCE}
    option_owner: ClassVar[str] = "source of two"

    def __post_init__(self) -> None:
        super().__post_init__()
        why = refused(self.first, self.second)
        for source in (self.first, self.second):
            if why is None and source.pushed:
                why = "Spark pushes the rows of one of its sources; draw both, and call then() on the stream of the first"
            elif why is None and not source.repeats:
                why = f"whoever reads again goes on at a place, and the {source.kind} source gives others there; unite the streams instead"
        if why is None and POSITION in self.first.schema.names:
            why = f"a column is called {POSITION}, which is the name of the place in the sources; give it another name"
        if why is not None:
            raise QueryError(f"source of two: {why}")

    @property
    def blocking(self) -> bool:  # type: ignore[override]
        return self.first.blocking or self.second.blocking

    @property
    def repeats(self) -> bool:
        return self.first.repeats and self.second.repeats

    def begun(self, now_us: int) -> Source:
        return replace(self, first=self.first.begun(now_us), second=self.second.begun(now_us))

    @property
    def schema(self) -> pa.Schema:
        later = self.second.schema
        columns = [field.with_nullable(field.nullable or later.field(field.name).nullable) for field in self.first.schema]
        return pa.schema([*columns, pa.field(POSITION, pa.int64(), False)])

    @property
    def tells_due(self) -> bool:
        return self.first.tells_due or self.second.tells_due

    @property
    def streaming(self) -> bool:
        return self.second.streaming

    @property
    def position(self) -> str:
        return POSITION

    @property
    def waits(self) -> bool:
        return self.second.waits

    @property
    def newcomers_most(self) -> int:
        return self.second.newcomers_most

    def look(self, known: Sequence[str]) -> tuple[str, ...]:
        return self.second.look(known)

    def partitions(self, sites: int) -> int:
        """As many as the one with more of them has."""
        return max(self.first.partitions(sites), self.second.partitions(sites))

    def warm_up(self) -> None:
        self.first.warm_up()
        self.second.warm_up()

    def open(self, partition: int, of: int) -> Reader:
        first, second = self.first.partitions(of), self.second.partitions(of)
        return ChainReader(self, partition, first if partition < first else None, second if partition < second else None)

    def to_json(self) -> dict[str, Any]:
        return {"kind": self.kind, "first": self.first.to_json(), "second": self.second.to_json()}


@dataclass(frozen=True)
class AfterSource(Declared, Source):
    """A source that begins when another one of the dataflow, which Spark pushes, has been given whole. after: its box."""

    kind: ClassVar[str] = "after"
    uncut: ClassVar[str] = "one source comes after another, and when that is is nowhere in its rows"
    source: Source
    after: str
    MAY: ClassVar[Mapping[str, May]] = {"source": SOURCE}
    option_owner: ClassVar[str] = "source after another"

    @property
    def blocking(self) -> bool:  # type: ignore[override]
        return self.source.blocking

    @property
    def pushed(self) -> bool:  # type: ignore[override]
        return self.source.pushed

    @property
    def replayable(self) -> bool:  # type: ignore[override]
        return self.source.replayable

    @property
    def repeats(self) -> bool:
        return self.source.repeats

    def begun(self, now_us: int) -> Source:
        return replace(self, source=self.source.begun(now_us))

    @property
    def schema(self) -> pa.Schema:
        return self.source.schema

    @property
    def tells_due(self) -> bool:
        return self.source.tells_due

    @property
    def streaming(self) -> bool:
        return self.source.streaming

    @property
    def position(self) -> str | None:
        return self.source.position

    @property
    def dataframe(self) -> Any:
        """Of one that Spark pushes."""
        return getattr(self.source, "dataframe", None)

    @property
    def waits(self) -> bool:
        return self.source.waits

    @property
    def newcomers_most(self) -> int:
        return self.source.newcomers_most

    def look(self, known: Sequence[str]) -> tuple[str, ...]:
        return self.source.look(known)

    def partitions(self, sites: int) -> int:
        return self.source.partitions(sites)

    def warm_up(self) -> None:
        self.source.warm_up()

    def open(self, partition: int, of: int) -> Reader:
        return self.source.open(partition, of)

    def open_for(self, partition: int, of: int, columns: Sequence[str]) -> Reader:
        return self.source.open_for(partition, of, columns)

    def to_json(self) -> dict[str, Any]:
        return {"kind": self.kind, "source": self.source.to_json(), "after": self.after}


def awaited(source: Any) -> str | None:
    """The box whose rows come before those of this source, or None."""
    return source.after if isinstance(source, AfterSource) else None


def followed(sources: Mapping[str, Any], name: str) -> bool:
    """Whether a source waits for this one."""
    return any(awaited(source) == name for source in sources.values())
