"""A cohort: partitions of one segment at one site that are equally far, with all that belongs to them.

There is one cohort of live partitions per segment. Partitions that are being copied here (C1-C3) are a cohort of their own, fed like the
others, which nobody waits for; when it has come as far as the live one it is absorbed by it, or, where there is none, becomes it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from evenflow.exchange.inbox import Inbox
from evenflow.exchange.retention import Retention
from evenflow.kernels.hash import Hashes
from evenflow.plan.layout import Segment
from evenflow.plan.plan import Copy
from evenflow.site.events import Release
from evenflow.site.hosted import Hosted, Work
from evenflow.site.log import PartitionLog
from evenflow.site.turns import Turns
from evenflow.site.view import Terms, View
from evenflow.state.snapshot import Snapshot
from evenflow.stream.epoch import ALL_KEPT, IDLE, NO_WATERMARK, Lost, Tick, behind
from evenflow.stream.ids import CopyNumber


@dataclass(slots=True)
class Cohort:
    """The partitions of a segment that are processed together at this site."""

    number: CopyNumber
    """0 if the cohort is live, else the number of the copy that brings it here."""
    hosted: Hosted
    """What processes the cohort's epochs: its operators with their state."""
    copy: Copy | None = None
    """The copy that brings it here; None for the live one."""
    ready: bool = True
    """Its state is here."""
    reported: bool = False
    """The site has told the coordinator that this copied cohort is level."""
    state_bytes: int = 0
    """How much state has come with it."""
    inboxes: dict[int, Inbox] = field(default_factory=dict)
    """What its partitions receive, by stream."""
    logs: dict[int, PartitionLog] = field(default_factory=dict)
    """Which rows form which epoch, by ingress partition."""
    retained: dict[int, Retention] = field(default_factory=dict)
    """What its consumers may still ask for, by stream."""
    waiting: list[Release] = field(default_factory=list)
    """Finished epochs that may not go to a sink yet (O1)."""
    portioned: dict[tuple[int, int], int] = field(default_factory=dict)
    """By stream and producer partition, the last epoch of which its rows are released, where portions of epochs are (O1)."""
    digests: Hashes = field(default_factory=lambda: np.zeros(0, np.uint64))
    """uint64 (P,): a rolling digest of all that each partition ever put out (E3)."""
    passed: dict[tuple[int, int], int] = field(default_factory=dict)
    """By live cohort here: how far this copied cohort was when the live one began its newest epoch. It paces the catching up."""
    turns: Turns | None = None
    """Its partitions that take turns in memory, if any do; `hosted` has the others."""
    gathers: bool = False
    """All of its state is wanted in memory before it begins its next epoch (see `Spilling.gather`)."""
    born: int = 0
    """The number of the copy that it has come with, 0 if it was here from the start. No other cohort of the segment here ever has the
    same, so an outcome that comes later says by it whose it is."""

    @property
    def partitions(self) -> tuple[int, ...]:
        """All of them, those on disk included."""
        return self.hosted.partitions if self.turns is None else self.turns.all_with(self.hosted.partitions)

    @property
    def segment(self) -> Segment:
        return self.hosted.segment

    @property
    def key(self) -> tuple[int, int]:
        return (self.hosted.segment.id, self.number)

    def has_input(self) -> bool:
        """All of its next epoch's input is here (E2)."""
        epoch = self.hosted.done + 1
        if self.hosted.segment.kind == "ingress":
            for log in self.logs.values():
                if log.settled < epoch:
                    return False
            return self.ready
        for inbox in self.inboxes.values():
            if inbox.through < epoch:
                return False
        if self.hosted.segment.effects is not None and not self._answered(epoch):
            return False
        return self.ready

    def _answered(self, epoch: int) -> bool:
        """All live members hold what the leaders' boxes have answered (N1)."""
        return all(log.settled >= epoch for log in self.logs.values())

    def next_question(self, view: View) -> Work | None:
        """What the box is to answer of the next epoch, for partitions that this site leads (N1); None if nothing, or not yet."""
        hosted = self.hosted
        epoch = hosted.done + 1
        if hosted.busy or not self.ready or any(inbox.through < epoch for inbox in self.inboxes.values()):
            return None
        led = [p for p, log in self.logs.items() if log.end < epoch and view.leader(log.segment, p).site == view.site]
        return self._received(epoch, hosted.watermark, hosted.lost, view, asks=tuple(led)) if led else None

    def next_work(self, view: View) -> Work | None:
        """The next epoch, if it can begin."""
        hosted = self.hosted
        if hosted.segment.effects is not None and (question := self.next_question(view)) is not None:
            return question
        if hosted.busy or not self.has_input():
            return None
        epoch = hosted.done + 1
        return self._logged(epoch, view) if hosted.segment.kind == "ingress" else self._received(epoch, hosted.watermark, hosted.lost, view)

    def work_after(self, work: Work, view: View) -> Work | None:
        """The epoch after one that has not been processed yet, if it is here; of a cohort that makes no event time of its own."""
        epoch = work.tick.epoch + 1
        if min([inbox.through for inbox in self.inboxes.values()]) < epoch:
            return None
        return self._received(epoch, work.tick.watermark, work.tick.lost, view)

    def _received(self, epoch: int, before: int, lost: tuple[Lost, ...], view: View, asks: tuple[int, ...] = ()) -> Work:
        """asks: partitions of which only the box's answers are wanted; the epoch's frames stay."""
        hosted = self.hosted
        streams = hosted.segment.inputs
        taken = [self.inboxes[stream].peek(epoch) if asks else self.inboxes[stream].pop(epoch) for stream in streams]
        stamp, opened, watermark = taken[0].stamp, taken[0].opened, behind(taken[0].watermark, hosted.arcs[0].lag_us)
        for other, arc in zip(taken[1:], hosted.arcs[1:], strict=True):
            stamp, opened = max(stamp, other.stamp), min(opened, other.opened)
            watermark = min(watermark, behind(other.watermark, arc.lag_us))
        kept, newest = min([each.kept for each in taken]), max([each.newest for each in taken])
        missed = max([each.missed for each in taken])
        lost = hosted.facts.losing(lost, before, missed, kept)
        idle = watermark == IDLE
        tick = Tick(epoch, stamp, before, before if idle else max(before, watermark), idle, kept, newest, missed, lost)
        frames = tuple([(stream, given.batches) for stream, given in zip(streams, taken, strict=True) if given.batches])
        rows = sum([batch.num_rows for _, batches in frames for batch in batches]) if frames else 0
        hosted.busy = True
        terms = view.terms(hosted.segment.id, epoch)
        changed = None if terms.groups is hosted.groups else terms.groups
        splits = () if asks else terms.splits
        version, effects = self._changed(terms), None
        if hosted.segment.effects is not None and not asks:
            records = [log.record(epoch) for log in self.logs.values()]
            effects = tuple([(record.partition, record.rows) for record in records if record.rows is not None])
        return Work(
            hosted, self.number, splits, frames, (), (), frozenset(), tick, opened, rows, groups=changed, version=version, born=self.born,
            asks=asks, effects=effects,
        )  # fmt: skip

    def _logged(self, epoch: int, view: View) -> Work:
        hosted = self.hosted
        records = [log.record(epoch) for log in self.logs.values()]
        stamp = max([record.stamp for record in records])
        opened = min([record.opened for record in records])
        thinned = {record.partition: min(record.keep) for record in records if record.keep}
        kept = min(thinned.values(), default=ALL_KEPT)
        tick = Tick(epoch, stamp, hosted.watermark, hosted.watermark, kept=kept)
        arrived = tuple([(record.partition, record.rows) for record in records if record.rows is not None])
        done_batches = tuple([record.partition for record in records if record.batch_done])
        ended = frozenset([record.partition for record in records if record.ended])
        rows = sum([batch.num_rows for _, batch in arrived])
        hosted.busy = True
        stamps = {record.partition: record.stamp for record in records}
        terms = view.terms(hosted.segment.id, epoch)
        return Work(
            hosted, self.number, terms.splits, (), arrived, done_batches, ended, tick, opened, rows, stamps,
            version=self._changed(terms), born=self.born, thinned=tuple(thinned),
        )  # fmt: skip

    def _changed(self, terms: Terms) -> tuple[int, Segment] | None:
        """The version of an epoch, if it is another one than before."""
        return None if terms.version == self.hosted.version else (terms.version, terms.segment)

    def absorb(self, other: Cohort, rolled: Sequence[int]) -> None:
        """Take over the partitions of a copied cohort that is as far. rolled: those partitions."""
        self.hosted.absorb(other.hosted)
        for stream, inbox in self.inboxes.items():
            inbox.merge(other.inboxes[stream])
        self.logs = dict(sorted({**self.logs, **other.logs}.items()))
        for stream, retained in self.retained.items():
            retained.merge(other.retained[stream])
        if not other.digests.size:
            self.digests = other.digests
        elif self.digests.size:
            self.digests[list(rolled)] = other.digests[list(rolled)]

    def leave(self, partitions: tuple[int, ...], view: View) -> None:
        """Forget some of the partitions, and the rows that wait here for them; not while an epoch runs."""
        self.hosted.leave(partitions)
        if self.turns is not None:
            self.turns.leave(partitions)
        for stream, inbox in self.inboxes.items():
            inbox.sift(partial(self._own, view, stream))
        if self.digests.size:
            self.digests[list(partitions)] = 0

    def _own(self, view: View, stream: int, epoch: int, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Those rows of a bundle that are for partitions here."""
        owners = self.hosted.owners(stream, rows, view.key_groups(self.segment, epoch))
        wanted = np.isin(owners, np.array(self.partitions, np.int32))
        return rows if wanted.all() else rows.filter(pa.array(wanted))

    def roll(self, digest: Hashes | None) -> None:
        """One more epoch of output."""
        if digest is not None and self.digests.size:
            self.digests *= np.uint64(0x9E3779B185EBCA87)
            self.digests += digest

    def capture(self, partitions: tuple[int, ...], *, without: Collection[int] = ()) -> list[tuple[int, int, Snapshot]]:
        """(partition, step, state) of these partitions as of now, wherever it is. Not while an epoch runs. without: steps of which
        what takes no turns is not wanted."""
        held = self.hosted.capture(partitions, without=without)
        return held if self.turns is None else [*held, *self.turns.capture(partitions)]

    def facts(self, partitions: tuple[int, ...]) -> dict[str, Any]:
        """What goes along with the state of these partitions, as of now, in JSON's words. Not while an epoch runs."""
        return {
            "epoch": self.hosted.done,
            "watermark": self.hosted.watermark,
            **({"lost": [[each.before, each.newest, each.kept] for each in self.hosted.lost]} if self.hosted.lost else {}),
            "logs": {str(p): self.logs[p].facts_done() for p in partitions if p in self.logs},
            "digests": [int(value) for value in self.digests[list(partitions)]] if self.digests.size else [],
        }

    def memory_bytes(self) -> int:
        """State in memory."""
        return self.hosted.state_bytes() + (self.turns.state_bytes() if self.turns is not None else 0)

    def late_rows(self) -> Counter[int]:
        """Rows that came too late, by step."""
        return self.hosted.facts.late_rows if self.turns is None else self.hosted.facts.late_rows + self.turns.late_rows()

    def partition_bytes(self, partitions: tuple[int, ...]) -> npt.NDArray[np.int64]:
        """int64 (p,): about how many bytes of state each of these partitions has, in memory or on disk."""
        held = self.hosted.partition_bytes(partitions)
        if self.turns is not None:
            self.turns.add_bytes(partitions, held)
        return held

    @property
    def watermark(self) -> int:
        return self.hosted.watermark if self.ready else NO_WATERMARK

    @property
    def frame_bytes(self) -> int:
        waiting = 0 if self.turns is None else self.turns.frame_bytes
        for inbox in self.inboxes.values():
            waiting += inbox.frame_bytes
        for log in self.logs.values():
            waiting += log.frame_bytes
        for kept in self.retained.values():
            waiting += kept.frame_bytes
        return waiting
