"""What a run has left out of a source, as a source: read again when there is time for it.

A run tells what it has left out by places and shares (`Run.shed`), so which rows these were follows from the source, which is read again
with as many partitions. Rows that were left out as whole windows, or within the dataflow, are not among them.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, ClassVar, Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from evenflow.errors import QueryError
from evenflow.sources.source import Reader, Source
from evenflow.stream.sampling import ALL_BITS, place_hashes
from evenflow.stream.worth import ALIKE, Classes

METADATA: Final = b"evenflow.shed"
"""Of the schema of a run's table: JSON, by source, `partitions`, `column`, `cuts`, `worth`, `windows`."""
AT_ONCE: Final = 16
"""So many batches without a row that was left out are read before others have their turn."""


class Span(NamedTuple):
    """Rows of a partition from position `first` to before `end` were in one epoch. keep: by class, the share that stayed."""

    partition: int
    first: int
    end: int
    keep: tuple[float, ...]


class DroppedReader(Reader):
    """One partition of a source: what was left out of it."""

    def __init__(self, described: DroppedSource, partition: int, inner: Reader) -> None:
        self._described, self._partition, self._inner = described, partition, inner
        spans = [span for span in described.spans if span.partition == partition]
        self._firsts = np.array([span.first for span in spans], np.int64)
        self._ends = np.array([span.end for span in spans], np.int64)
        width = max((len(span.keep) for span in spans), default=1)
        self._keep = np.array([np.resize(np.array(span.keep), width) for span in spans]).reshape(len(spans), width)
        self._place = int(self._firsts[0]) if spans else 0
        self.ended = not spans
        if self._place:
            inner.skip(self._place)

    def read(self, now_us: int, max_rows: int) -> pa.RecordBatch | None:
        for _ in range(AT_ONCE):
            if self.ended:
                return None
            batch = self._inner.read(now_us, max_rows)
            self.wake_us = self._inner.wake_us
            found = None if batch is None else self._left_out(batch)
            self.ended = self.ended or self._inner.ended
            if found is not None and found.num_rows:
                return found
            if batch is None:
                return None
        return None

    def skip(self, rows: int) -> None:
        while rows > 0 and not self.ended:
            batch = self.read(0, rows)
            rows -= 0 if batch is None else batch.num_rows

    def _left_out(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        places = self._places(batch)
        self._place = int(places[-1]) + 1
        self.ended = self._place >= int(self._ends[-1])
        at = np.searchsorted(self._firsts, places, "right") - 1
        within = (at >= 0) & (places < self._ends[at])
        share = self._keep[np.maximum(at, 0), self._classes(batch)]
        kept = (share * 2.0**ALL_BITS).round().astype(np.uint64)
        gone = within & (place_hashes(self._described.name, self._partition, places) >= kept)
        return batch.filter(pa.array(gone))

    def _places(self, batch: pa.RecordBatch) -> npt.NDArray[np.int64]:
        column = self._described.source.position
        if column is None:
            return np.arange(self._place, self._place + batch.num_rows, dtype=np.int64)
        found: npt.NDArray[np.int64] = batch.column(column).to_numpy(zero_copy_only=False).astype(np.int64)
        return found

    def _classes(self, batch: pa.RecordBatch) -> npt.NDArray[np.int64]:
        column = self._described.column
        if column is None:
            return np.zeros(batch.num_rows, np.int64)
        values = batch.column(column).cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False)
        return self._described.classes.of(values).astype(np.int64)

    def reach(self, way: Any) -> None:
        self._inner.reach(way)

    def fileno(self) -> int | None:
        return self._inner.fileno()

    def close(self) -> None:
        self._inner.close()


