"""Spilling: state beyond the budget goes to disk by whole partitions, and they take turns in memory (protocol M1, FL 6.1).

What is over the budget goes in groups of partitions, those without rows first, then the largest; the rest of a cohort stays. When an epoch
is there, a rotation takes it, and all that wait behind it, through the groups: first those that happen to be in memory, then each that must
be read, for which others that have had their turn are written. So with each rotation the order turns round, and what is read last is not
written before it is needed. A group that an epoch brings no rows for is not read, where only rows change anything. The cohort that waits
for the oldest epoch goes first. One thing at a time is on its way to or from the disk, beside the event loop.

Moves pre-empt spilling: partitions that are on their way to another site stay where they are until they have left, and do not count. What
is written for the time of a copy would be read again for it, and all would wait for the disk meanwhile.

What is read from a checkpoint comes partition by partition, and what has no place among those that stay begins in a group: the next one
waits until it is on disk. So a restart takes no more memory than the run has had.

Results are the same, only later: ingress sees that epochs take longer and makes larger ones, and so each reading serves more rows.

A disk that takes no more (full, or failing) costs memory, not results: the state stays where it is, the coordinator is told, and it is
tried again after a while. State that cannot be read any more is lost here, and the coordinator knows what follows: where others have all
that this site has, or it begins again from a base, or anew, the site ends; else the run does, with a DiskError.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt

from evenflow.site.cohort import Cohort
from evenflow.site.events import Load, Loaded, LoadFailed, Run, Spill, Spilled, SpillFailed, StateMemoryChanged
from evenflow.site.facts import DiskLost, DiskTrouble
from evenflow.site.ground import Ground
from evenflow.site.hosted import Hosted
from evenflow.site.outcome import Outcome
from evenflow.site.turns import Group, Turns

CHECK_US: Final = 20_000
"""How often it is looked whether the state is over the budget."""
RETRY_MS: Final = 1000.0
"""After the disk has taken nothing."""
READS_MAX: Final = 2
"""So often a state is read before it is given up."""
FULL: Final = 0.75
"""With less than this part of the budget in memory, groups join the others of their cohort again."""


Answer = Spilled | SpillFailed | Loaded | LoadFailed


class Spilling:
    """budget: bytes of state that may be in memory, None for all. troubled: the disk took nothing when it was last asked to.
    reads_failed: so often what is being read could not be. relief_us: how long what is too much may wait for moves before it is written.

    _over: there was too much in memory when it was last looked; _since_us: since when. _anew: look again as soon as possible. _divided:
    some partitions have taken turns, so that it must be looked after them from now on.
    """

    def __init__(self, part: Ground) -> None:
        self._part = part
        self.budget = part.options.state_memory_bytes
        self.troubled = False
        self._over = self._anew = self._divided = False
        self._check_us = self._retry_us = 0
        self._tickets = 0
        self._under_way: tuple[int, Cohort, Group] | None = None
        self.reads_failed = self.relief_us = 0
        self._since_us: int | None = None
        self._rows: dict[int, npt.NDArray[np.int64]] = {}
        self._resident: dict[tuple[int, int], int] = {}

    # ------------------------------------------------------------ what is where

    @property
    def spilled_bytes(self) -> int:
        """State on disk."""
        return sum(group.disk_bytes for _, group in self._groups() if group.hosted is None)

    @property
    def free_bytes(self) -> int | None:
        """What is left of the budget; negative: so much has to leave yet."""
        if self.budget is None:
            return None
        held = sum([int(c.hosted.partition_bytes(c.hosted.partitions).sum()) for c in self._part.cohorts.values()])
        return self.budget - held - sum([group.memory_bytes for _, group in self._groups() if group.hosted is not None])

    def on_disk(self, segment: int) -> tuple[int, ...]:
        """The segment's partitions whose state is on disk."""
        return tuple(sorted(p for c, group in self._groups() if c.segment.id == segment and group.hosted is None for p in group.partitions))

    def _groups(self) -> list[tuple[Cohort, Group]]:
        return [(c, group) for c in self._part.cohorts.values() if c.turns is not None for group in c.turns.groups]

    def _leaving(self, cohort: Cohort) -> frozenset[int]:
        return frozenset() if cohort.number else self._part.view.leaving(cohort.segment.id)

    def _bytes(self, cohort: Cohort, group: Group) -> int:
        """What the group's partitions that stay have in memory when it is there."""
        return group.bytes_without(self._leaving(cohort))

    def _sizes(self, cohort: Cohort) -> dict[int, int]:
        """Bytes of each of its partitions that takes no turns and stays."""
        leaving = self._leaving(cohort)
        staying = tuple(p for p in cohort.hosted.partitions if p not in leaving)
        return dict(zip(staying, cohort.hosted.partition_bytes(staying).tolist(), strict=True))

    def _measure(self) -> None:
        self._resident = {key: sum(self._sizes(cohort).values()) for key, cohort in self._part.cohorts.items()}

    def _in_memory(self) -> int:
        """What counts against the budget."""
        return sum(self._resident.values()) + sum(self._bytes(c, group) for c, group in self._groups() if group.hosted is not None)

    # ------------------------------------------------------------ budget

    @property
    def at_work(self) -> bool:
        """There is a budget, or something of what one has led to is not over."""
        return self.budget is not None or self._anew or self._divided or self._under_way is not None

    def relieve(self) -> None:
        """Between epochs: let partitions that have no place take turns, and those that have one again take none."""
        part = self._part
        if self._under_way is not None or (not self._anew and part.now_us < self._check_us):
            return
        if self.budget is None and not self._anew and not self._groups():
            return
        self._check_us, self._anew = part.now_us + CHECK_US, False
        self._measure()
        self._over = self.budget is not None and (self._in_memory() > self.budget or self._crowded())
        if self._filling:
            return
        self._note_lack()
        if not self._over:
            self._join()
        elif self._may_write() and (self._crowded() or self._leaver() is None):
            self._anew = self._divide()
            # All at once: until as much can leave as has to, turns change nothing, and the next epoch may be long in coming.
            groups = 0
            while self._crowded() and groups < len(self._groups()):
                groups = len(self._groups())
                self._anew = self._divide()

    def _crowded(self) -> bool:
        """What takes no turns, and the largest group when it has its turn, are more than the budget, whatever else leaves."""
        largest = max([self._bytes(cohort, group) for cohort, group in self._groups()], default=0)
        return self.budget is not None and largest > 0 and sum(self._resident.values()) > self.budget - largest

    def _note_lack(self) -> None:
        """Who begins to lack memory waits for moves a while; not one whose partitions take turns already: it has waited, in vain."""
        if not self._over:
            self._since_us = None
        elif self._since_us is None:
            self._since_us = self._part.now_us
            if self.relief_us and not self._groups():
                self._retry_us = max(self._retry_us, self._since_us + self.relief_us)
                self._part.set_timer("spill", self.relief_us / 1000)

    def _may_write(self) -> bool:
        return self._part.now_us >= self._retry_us

    def _divide(self) -> bool:
        """Some partitions of the cohort with most state become a group: those without rows of late, then the largest.

        True if there may be more to do as soon as an epoch ends.
        """
        part = self._part
        able = [
            c
            for key, c in part.cohorts.items()
            if c.ready and key[1] == 0 and c.segment.kind != "ingress" and self._resident[key] and not c.gathers
        ]
        found = max([c for c in able if not c.hosted.busy], key=lambda cohort: self._resident[cohort.key], default=None)
        if found is None:
            return bool(able)
        assert self.budget is not None
        hosted, most = found.hosted, self._most
        rows = part.tallies.of(found.segment).rows
        hot = rows > self._rows.get(found.segment.id, np.zeros_like(rows))
        self._rows[found.segment.id] = rows.copy()
        sizes = self._sizes(found)
        chosen: list[int] = []
        for partition in sorted([p for p, size in sizes.items() if size], key=lambda p: (bool(hot[p]), -sizes[p], p)):
            if not chosen or sum(sizes[p] for p in chosen) + sizes[partition] <= most:
                chosen.append(partition)
        partitions = tuple(sorted(chosen))
        group = Group(partitions, self._built(found, partitions), sum(sizes[p] for p in chosen))
        assert group.hosted is not None
        group.hosted.install({(p, step): snapshot.to_bytes() for p, step, snapshot in hosted.capture(partitions)})
        hosted.leave(partitions)
        while hosted.give_back():
            pass
        self._divided = True
        found.turns = found.turns or Turns()
        found.turns.groups.append(group)
        self._resident[found.key] -= group.memory_bytes
        return True

    def _built(self, cohort: Cohort, partitions: tuple[int, ...]) -> Hosted:
        part, hosted = self._part, cohort.hosted
        given: Any = {"checked": hosted.checked, "tally": hosted.tally, "groups": hosted.groups, "version": hosted.version}
        return Hosted.of(hosted.segment, part.layout, partitions, **given)

    def _join(self) -> None:
        """Where all of a cohort is in memory, and there is room to spare, nobody takes turns any more."""
        if self.budget is not None and self._in_memory() > FULL * self.budget:
            return
        for cohort in self._part.cohorts.values():
            turns = cohort.turns
            if turns is not None and not cohort.hosted.busy and all(group.ready for group in turns.groups):
                self._take_back(cohort.hosted, turns)

    @staticmethod
    def _take_back(hosted: Hosted, turns: Turns) -> None:
        for group in turns.groups:
            assert group.hosted is not None
            turns.late += group.late_rows + group.hosted.facts.late_rows
            hosted.absorb(group.hosted)
        turns.groups = []

    def gather(self, cohort: Cohort) -> bool:
        """Have all of a cohort's state in memory, whatever the budget, until it begins its next epoch: in that, its partitions are divided
        anew (E1). True when it is. Not while an epoch runs."""
        turns = cohort.turns
        cohort.gathers = True
        if turns is not None and not all(group.ready for group in turns.groups):
            return False
        if turns is not None:
            self._take_back(cohort.hosted, turns)
        return True

    # ------------------------------------------------------------ what is read from a checkpoint

    @property
    def _most(self) -> int:
        """Of state that goes to disk in one piece, unless one partition has more."""
        assert self.budget is not None
        return min(self._part.options.spill_group_bytes, self.budget // 4)

    @property
    def _filling(self) -> bool:
        """The state of a cohort that counts is still being read (K9)."""
        return any(not cohort.ready and not cohort.number for cohort in self._part.cohorts.values())

    def fits(self, size: int) -> bool:
        """So many bytes more may stay in memory, and there is room for a group beside them."""
        if self.budget is None:
            return True
        self._measure()
        return sum(self._resident.values()) + size <= self.budget - self._most

    def must_wait(self, size: int) -> bool:
        """Whether so many bytes more have to wait until something that is on its way to the disk, now at the latest, is there."""
        if self.budget is None:
            return False
        if self._under_way is None:
            return self._make_room(size)
        return self._may_write() and self._in_memory() + size > self.budget

    def place(self, cohort: Cohort, partition: int, size: int) -> Group | None:
        """Where a partition of a cohort that is not ready is to be installed, which has so many bytes: a group, which is told when it is;
        None: with those that take no turns."""
        if self.budget is None or cohort.segment.kind == "ingress":
            return None
        if sum(self._resident.values()) + size <= self.budget - self._most:
            self._resident[cohort.key] = self._resident.get(cohort.key, 0) + size
            return None
        turns = cohort.turns = cohort.turns or Turns()
        group = turns.groups[-1] if turns.groups else None
        if group is None or not group.ready or group.memory_bytes + size > self._most:
            group = Group((), self._built(cohort, ()), 0)
            turns.groups.append(group)
        cohort.hosted.leave((partition,))
        group.fill(partition, size)
        self._divided = True
        return group

    # ------------------------------------------------------------ rotation

    def begin(self, cohort: Cohort) -> None:
        """A cohort whose partitions take turns begins its next epoch, and all that wait behind it, if it can.

        A copy from here begins at the end of one epoch, a checkpoint wants state at that of one, key groups change hands at one, a copied
        cohort must be able to come level: then it is one at a time.
        """
        part, turns, hosted = self._part, cohort.turns, cohort.hosted
        assert turns is not None
        if hosted.busy or not cohort.has_input():
            return
        if part.now_us < turns.not_before_us:
            part.set_timer("spill", (turns.not_before_us - part.now_us) / 1000)
            return
        work = cohort.next_work(part.view)
        works, ends = [], {part.captures_at, *[plan.effective - 1 for plan in part.view.plans]}
        while work is not None:
            works.append(work)
            epoch = work.tick.epoch
            closed = epoch >= part.durable and cohort.segment.publishes
            work = None if epoch in ends or closed or part.housing.joining else cohort.work_after(work, part.view)
        if works:
            part.housing.note_begun(cohort)
            turns.begin(works, timeless=hosted.facts.timeless)

    def take(self, cohort: Cohort, outcome: Outcome) -> list[Outcome]:
        """An epoch of a share is done. Returns what the cohort has finished by that."""
        assert cohort.turns is not None and cohort.turns.rotation is not None
        turns, rotation = cohort.turns, cohort.turns.rotation
        share = rotation.running
        assert share is not None
        whole = rotation.take(outcome)
        if share.epochs:
            self._part.act(Run(share.work()))
            return whole
        rotation.running = None
        if share.group is not None and share.group.hosted is not None:
            share.group.memory_bytes = int(share.group.hosted.partition_bytes(share.group.partitions).sum())
        if rotation.over:
            turns.rotation = None
            turns.not_before_us = self._part.now_us + int(self._part.options.spill_gap_ms * 1000)
        return whole

    def go_on(self) -> None:
        """Let those run that can, and the disk do what is next."""
        if not self._divided:
            return
        waiting: list[tuple[int, int, Cohort, Group]] = []
        for number, cohort in enumerate(self._part.housing.order):
            rotation = cohort.turns.rotation if cohort.turns is not None else None
            if rotation is None:
                if cohort.turns is not None and cohort.gathers:
                    absent = [group for group in cohort.turns.groups if group.hosted is None]
                    waiting.extend((cohort.hosted.done + 1, number, cohort, group) for group in absent[:1])
                continue
            if rotation.running is None:
                ready = next((share for share in rotation.todo if share.group is None or share.group.ready), None)
                if ready is not None:
                    rotation.todo.remove(ready)
                    rotation.running = ready
                    self._part.act(Run(ready.work()))
            asleep = next((share.group for share in rotation.todo if share.group is not None and share.group.hosted is None), None)
            if asleep is not None:
                waiting.append((rotation.first, number, cohort, asleep))
        if self._under_way is not None:
            return
        if waiting:
            _, _, cohort, group = min(waiting, key=lambda each: each[:2])
            if not self._make_room(self._bytes(cohort, group)):
                self._read(cohort, group)
        elif self._over:
            self._make_room(0)
        else:
            self._bring_back()

    def _bring_back(self) -> None:
        """Nobody needs the disk: read what there is room for, those first that had rows last."""
        if self._filling:
            return
        absent = [(c, group) for c, group in self._groups() if group.hosted is None and not group.moving]
        if not absent:
            return
        cohort, group = min(absent, key=lambda each: (each[1].idle, each[1].memory_bytes, each[0].key, each[1].partitions))
        if self.budget is None or self._in_memory() + self._bytes(cohort, group) <= FULL * self.budget:
            self._anew = True
            self._read(cohort, group)

    def _make_room(self, wanted: int) -> bool:
        """Have a group written, if there is too little room for so many bytes, and one that can go. True if so."""
        if self.budget is None or self._in_memory() + wanted <= self.budget or not self._may_write():
            return False
        leaver = self._leaver()
        if leaver is None:
            return False
        cohort, group = leaver
        assert group.hosted is not None
        group.moving = True
        self._part.act(Spill(self._ticket(cohort, group), tuple(group.hosted.capture(group.partitions))))
        return True

    def _leaver(self) -> tuple[Cohort, Group] | None:
        """The group in memory that can go best: it has had its turn, and no rows for longest; then the largest. Not one that moves away."""
        able = []
        for cohort, group in self._groups():
            assert cohort.turns is not None
            rotation = cohort.turns.rotation
            shares = [] if rotation is None else [*rotation.todo, rotation.running]
            needed = cohort.gathers or any(share is not None and share.group is group for share in shares)
            if group.ready and not needed and not self._leaving(cohort).issuperset(group.partitions):
                able.append((cohort, group))
        return min(able, key=lambda each: (-each[1].idle, -each[1].memory_bytes, each[0].key, each[1].partitions), default=None)

    def _read(self, cohort: Cohort, group: Group) -> None:
        group.moving = True
        self._part.act(Load(self._ticket(cohort, group), group.kept))

    # ------------------------------------------------------------ the disk's answers

    def _ticket(self, cohort: Cohort, group: Group) -> int:
        self._tickets += 1
        self._under_way = (self._tickets, cohort, group)
        return self._tickets

    def _done(self, ticket: int) -> tuple[Cohort, Group] | None:
        """Whom an answer is for; None if the cohort has gone meanwhile."""
        assert self._under_way is not None and self._under_way[0] == ticket, f"the disk answers {ticket}, asked was {self._under_way}"
        _, cohort, group = self._under_way
        self._under_way, group.moving = None, False
        return (cohort, group) if self._part.cohorts.get(cohort.key) is cohort else None

    def hear(self, event: Answer | StateMemoryChanged) -> None:
        match event:
            case Spilled():
                self._note_spilled(event)
            case SpillFailed():
                self._keep(event)
            case Loaded():
                self._take_in(event)
            case LoadFailed():
                self._read_again(event)
            case StateMemoryChanged():
                self.budget, self._anew = event.state_bytes, True

    def _note_spilled(self, event: Spilled) -> None:
        self.troubled = False
        found = self._done(event.ticket)
        if found is not None:
            found[1].give_up(event.kept)

    def _keep(self, event: SpillFailed) -> None:
        """Nothing is lost: the state is in memory still."""
        self._done(event.ticket)
        self._retry_us = self._part.now_us + int(RETRY_MS * 1000)
        self._part.set_timer("spill", RETRY_MS)
        if not self.troubled:
            self.troubled = True
            self._part.tell(DiskTrouble(event.why))

    def _take_in(self, event: Loaded) -> None:
        self.reads_failed = 0
        found = self._done(event.ticket)
        if found is None:
            return
        cohort, group = found
        group.hosted = self._built(cohort, group.partitions)
        group.hosted.install({key: state for key, state in event.states.items() if key[0] in group.partitions})
        group.kept = ()

    def _read_again(self, event: LoadFailed) -> None:
        found = self._done(event.ticket)
        self.reads_failed += 1
        if found is None:
            self.reads_failed = 0
            return
        cohort, group = found
        if self.reads_failed < READS_MAX:
            self._read(cohort, group)
            return
        self._part.failed = True
        self._part.tell(DiskLost(cohort.segment.name, cohort.hosted.done + 1, event.why))
