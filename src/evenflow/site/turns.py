"""Turns: partitions of a cohort that do not all fit into memory, and take turns there (protocol M1, FL 6.1).

Such partitions form groups, each with operators of its own while it is in memory, and none while its state is on disk. A **rotation** takes
a few epochs through all of a cohort: the partitions that stay in memory and then each group process them, and the cohort has finished an
epoch when the last of them has. So between two rotations all partitions of a cohort are equally far, as if nothing were on disk, and no
other part of a site needs to know of it. Which group comes to memory, and which leaves it, is `spilling.py`'s to say.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Sequence, Set
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from evenflow.site.events import Kept
from evenflow.site.hosted import Hosted, Work
from evenflow.site.outcome import Outcome
from evenflow.state.snapshot import Snapshot

Inputs = tuple[tuple[int, tuple[pa.RecordBatch, ...]], ...]


@dataclass(slots=True, eq=False)
class Group:
    """Partitions that go to disk and come back together. hosted: their operators, None if the state is on disk; kept: what is there.

    memory_bytes: of state, when it was last in memory. moving: it is being written, read, or filled. idle: rotations since it had rows.
    late_rows: what its operators had counted, by step, when they were last given up.
    """

    partitions: tuple[int, ...]
    hosted: Hosted | None
    memory_bytes: int
    kept: tuple[tuple[int, int, Kept], ...] = ()
    moving: bool = False
    idle: int = 0
    late_rows: Counter[int] = field(default_factory=Counter)

    @property
    def ready(self) -> bool:
        """It can process."""
        return self.hosted is not None and not self.moving

    @property
    def disk_bytes(self) -> int:
        return sum([kept.size for _, _, kept in self.kept])

    def bytes_without(self, leaving: Set[int]) -> int:
        """State of its other partitions, when it was last in memory."""
        if leaving.isdisjoint(self.partitions):
            return self.memory_bytes
        if self.hosted is None:
            return sum([kept.size for partition, _, kept in self.kept if partition not in leaving])
        return int(self.hosted.partition_bytes(tuple(p for p in self.partitions if p not in leaving)).sum())

    def give_up(self, kept: Iterable[tuple[int, int, Kept]]) -> None:
        """Its state is on disk; memory has it no more."""
        assert self.hosted is not None
        self.late_rows += self.hosted.facts.late_rows
        self.kept = tuple(entry for entry in kept if entry[0] in self.partitions)
        self.hosted = None

    def fill(self, partition: int, size: int) -> Hosted:
        """One more partition, of about so many bytes, is being installed in what this returns."""
        assert self.ready and self.hosted is not None
        self.partitions = self.hosted.partitions = tuple(sorted((*self.partitions, partition)))
        self.memory_bytes += size
        self.moving = True
        return self.hosted

    def filled(self) -> None:
        """It is installed."""
        assert self.hosted is not None
        self.moving, self.memory_bytes = False, int(self.hosted.partition_bytes(self.partitions).sum())

    def leave(self, partitions: tuple[int, ...]) -> None:
        leaving = tuple(p for p in self.partitions if p in partitions)
        if not leaving:
            return
        self.partitions = tuple(p for p in self.partitions if p not in leaving)
        if self.hosted is not None:
            self.hosted.leave(leaving)
        self.kept = tuple(entry for entry in self.kept if entry[0] in self.partitions)


@dataclass(slots=True, eq=False)
class Share:
    """What one group has to do in a rotation: the epochs, with its rows of each. group: None for those that stay in memory."""

    group: Group | None
    epochs: deque[tuple[Work, Inputs, int]]

    @property
    def rows(self) -> int:
        return sum([rows for _, _, rows in self.epochs])

    def work(self) -> Work:
        """The next epoch."""
        work, inputs, rows = self.epochs.popleft()
        hosted = work.hosted if self.group is None else self.group.hosted
        assert hosted is not None
        return replace(work, hosted=hosted, inputs=inputs, rows=rows)


@dataclass(slots=True)
class Rotation:
    """A few epochs on their way through a cohort. first: the first. todo: what has not begun. running: what has.

    given: by epoch, what the shares made. handed: epochs that all have finished.
    """

    first: int
    shares: int
    todo: list[Share]
    given: list[list[Outcome]]
    running: Share | None = None
    handed: int = 0

    @property
    def frame_bytes(self) -> int:
        return sum([batch.nbytes for share in self.todo for _, inputs, _ in share.epochs for _, batches in inputs for batch in batches])

    @property
    def over(self) -> bool:
        return self.handed == len(self.given)

    def take(self, outcome: Outcome) -> list[Outcome]:
        """One share has finished an epoch. Returns the epochs that are whole by that, in order."""
        self.given[outcome.tick.epoch - self.first].append(outcome)
        whole = []
        while not self.over and len(self.given[self.handed]) == self.shares:
            whole.append(joined(self.given[self.handed]))
            self.given[self.handed] = []
            self.handed += 1
        return whole


@dataclass(slots=True)
class Turns:
    """The groups of a cohort. late: rows by step, of groups that have gone back to the others. not_before_us: when it may rotate next."""

    groups: list[Group] = field(default_factory=list)
    rotation: Rotation | None = None
    late: Counter[int] = field(default_factory=Counter)
    not_before_us: int = 0

    def all_with(self, partitions: tuple[int, ...]) -> tuple[int, ...]:
        """These and all that are in groups, ascending."""
        return tuple(sorted([*partitions, *[p for group in self.groups for p in group.partitions]]))

    def begin(self, works: Sequence[Work], *, timeless: bool) -> None:
        """Take these epochs, one after the other, through the cohort. timeless: a group without rows has nothing to do."""
        shares = [Share(None, deque()), *[Share(group, deque()) for group in self.groups]]
        which = np.zeros(works[0].hosted.segment.partitions, np.int32)
        for number, group in enumerate(self.groups, start=1):
            which[list(group.partitions)] = number
        for work in works:
            for share, (inputs, rows) in zip(shares, divide(work, which, len(shares)), strict=True):
                share.epochs.append((work, inputs, rows))
        for share in shares[1:]:
            assert share.group is not None
            share.group.idle = 0 if share.rows else share.group.idle + 1
        # Who has no partition would answer for all without keys that nothing has come.
        others = timeless or bool(works[0].hosted.partitions)
        todo = [share for share in shares if (others if share.group is None else share.rows or not timeless)]
        self.rotation = Rotation(works[0].tick.epoch, len(todo), todo, [[] for _ in works])

    # ------------------------------------------------------------ what a cohort asks of its groups

    def leave(self, partitions: tuple[int, ...]) -> None:
        for group in self.groups:
            group.leave(partitions)
        self.groups = [group for group in self.groups if group.partitions]

    def capture(self, partitions: tuple[int, ...]) -> list[tuple[int, int, Snapshot]]:
        """The state of those of these partitions that are in groups, as of now, in memory or on disk."""
        found: list[tuple[int, int, Snapshot]] = []
        for group in self.groups:
            mine = tuple(p for p in group.partitions if p in partitions)
            if group.hosted is not None:
                found.extend(group.hosted.capture(mine))
            else:
                found.extend(entry for entry in group.kept if entry[0] in mine)
        return found

    def state_bytes(self) -> int:
        return sum(group.hosted.state_bytes() for group in self.groups if group.hosted is not None)

    def add_bytes(self, partitions: tuple[int, ...], held: npt.NDArray[np.int64]) -> None:
        """Add what each of these partitions has in a group; of one on disk, what it has there."""
        at = {partition: i for i, partition in enumerate(partitions)}
        for group in self.groups:
            mine = tuple(p for p in group.partitions if p in at)
            if group.hosted is not None:
                held[[at[p] for p in mine]] += group.hosted.partition_bytes(mine)
                continue
            for partition, _, kept in group.kept:
                if partition in at:
                    held[at[partition]] += kept.size

    def late_rows(self) -> Counter[int]:
        found = Counter(self.late)
        for group in self.groups:
            found += group.late_rows
            if group.hosted is not None:
                found += group.hosted.facts.late_rows
        return found

    @property
    def frame_bytes(self) -> int:
        """Rows that wait for a group."""
        return self.rotation.frame_bytes if self.rotation is not None else 0


def divide(work: Work, which: npt.NDArray[np.int32], count: int) -> list[tuple[Inputs, int]]:
    """(inputs, rows) of an epoch for each of `count` shares. which: int32 (P,), the share of each partition. Order within one is kept."""
    inputs: list[list[tuple[int, tuple[pa.RecordBatch, ...]]]] = [[] for _ in range(count)]
    rows = [0] * count
    for stream, batches in work.inputs:
        found: list[list[pa.RecordBatch]] = [[] for _ in range(count)]
        for batch in batches:
            share = which[work.hosted.owners(stream, batch, work.hosted.groups)]
            numbers = np.flatnonzero(np.bincount(share, minlength=count)).tolist()
            for number in numbers:
                mine = batch if len(numbers) == 1 else batch.filter(pa.array(share == number))
                found[number].append(mine)
                rows[number] += mine.num_rows
        for number, own in enumerate(found):
            if own:
                inputs[number].append((stream, tuple(own)))
    return [(tuple(own), n) for own, n in zip(inputs, rows, strict=True)]


def joined(outcomes: Sequence[Outcome]) -> Outcome:
    """What several shares made of one epoch, as one."""
    first, rest = outcomes[0], outcomes[1:]
    if not rest:
        return first
    digest = first.digest
    if digest is not None:
        digest = np.sum([outcome.digest for outcome in outcomes if outcome.digest is not None], axis=0, dtype=np.uint64)
    released = first.released
    if released is not None:
        parts = [outcome.released for outcome in outcomes if outcome.released is not None and outcome.released.num_rows]
        released = released if not parts else parts[0] if len(parts) == 1 else pa.concat_batches(parts)
    return replace(
        first,
        released=released,
        rows_in=sum(outcome.rows_in for outcome in outcomes),
        failed=sum([outcome.failed for outcome in outcomes], ()),
        digest=digest,
        others=tuple(outcome.pieces for outcome in rest),
        due_us=min(outcome.due_us for outcome in outcomes),
        stored=tuple(sorted({epoch for outcome in outcomes for epoch in outcome.stored})),
        ended=sum([outcome.ended for outcome in outcomes], ()),
    )