@dataclass(frozen=True)
class DroppedSource(Source):
    """Made by `dropped`. source: that was read. name: of its box then. of: with how many partitions. column, classes: by which its rows
    differed in worth."""

    kind: ClassVar[str] = "dropped"
    uncut: ClassVar[str] = "its rows are a choice of another source's"
    source: Source
    name: str
    of: int
    spans: tuple[Span, ...]
    column: str | None = None
    classes: Classes = ALIKE

    @property
    def blocking(self) -> bool:  # type: ignore[override]
        return self.source.blocking

    @property
    def streaming(self) -> bool:
        return False

    def begun(self, now_us: int) -> Source:
        return replace(self, source=self.source.begun(now_us))

    @property
    def schema(self) -> pa.Schema:
        return self.source.schema

    def partitions(self, sites: int) -> int:
        return self.of

    def warm_up(self) -> None:
        self.source.warm_up()

    def open(self, partition: int, of: int) -> Reader:
        return DroppedReader(self, partition, self.source.open(partition, of))

    def to_json(self) -> dict[str, Any]:
        raise QueryError("dropped source: what a run has left out cannot be written down; make it of run.shed() where it is read")


def dropped(source: Source, shed: pa.Table, *, of: str | None = None) -> DroppedSource:
    """What a run has left out of a source under overload (`run.shed()`), as a source that ends: the same rows, in their order.

    source: the one that was read, without a pace (`rate=None`, `speed=None`), so that nothing is late and left out again; rows that are
    made have the times at which they are due, so these are others then. of: its name in that run; None where rows of one source only were
    left out. Raises QueryError where that is not known, or cannot be read again.
    """
    if not isinstance(source, Source):
        raise QueryError(f"dropped: {type(source).__name__} is no source; give the one that the run read")
    if not isinstance(shed, pa.Table) or METADATA not in (shed.schema.metadata or {}):
        raise QueryError("dropped: give the table that run.shed() returns, with its schema's metadata")
    if not isinstance(of, str | None):
        raise QueryError(f"dropped: of is the name of a source, not {of!r}")
    rows = [row for row in shed.to_pylist() if row["source"] is not None]
    names = sorted({row["source"] for row in rows})
    if of is None and len(names) > 1:
        raise QueryError(f"dropped: rows of {', '.join(map(repr, names))} were left out; say of= which is meant")
    told = json.loads(shed.schema.metadata[METADATA])
    name = of if of is not None else names[0] if names else next(iter(told), "")
    if name not in told:
        there = f"there are {', '.join(map(repr, told))}" if told else "there is no such source"
        raise QueryError(f"dropped: nothing can have been left out of {name!r} in that run; {there}")
    if why := _refused(source, told[name]):
        raise QueryError(f"dropped: {why}")
    mine = [row for row in rows if row["source"] == name]
    if any(row["first"] is None for row in mine):
        raise QueryError(
            f"dropped: of rows of {name!r} that were left out before the checkpoint that the run went on from, or before the newest epochs "
            "that are remembered, nobody can say which they were; to read the others, leave the lines without `first` out of the table"
        )
    spans = tuple(sorted({Span(row["partition"], row["first"], row["end"], tuple(row["keep"])) for row in mine}))  # Tables may be joined.
    if any(one.partition == other.partition and other.first < one.end for one, other in pairwise(spans)):
        raise QueryError(f"dropped: epochs of {name!r} overlap in that table; give that of one run")
    facts = told[name]
    classes = Classes(tuple(facts["cuts"]), tuple(facts["worth"]))
    return DroppedSource(source, name, facts["partitions"], spans, facts["column"], classes)


def _refused(source: Source, told: Mapping[str, Any]) -> str | None:
    if told["windows"]:
        return "whole windows or keys were left out, and their rows cannot be told from others by their places"
    if source.pushed or not source.repeats:
        return f"the {source.kind} source cannot give its rows again"
    if source.tells_due:
        return "the source has a pace, and what is late would be left out again; give it without (rate=None, speed=None)"
    return None


__all__ = ["METADATA", "DroppedReader", "DroppedSource", "Span", "dropped"]
