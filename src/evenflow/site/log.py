"""The log of an ingress partition: which rows form which epoch (protocol I1).

That is the one thing that is not a function of an address, so the leader's choice is recorded at every follower before anybody acts on
it. On a leader's death the successor's log is the truth: others keep what they have until a record of the new term contradicts it, and
then forget what came after. A record may be acted on (emitted) when all live members hold it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import pyarrow as pa

from evenflow.availability.entries import Cut
from evenflow.exchange.routing import row_bytes_of
from evenflow.exchange.section import Record, RowsObject, Share
from evenflow.site.entered import Entered
from evenflow.stream.epoch import NO_WATERMARK

UNKNOWN: Final = -1
"""Width of rows of which none have come yet."""


@dataclass(slots=True)
class PartitionLog:
    """See the module. end: last epoch with a record. matched: last one that the present leader has confirmed.

    settled: last one that all live members hold, as far as is known here. done: last one emitted here; older records are gone. taken:
    rows of the source in the epochs up to `end`, taken_done: up to `done`. stamp: of the newest record. ended: the source has.
    entered_done: which tasks of Spark those rows up to `done` are of, if they were pushed (I2). cuts: of the records that may not be
    durable, by epoch; they stay when the rows go (J5). None: nothing is journalled. known: it is known what the
    epochs before the first record have taken. anew: the partition has begun anew behind this epoch (B4), and its source stands further back
    than that: what it gives of epochs up to this one was closed nowhere, and is of the one behind it. frame_bytes: of the records' rows;
    _sizes: by epoch, of those that have any; _width: of a row, None if rows differ.
    """

    segment: int
    partition: int
    end: int = 0
    matched: int = 0
    settled: int = 0
    done: int = 0
    taken: int = 0
    taken_done: int = 0
    stamp: int = NO_WATERMARK
    ended: bool = False
    ended_done: bool = False
    stamp_done: int = NO_WATERMARK
    entered_done: Entered = field(default_factory=Entered)
    cuts: dict[int, Cut] | None = None
    known: bool = True
    anew: int = -1
    frame_bytes: int = 0
    _records: dict[int, Record] = field(default_factory=dict)
    _sizes: dict[int, int] = field(default_factory=dict)
    _width: int | None = UNKNOWN

    @staticmethod
    def begun(segment: int, partition: int, epoch: int, taken: int = 0, ended: bool = False) -> PartitionLog:
        """A log whose epochs up to `epoch` are settled and gone."""
        return PartitionLog(segment, partition, epoch, epoch, epoch, epoch, taken, taken, ended=ended, ended_done=ended)

    def begin(
        self, taken: int, ended: bool, entered: Sequence[Any], stamp: int = NO_WATERMARK, cuts: Sequence[Any] = (), anew: int = -1
    ) -> None:
        """What the epochs before the first record have taken from the source; known when the partition's state has come. cuts: of those
        epochs, the ones that may not be durable. anew: see the class."""
        self.known, self.anew, for_certain = True, anew, self.done == self.end
        self.taken_done, self.ended_done, self.entered_done, self.stamp_done = taken, ended, Entered.from_facts(entered), stamp
        if for_certain:
            self.taken, self.ended, self.stamp = taken, ended, stamp
        if self.cuts is not None:
            told = [cut_from_facts(each) for each in cuts]
            self.cuts = {cut.epoch: cut for cut in told} | self.cuts

    def facts_done(self) -> list[Any]:
        """What `begin` must be told where a copy of the partition begins with the epoch after `done`."""
        cuts = [facts_of_cut(cut) for epoch, cut in (self.cuts or {}).items() if epoch <= self.done]
        facts = [self.taken_done, self.ended_done, self.entered_done.to_facts(), self.stamp_done, cuts]
        return [*facts, self.anew] if self.anew >= self.done else facts

    @property
    def stands(self) -> bool:
        """It is known where the source is at the end of what is here: each record says so, or the state that has come."""
        return self.known or self.end > self.done

    @property
    def taken_settled(self) -> int:
        """Rows of the source in the epochs up to `settled`: nothing but the loss of all replicas can lose them."""
        record = self._records.get(self.settled)  # If it is gone, it has been emitted, and nothing after it could be.
        return record.taken if record is not None else self.taken_done

    def entered(self) -> Entered:
        """Which tasks of Spark the rows up to `end` are of."""
        entered = self.entered_done.copy()
        for record in self.since(self.done):
            entered.add(record)
        return entered

    def record(self, epoch: int) -> Record:
        return self._records[epoch]

    def append(self, record: Record) -> None:
        """The leader has cut an epoch."""
        assert record.epoch == self.end + 1, f"epoch {record.epoch} after {self.end}"
        self._records[record.epoch] = record
        if record.rows is not None:
            size = self._sizes[record.epoch] = self._bytes_of(record.rows)
            self.frame_bytes += size
        self.end = record.epoch
        self.taken, self.stamp, self.ended = record.taken, record.stamp, record.ended
        if self.cuts is not None:
            self.cuts[record.epoch] = Cut.of(record)

    def accept(self, record: Record) -> bool:
        """A follower has got a record from the leader of the present term. True if it is news."""
        if record.epoch <= self.matched:
            return False
        if record.epoch != self.matched + 1:
            return False  # A link was lost in between; the leader sends it again when it hears what is held here.
        have = self._records.get(record.epoch)
        if have is None or have.origin != record.origin:
            self._forget_after(record.epoch - 1)
            self.append(record)
        self.matched = record.epoch
        return True

    def confirm(self, epoch: int) -> bool:
        """The leader says that all live members once held its records up to `epoch`. False if this log does not reach that far."""
        if self.end < epoch:
            return False
        self.matched = max(self.matched, epoch)
        return True

    def new_term(self) -> int:
        """Another site leads from now on. Returns the last epoch that is certain: all later ones it must confirm."""
        self.matched = self.settled
        return self.settled

    def lead(self) -> None:
        """This site leads from now on: what is here is the truth."""
        self.matched = self.end

    def settle(self, epoch: int) -> None:
        """All live members hold the records up to `epoch`."""
        self.settled = max(self.settled, min(epoch, self.matched))
        assert self.done <= self.settled <= self.end, f"done {self.done}, settled {self.settled}, end {self.end}"

    def since(self, epoch: int) -> list[Record]:
        """The records after `epoch` that are still here."""
        return [self._records[e] for e in range(epoch + 1, self.end + 1) if e in self._records]

    def emitted(self, epoch: int, safe: int) -> None:
        """The epoch has been processed here. safe: last epoch that every follower holds: older records are needed no more."""
        assert self.done < epoch <= self.settled, f"epoch {epoch} was emitted after {self.done}; all hold the records up to {self.settled}"
        record = self._records[epoch]
        self.done, self.taken_done, self.ended_done, self.stamp_done = epoch, record.taken, record.ended, record.stamp
        if record.shares:
            self.entered_done.add(record)
        self.drop(safe)

    def drop(self, safe: int) -> None:
        """Forget the records that were emitted and that nobody can ask for."""
        records, last = self._records, min(safe, self.done)
        if records and next(iter(records)) <= last:
            for epoch in [epoch for epoch in records if epoch <= last]:
                self._forget(epoch)

    def settled_cuts(self, after: int) -> tuple[Cut, ...]:
        """Those that may not be durable of the settled epochs after this one, ascending."""
        assert self.cuts is not None, "nothing is journalled"
        return tuple([cut for epoch, cut in self.cuts.items() if after < epoch <= self.settled])

    def forget_cuts(self, durable: int) -> None:
        """The journal has those up to this epoch."""
        if self.cuts is not None:
            self.cuts = {epoch: cut for epoch, cut in self.cuts.items() if epoch > durable}

    def _bytes_of(self, rows: pa.RecordBatch) -> int:
        """About. All rows of a partition have the same columns; asking Arrow would cost more than to append the record."""
        if self._width == UNKNOWN:
            self._width = row_bytes_of(rows.schema)
        return int(rows.nbytes) if self._width is None else int(rows.num_rows) * self._width

    def _forget(self, epoch: int) -> None:
        self._records.pop(epoch, None)
        self.frame_bytes -= self._sizes.pop(epoch, 0)

    def _forget_after(self, epoch: int) -> None:
        while self.end > epoch:
            self._forget(self.end)
            if self.cuts is not None:
                self.cuts.pop(self.end, None)
            self.end -= 1
        last = self._records.get(epoch)
        if last is not None:
            self.taken, self.stamp, self.ended = last.taken, last.stamp, last.ended
        else:
            self.taken, self.ended = self.taken_done, self.ended_done


def facts_of_cut(cut: Cut) -> list[Any]:
    """What was left out is said where something was: versions that know nothing of that read the others."""
    return list(cut if cut.keep else cut[:-2])


def cut_from_facts(said: list[Any]) -> Cut:
    """Inverse of `facts_of_cut`, where it came as JSON."""
    cut = Cut(*said)
    shares, objects = tuple([Share(*share) for share in cut.shares]), tuple([RowsObject(*stored) for stored in cut.objects])
    return cut._replace(shares=shares, objects=objects, keep=tuple(cut.keep), dropped=tuple(cut.dropped))
