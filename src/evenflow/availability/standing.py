"""What the entries of a journal add up to: where a location's outputs stand, and what must be done again to go on from there (J1, K10)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace

from evenflow.availability.content import Content
from evenflow.availability.durability import Durability
from evenflow.availability.entries import Begun, Completed, Cut, Drained, Ended, Entry, Key, LeftOut, Logged, Snapshot, Stopped
from evenflow.availability.retained import RETAINED
from evenflow.errors import CheckpointCorrupt, JournalCorrupt
from evenflow.plan.plan import Newcomers


@dataclass(slots=True)
class Standing:
    """See the module. begun: what the newest generation has said. generation, nonce, last: of the newest entry; last 0: there is none.

    contents: what plans say, by effective epoch, ascending; the first is that of the checkpoint's epoch, or acts from the first one on.
    cuts: of the epochs after the newest checkpoint's, by ingress partition, without gaps. checkpoints: those that are retained, ascending.
    ended: the run is over, and there is nothing to go on with. stopped: a person has stopped it since the newest generation has begun, so
    nobody goes on by himself. drained: a person has drained the run: who goes on takes in no more rows. unreadable: (generation, number)
    of checkpoints that are passed over, since not all of their objects are there: what is after an older one is replayed instead (K9).
    begins: numbers of all entries with which a generation has begun. restored: the checkpoint that the location was begun with, None if
    with nothing; only that it was, where entries were collected. rows: objects with rows that cuts named, and the last epoch that does.
    collected: a snapshot stands for all entries up to this one, 0 if none does: what they said of earlier checkpoints is gone. left_out:
    rows of sources that were, by ingress partition, in the epochs up to the newest checkpoint's since the location was begun. programs:
    what versions are kept as, with the epoch from which on each acts, ascending; the first may be that of an epoch before any checkpoint
    that is there. before: where only checkpoints are journalled, what `contents` were before each of the newest: a generation may pass
    some over, and its own are of epochs before theirs.
    """

    begun: Begun | None = None
    generation: int = 0
    nonce: str = ""
    last: int = 0
    contents: list[Content] = field(default_factory=list)
    cuts: dict[Key, list[Cut]] = field(default_factory=dict)
    checkpoints: list[Completed] = field(default_factory=list)
    ended: Ended | None = None
    unreadable: frozenset[tuple[int, int]] = frozenset()
    begins: list[int] = field(default_factory=list)
    restored: Completed | None = None
    rows: dict[str, int] = field(default_factory=dict)
    collected: int = 0
    stopped: bool = False
    drained: bool = False
    left_out: dict[Key, LeftOut] = field(default_factory=dict)
    programs: list[tuple[int, str]] = field(default_factory=list)
    before: tuple[tuple[Content, ...], ...] = ()

    @property
    def base(self) -> int:
        """The epoch that everything begins after: that of the newest checkpoint, 0 if there is none."""
        return self.checkpoints[-1].epoch if self.checkpoints else 0

    @property
    def precise(self) -> bool:
        """Which rows form an epoch is here before ends have it. Else only checkpoints are, and what came after them is cut anew."""
        return self.begun is None or self.begun.behind is None

    @property
    def durability(self) -> Durability:
        """What the location was begun with."""
        return Durability.PRECISE if self.precise else Durability.NO_LOSS

    @property
    def sinks_run(self) -> str:
        """By which run sinks know what the newest generation gives them."""
        assert self.begun is not None
        return self.durability.sinks_run(self.begun.run, self.generation)

    @property
    def lasts(self) -> Mapping[str, int]:
        """By sink in the driver, the last epoch with rows up to the base; none where that is not known."""
        return self.checkpoints[-1].lasts if self.checkpoints else {}

    @property
    def durable(self) -> int:
        """The last epoch whose cuts are here for all ingress partitions: no end has given out a later one (J2)."""
        return min((cuts[-1].epoch if cuts else self.base for cuts in self.cuts.values()), default=self.base)

    @property
    def stamp(self) -> int:
        """The newest of any epoch that is known here, microseconds; 0 if there is none."""
        pieces = self.checkpoints[-1].pieces if self.checkpoints else ()
        logs = [facts for piece in pieces for facts in piece.facts.get("logs", {}).values()]
        return max([*(cut.stamp for cuts in self.cuts.values() for cut in cuts[-1:]), *(int(facts[3]) for facts in logs), 0])

    @property
    def told(self) -> str:
        """What the newest generation does first, for people."""
        if not self.precise:
            return f"what came after epoch {self.base} comes again"
        return f"epochs {self.base + 1} to {self.durable} are made again"

    @property
    def fruitless(self) -> bool:
        """A driver has gone on here, and its journal has nothing of what it did."""
        return self.generation > 1 and self.begins[-1:] == [self.last]

    @property
    def lost(self) -> bool:
        """There is nothing to go on from: no checkpoint can be read, and what came before them is collected."""
        return bool(self.collected) and all(made.place in self.unreadable for made in self.checkpoints)

    def add(self, entry: Entry) -> None:
        """The next entry. Raises JournalCorrupt if it contradicts those before."""
        if self.last and entry.number != self.last + 1:
            raise JournalCorrupt(f"entry {self.last + 1} of the journal is missing, and entry {entry.number} is there")
        matter = entry.matter
        if isinstance(matter, Snapshot):
            self._resume(entry, matter)
            return
        if not isinstance(matter, Begun) and (self.begun is None or (entry.generation, entry.nonce) != (self.generation, self.nonce)):
            raise JournalCorrupt(f"entry {entry.number} of the journal is of generation {entry.generation}, which has not begun")
        match matter:
            case Begun():
                self._begin(entry, matter)
            case Logged():
                self._log(entry.number, matter)
            case Completed():
                self._complete(entry.number, matter)
            case Ended():
                self.ended = matter
            case Stopped():
                self.stopped = True
            case Drained():
                self.drained = True
        self.last = entry.number

    def _begin(self, entry: Entry, begun: Begun) -> None:
        if self.begun is not None and (entry.generation <= self.generation or begun.run != self.begun.run):
            raise JournalCorrupt(f"entry {entry.number} of the journal begins generation {entry.generation} after {self.generation}")
        if begun.restored is not None:
            self._restore(entry.number, begun.restored)
        if begun.behind is not None:
            self._go_back(begun.behind)
        durable = self.durable
        for key in begun.ingress:
            # What was logged for some partitions only has left no trace anywhere: the new generation cuts it anew.
            self.cuts[key] = [cut for cut in self.cuts.get(key, []) if cut.epoch <= durable]
        if not self.contents:
            self.contents.append(begun.content)
        self.contents = begun_with(self.contents, durable)
        self.programs = [each for each in self.programs if each[0] <= durable and each[0] < self.contents[0].effective]
        self._note_programs(self.contents)
        self.begun, self.stopped = begun, False
        self.begins.append(entry.number)
        self.generation, self.nonce = entry.generation, entry.nonce

    def _go_back(self, epoch: int) -> None:
        """A generation goes on from the checkpoint of this epoch. Later ones are nobody's any more: it cuts their epochs otherwise."""
        while self.base > epoch:
            self.checkpoints.pop()
            for then in self.before[-1:]:
                self.contents = [*then, *[content for content in self.contents if content not in then]]
            self.before = self.before[:-1]

    def _restore(self, number: int, restored: Completed) -> None:
        """The location begins with a savepoint's state: what came before it has never been here."""
        if self.begun is not None:
            raise JournalCorrupt(f"entry {number} of the journal begins with a savepoint, and is not the first one")
        if restored.place in self.unreadable:
            raise CheckpointCorrupt(
                "the state of the savepoint that the location was begun with cannot be read, and there is no other: start from the "
                "savepoint at another location"
            )
        self.restored = restored
        self.checkpoints.append(restored)

    def _resume(self, entry: Entry, snapshot: Snapshot) -> None:
        """Everything up to there, from who has read it before."""
        if self.last or self.begun is not None:
            raise JournalCorrupt(f"entry {entry.number} of the journal is a snapshot of what came before it, and stands behind that")
        self.begun, self.begins = snapshot.begun, list(snapshot.begins)
        self.generation, self.nonce, self.last, self.collected = entry.generation, entry.nonce, entry.number, entry.number
        self.contents, self.cuts = list(snapshot.contents), {key: list(cuts) for key, cuts in snapshot.cuts.items()}
        self.checkpoints, self.restored, self.rows = [snapshot.completed], snapshot.restored, dict(snapshot.rows)
        self.left_out, self.drained = dict(snapshot.left_out), snapshot.drained
        self._note_programs(self.contents)

    def _note_programs(self, contents: Iterable[Content]) -> None:
        """Of several that act from one epoch on, the last one does; those before it are needed as long as their plans are read."""
        for content in contents:
            if not self.programs or (self.programs[-1][0] <= content.effective and self.programs[-1][1] != content.program):
                self.programs.append((content.effective, content.program))

    def programs_since(self, epoch: int) -> frozenset[str]:
        """What the versions are kept as by which epochs after this one are made, and the state at its end was."""
        later = [name for effective, name in self.programs if effective > epoch]
        return frozenset([*[name for effective, name in self.programs if effective <= epoch][-1:], *later])

    def become(self, other: Standing) -> None:
        """All that the other one is."""
        for each in fields(self):
            setattr(self, each.name, getattr(other, each.name))

    def snapshot(self) -> Entry:
        """What is to be kept of all this where the newest entry is that of a checkpoint: it and what a replay behind it needs."""
        assert self.begun is not None and self.checkpoints, "there is a snapshot of a checkpoint's entry only"
        made, begun = self.checkpoints[-1], self.begun
        matter = Snapshot(
            replace(begun, restored=None),
            tuple(self.begins),
            tuple(self.contents),
            {key: tuple(cuts) for key, cuts in self.cuts.items()},
            made,
            None if self.restored is None else replace(self.restored, pieces=()),
            {name: epoch for name, epoch in self.rows.items() if epoch > made.epoch},
            {key: self.left_out[key] for key in self.cuts if key in self.left_out},
            self.drained,
        )
        return Entry(self.last, self.generation, self.nonce, matter)

    def _log(self, number: int, logged: Logged) -> None:
        for key, cuts in logged.cuts.items():
            if key not in self.cuts:
                raise JournalCorrupt(f"entry {number} of the journal is of ingress partition {key}, which the dataflow does not have")
            for cut in cuts:
                known = self.cuts[key]
                expected = (known[-1].epoch if known else self.base) + 1
                if cut.epoch != expected:
                    raise JournalCorrupt(f"entry {number} of the journal has epoch {cut.epoch} of {key}, expected was {expected}")
                known.append(cut)
        self.contents.extend(logged.contents)
        self._note_programs(logged.contents)
        self.rows |= named_rows(logged)

    def _complete(self, number: int, completed: Completed) -> None:
        if completed.place in self.unreadable:
            return
        if not self.base < completed.epoch or (self.precise and completed.epoch > self.durable):
            raise JournalCorrupt(
                f"entry {number} of the journal completes epoch {completed.epoch}: {self.base} is, {self.durable} is durable"
            )
        if not self.precise:
            self.before = (*self.before, tuple(self.contents))[-RETAINED:]
        readable = [made for made in self.checkpoints if made.place not in self.unreadable]
        self.checkpoints = [*readable, completed]
        for key, cuts in self.cuts.items():
            gone = LeftOut.of([cut for cut in cuts if cut.epoch <= completed.epoch], self.left_out.get(key))
            if gone is not None:
                self.left_out[key] = gone
            self.cuts[key] = [cut for cut in cuts if cut.epoch > completed.epoch]
        newcomers = self.contents[-1].newcomers if self.contents else ()
        acting = [_with(content, newcomers) for content in self.contents if content.effective <= completed.epoch]
        self.contents = [*acting[-1:], *[content for content in self.contents if content.effective > completed.epoch]]


