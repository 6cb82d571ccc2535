"""What outlives the processes of a simulated cluster: time, and what sinks have stored (availability.md, J4).

A sink that stores (run, epoch) drops what it has. That it is given the same again is what a restart promises, so it looks.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

import pyarrow as pa

from evenflow.exchange.portion import Portion, rows_of, without_producer
from evenflow.world.sim.clock import VirtualClock
from evenflow.world.sim.forgetting import Kept


class Lasting:
    """clock: of the cluster. released: by sink, the epochs that it has stored, in order. dropped: by sink, how many with rows it was given
    again. portions: by sink that takes first come, first served, and (epoch, stream, producer partition), the rows that it has stored.
    unkept: what is given again may be other rows, since a source is not kept. kept: by (segment, partition) of an ingress whose
    source has lost some, what it still has. run: by which sinks know epochs. again: by sink, the epochs that a run before had given it
    behind the checkpoint that the next one has begun with: they come again, cut otherwise."""

    def __init__(self, sinks: Iterable[str], clock: VirtualClock | None = None) -> None:
        self.clock = clock or VirtualClock()
        self.released: dict[str, list[tuple[int, pa.RecordBatch]]] = {name: [] for name in sinks}
        self.dropped: Counter[str] = Counter()
        self.portions: dict[str, dict[tuple[int, int, int], pa.RecordBatch]] = {}
        self.unkept = False
        self.kept: dict[tuple[int, int], Kept] = {}
        self.run = ""
        self.again: dict[str, list[tuple[int, pa.RecordBatch]]] = {name: [] for name in sinks}
        self._newest_portion: dict[tuple[str, int, int], int] = {}

    def stored(self, sink: str) -> int:
        """The last epoch that a sink has stored."""
        return self.released[sink][-1][0] if self.released[sink] else 0

    def begin(self, run: str, epoch: int) -> None:
        """A generation begins behind this epoch. To sinks another run is another one: they take all that it gives."""
        if run == self.run:
            return
        self.run = run
        for sink, found in self.released.items():
            self.again[sink] += [(at, rows) for at, rows in found if at > epoch]
            found[:] = [(at, rows) for at, rows in found if at <= epoch]
        for sink, kept in self.portions.items():
            self.portions[sink] = {key: rows for key, rows in kept.items() if key[0] <= epoch}
        self._newest_portion = {key: min(newest, epoch) for key, newest in self._newest_portion.items()}

    def lasts(self, through: int) -> dict[str, int]:
        """By sink, the last epoch with rows up to this one; 0 if none had any."""
        return {
            sink: next((epoch for epoch, rows in reversed(found) if epoch <= through and rows.num_rows), 0)
            for sink, found in self.released.items()
        }

    def store_portion(self, sink: str, epoch: int, portion: Portion, rows: pa.RecordBatch) -> tuple[int, ...]:
        """A sink is given some partitions' rows of an epoch. Returns those of the partitions that it did not have: what it has must be
        the same rows."""
        kept, new = self.portions.setdefault(sink, {}), []
        for producer in portion.producers:
            key, given = (epoch, portion.stream, producer), without_producer(rows_of(rows, (producer,)))
            if self._newest_portion.get((sink, portion.stream, producer), 0) < epoch:
                self._newest_portion[sink, portion.stream, producer] = epoch
                kept[key] = given
                new.append(producer)
            else:
                assert self.unkept or same_rows(kept.get(key), given), f"sink {sink} has stored other rows of {key} than it is given now"
        return tuple(new)

    def whole(self, sink: str, epoch: int, nothing: pa.RecordBatch) -> pa.RecordBatch:
        """All rows of an epoch that a sink has stored in portions. nothing: no rows, of the same columns."""
        found = [rows for key, rows in sorted(self.portions.get(sink, {}).items()) if key[0] == epoch]
        return pa.concat_batches([nothing, *[each.cast(nothing.schema) for each in found]])

    def store(self, sink: str, epoch: int, rows: pa.RecordBatch) -> bool:
        """A sink is given an epoch. False if it had it before: then it must be the same rows."""
        if epoch > self.stored(sink):
            self.released[sink].append((epoch, rows))
            return True
        self.dropped[sink] += bool(rows.num_rows)
        had = next((before for at, before in self.released[sink] if at == epoch), None)
        assert self.unkept or same_rows(had, rows), f"sink {sink} has stored other rows of epoch {epoch} than it is given now"
        return False


def same_rows(one: pa.RecordBatch | None, other: pa.RecordBatch) -> bool:
    """Whether these are the same rows: their order within an epoch is free, unless an operator cares. None: of an epoch without rows."""
    if one is None or not (one.num_rows and other.num_rows):
        return bool(other.num_rows == (0 if one is None else one.num_rows))
    return Counter(map(repr, one.to_pylist())) == Counter(map(repr, other.to_pylist()))
