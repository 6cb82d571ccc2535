"""A source that is cut by content: its rows say in which epoch they are, so whoever reads it cuts the same epochs (protocol E9 to E11).

What is read has one more column behind those of the schema, the row's epoch, which the ingress takes off. The number by which an epoch is
known is the row's log time, or its place. That an epoch is whole, a row of a later one says, or the reader's promise that no smaller number
comes: true, and never a guess by a clock. A partition that is silent, and cannot promise, holds epochs back.

Each replica reads the source for itself. So it must be one that gives the same rows to all who read it, in the same order.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any, ClassVar, Final, Literal, cast, get_args

import numpy as np
import pyarrow as pa

from evenflow.errors import OptionError, QueryError, SourceError
from evenflow.sources.source import Reader, Source
from evenflow.stream.arrays import arrow_of
from evenflow.stream.cut import WHOLE, Grid, Numbers, Running, TooFarAhead
from evenflow.stream.declared import WIDEST, Declared, May, a, fitted, flag, number, one_of, optional, whole
from evenflow.stream.waiting import Waiting

EPOCH_COLUMN: Final = "_epoch"
CutBy = Literal["time", "place"]
WIDTH_MS: Final = 20.0
ROWS: Final = 10_000
"""Of an epoch that is cut by place, if nobody says how many."""
FIELD: Final = pa.field(EPOCH_COLUMN, pa.int64(), False)


class CutReader(Reader):
    """One partition. complete: all rows of the epochs up to this one have been given."""

    def __init__(self, source: CutSource, partition: int, of: int) -> None:
        self._source, self._partition = source, partition
        self._reader = source.source.open(partition, of)
        self._reader.heed_pulses()
        self._running = Running(source.grid(partition), source.ahead)
        if source.after and source.by == "time":
            self._reader.forgo(self._running.grid.first(source.after + 1))
        self._at = self._owed = 0
        self.ended = self._reader.ended
        self.complete = WHOLE if self.ended else 0
        self._schema: pa.Schema | None = None

    def read(self, now_us: int, max_rows: int) -> pa.RecordBatch | None:
        reader, running = self._reader, self._running
        batch = reader.read(now_us, max_rows)
        if self._source.by == "time" and (pulses := reader.pulses()).size:
            self._epochs(pulses, "pulse")
        made = None
        if batch is not None and batch.num_rows:
            made = self._marked(batch)
            if self._source.after:
                made = self._behind(made)
        self.ended = reader.ended
        if self.ended:
            self.complete = WHOLE
        else:
            promise = self._promise(now_us)
            self.complete = max(self.complete, running.whole, 0 if promise is None else running.grid.closed_by(promise))
        self.wake_us = reader.wake_us
        if self.wake_us is not None and self._source.by == "time" and reader.punctual:
            # Rows of an epoch are of use when it is whole, and that is when it ends.
            self.wake_us = running.grid.first(running.grid.epoch(now_us) + 1)
        return made

    def _marked(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """With the epoch of each row."""
        numbers = self._numbers(batch)
        self._at += batch.num_rows
        epochs = self._epochs(numbers, "row")
        if self._schema is None:
            self._schema = batch.schema.append(FIELD)
        return pa.RecordBatch.from_arrays([*batch.columns, arrow_of(epochs, pa.int64())], schema=self._schema)

    def _epochs(self, numbers: Numbers, what: str) -> Numbers:
        """Of what comes next. Raises SourceError."""
        try:
            return self._running.epochs(numbers)
        except TooFarAhead as error:
            raise SourceError(self._source.too_far(self._partition, error, what)) from error

    def _behind(self, made: pa.RecordBatch) -> pa.RecordBatch | None:
        """What is behind the epoch after which rows are wanted, and behind what was taken of that before; None if that is nothing."""
        epochs = made.column(made.num_columns - 1).to_numpy()
        first = int(np.searchsorted(epochs, self._source.after, "right"))
        first, self._owed = min(made.num_rows, first + self._owed), max(0, self._owed - (made.num_rows - first))
        return made.slice(first) if first < made.num_rows else None

    def _numbers(self, batch: pa.RecordBatch) -> Numbers:
        if self._source.by == "time":
            return self._reader.times(batch)
        position = self._source.position
        if position is None:
            return np.arange(self._at, self._at + batch.num_rows, dtype=np.int64)
        places: Numbers = batch.column(position).to_numpy(zero_copy_only=False).astype(np.int64)
        return places

    def _promise(self, now_us: int) -> int | None:
        """No smaller number comes than this one; None: nobody can say."""
        if self._source.by == "time":
            return self._reader.promise(now_us)
        if not self._source.streaming:
            return None  # That its last row was the last is known later, perhaps; and it belongs to the epoch of that row.
        if self._source.position is None:
            return self._at
        return self._reader.next_place

    def skip(self, rows: int) -> None:
        if self._reads_again:
            self._owed = rows  # They are counted from the first that was wanted, and which one that is shows when it is read.
            return
        self._at = rows
        self._reader.skip(rows)
        self.ended = self._reader.ended
        self.complete = WHOLE if self.ended else 0

    def expect(self, through: int) -> None:
        self._reader.expect(through)

    @property
    def _reads_again(self) -> bool:
        """What was taken behind the epoch after which rows are wanted is counted, and is read again."""
        return bool(self._source.after) and self._source.position is None

    def begin_behind(self, epoch: int) -> None:
        # Rows that are read again are of their own epochs, which say by how many what is behind this one has been reached.
        self._running.begin_behind(self._source.after if self._reads_again else epoch)
        self.complete = max(self.complete, epoch)

    def meet(self, names: Sequence[str]) -> None:
        self._reader.meet(names)

    def reach(self, way: Any) -> None:
        self._reader.reach(way)

    def behind(self) -> tuple[str, int] | None:
        return self._reader.behind()

    def waiting(self, now_us: int) -> Waiting | None:
        return self._reader.waiting(now_us)

    def fileno(self) -> int | None:
        return self._reader.fileno()

    def close(self) -> None:
        self._reader.close()


@dataclass(frozen=True)
class CutSource(Declared, Source):
    """See `cut_by_content`. width_us: of an epoch. begin_us: when epoch 1 begins; None: when the run does. rows: of an epoch that is cut by
    place. ahead_us: most that a log time may be ahead of those before it; None: the source's clock is trusted. mirrored: the source is a
    copy of another one that has kept its times. after: rows of the epochs up to this one are not wanted."""

    kind: ClassVar[str] = "cut"
    source: Source
    by: str = "time"
    width_us: int = int(WIDTH_MS * 1000)
    rows: int = ROWS
    begin_us: int | None = None
    ahead_us: int | None = None
    mirrored: bool = False
    after: int = 0
    looked_up: ClassVar[tuple[str, ...]] = ("begin_us",)
    MAY: ClassVar[Mapping[str, May]] = {
        "source": a("a source", lambda value: isinstance(value, Source)), "by": one_of(*get_args(CutBy)),
        "width_us": whole(1000, 3_600_000_000), "rows": whole(1, 2**31), "begin_us": optional(whole(0, WIDEST)),
        "ahead_us": optional(whole(1, WIDEST)), "mirrored": flag(), "after": whole(0, WIDEST),
    }  # fmt: skip
    option_owner: ClassVar[str] = "a source that is cut by content"

    def __post_init__(self) -> None:
        super().__post_init__()
        why = self.source.not_cut(self.by, trusted=self.ahead_us is not None, mirrored=self.mirrored)
        if why is not None:
            raise QueryError(f"{self.source.kind} source: it cannot be cut by content: {why}")

    def grid(self, partition: int) -> Grid:
        """Of one of its partitions. Raises SourceError before the run has begun."""
        if self.begin_us is None:
            raise SourceError(f"{self.source.kind} source: where its epochs begin is decided when the run begins, and it has not")
        if self.by == "time":
            return Grid(self.source.first_time(self.begin_us), self.width_us, self.begin_us, self.width_us)
        return Grid(self.source.first_place(partition), self.rows, self.begin_us, self.width_us)

    @property
    def ahead(self) -> int | None:
        return self.ahead_us if self.by == "time" else None

    def too_far(self, partition: int, error: TooFarAhead, what: str) -> str:
        """What is said of a log time that is beyond what it may be. what: whose it is, a row's or a pulse's."""
        at = datetime.fromtimestamp(error.number / 1e6, UTC).isoformat() if error.number < 2**57 else f"{error.number} us"
        ahead_s, most_s = (error.number - error.before) / 1e6, (self.ahead_us or 0) / 1e6
        return (
            f"{self.source.kind} source, partition {partition}: a {what}'s log time is {at}, {ahead_s:,.3f} s ahead of those before it, "
            f"and cut_ahead_ms allows {most_s:,.3f} s: the same at every reader. Mend the producer's clock, or give a greater cut_ahead_ms"
        )

    def begun_in_group(self, begin_us: int) -> Source:
        return replace(self, source=self.source.begun_in_group(begin_us)).begun(begin_us)

    def lacks(self, now_us: int) -> str | None:
        return self.source.lacks(now_us)

    def begun(self, now_us: int) -> Source:
        inner = self.source.begun(now_us)
        begin_us = self.begin_us if self.begin_us is not None else inner.began_us(now_us)
        return replace(self, source=inner, begin_us=begin_us)

    def goes_on(self, looked_up: str, was: Any, is_: Any) -> bool:
        return looked_up == "begin_us" or self.source.goes_on(looked_up, was, is_)

    # ------------------------------------------------------------ as the source that it cuts

    @property
    def schema(self) -> pa.Schema:
        return self.source.schema

    @property
    def blocking(self) -> bool:  # type: ignore[override]
        return self.source.blocking

    @property
    def replayable(self) -> bool:  # type: ignore[override]
        return self.source.replayable

    @property
    def repeats(self) -> bool:
        return self.source.repeats

    @property
    def waits(self) -> bool:
        return self.source.waits

    @property
    def streaming(self) -> bool:
        return self.source.streaming

    @property
    def position(self) -> str | None:
        return self.source.position

    def partitions(self, sites: int) -> int:
        return self.source.partitions(sites)

    def warm_up(self) -> None:
        self.source.warm_up()

    def open(self, partition: int, of: int) -> Reader:
        return CutReader(self, partition, of)

    def to_json(self) -> dict[str, Any]:
        said = super_json(self)
        unsaid = {"begin_us"} if self.begin_us is None else set()
        return {key: value for key, value in said.items() if key not in unsaid | (set() if self.after else {"after"})}


def super_json(source: CutSource) -> dict[str, Any]:
    """`kind` and the fields; the source inside as it says itself."""
    told = {name: getattr(source, name) for name in ("by", "width_us", "rows", "begin_us", "ahead_us", "mirrored", "after")}
    return {"kind": source.kind, "source": source.source.to_json(), **told}


def cut_by_content(
    source: Source,
    *,
    width_ms: float | None = None,
    by: CutBy | None = None,
    rows: int | None = None,
    ahead_ms: float | None = None,
    mirrored: bool = False,
    begin_us: int | None = None,
) -> CutSource:
    """The source, cut by content. Raises OptionError, and QueryError that says why it cannot be.

    width_ms: of an epoch, default 20; all sources of a dataflow have the same. by: "time", the log time of a row, or "place"; default: what
    the source can. rows: of an epoch, by place. ahead_ms: see `CutSource.ahead_us`.
    """
    what = f"{source.kind} source"
    width = fitted(what, "width_ms", WIDTH_MS if width_ms is None else width_ms, number(1, 3_600_000))
    if not source.cuts:
        raise QueryError(f"{what}: it cannot be cut by content: {source.not_cut('', trusted=False, mirrored=False)}")
    chosen = by if by is not None else cast(CutBy, source.cuts[0])
    fitted(what, "cut_by", chosen, one_of(*get_args(CutBy)))
    if rows is not None and chosen != "place":
        raise OptionError(f"{what}: width_rows is for what is cut by place; give cut_by='place', or leave it out")
    if ahead_ms is not None and chosen != "time":
        raise OptionError(f"{what}: cut_ahead_ms is about log times; leave it out where it is cut by place")
    ahead = fitted(what, "cut_ahead_ms", ahead_ms, optional(number(None, 1e12)))
    fitted(what, "width_rows", rows, optional(whole(1, 2**31)))
    made = CutSource(
        source, chosen, round(width * 1000), ROWS if rows is None else rows, begin_us, None if ahead is None else round(ahead * 1000),
        mirrored,
    )  # fmt: skip
    if (why := source.ask_cut(chosen, trusted=ahead is not None, mirrored=mirrored)) is not None:
        raise QueryError(f"{what}: it cannot be cut by content: {why}")
    return made


def cut_of(source: Any) -> CutSource | None:
    """The source, if it is cut by content."""
    return source if isinstance(source, CutSource) else None