def begun_with(contents: Sequence[Content], durable: int) -> list[Content]:
    """What a generation begins with that makes everything again up to the durable epoch: what plans said that act by the next one. A
    version that was to act later was promised to whoever asked for it, and acts from the next one on (K11). contents: one or more."""
    acting = [content for content in contents if content.effective <= durable + 1] or list(contents[:1])
    newest = contents[-1]
    acting[-1] = _with(acting[-1], newest.newcomers)
    if newest.version != acting[-1].version:
        later = replace(acting[-1], effective=durable + 1, version=newest.version, program=newest.program)
        acting = [*[content for content in acting if content.effective <= durable], later]
    return acting


def _with(content: Content, newcomers: Newcomers) -> Content:
    """What has come to sources counts from its entry on, whenever its plan acts: cuts behind that entry may have rows of it."""
    return content if content.newcomers == newcomers else replace(content, newcomers=newcomers)


def named_rows(logged: Logged) -> dict[str, int]:
    """Objects with rows that these cuts name, and the last epoch that does."""
    return {stored.name: cut.epoch for cuts in logged.cuts.values() for cut in cuts for stored in cut.objects}


def standing(entries: Iterable[Entry], unreadable: Iterable[tuple[int, int]] = ()) -> Standing:
    """What these entries add up to. unreadable: (generation, number) of checkpoints to pass over. Raises JournalCorrupt."""
    found = Standing(unreadable=frozenset(unreadable))
    for entry in entries:
        found.add(entry)
    return found
