"""A simulated object store, which outlives whoever writes to it: what a checkpoint location is on.

Objects are created whole, and only if there is none of their name. It takes its time, can be slow, can refuse everything, and answers can
get lost: then the request may have been done, or not, or it is done later, when nobody expects it any more.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from random import Random
from typing import Any, Final, Literal, assert_never

from evenflow.availability.entries import JOURNAL, Begun, Completed, Entry, entry_name, from_bytes, to_bytes
from evenflow.availability.reading import Get, Listed, Look, Make, Remove, Request, reading
from evenflow.availability.retained import garbage
from evenflow.availability.standing import Standing
from evenflow.errors import CheckpointCorrupt, EvenflowError
from evenflow.plan.layout import Layout
from evenflow.stream.digest import digest_of
from evenflow.world.sim.clock import VirtualClock
from evenflow.world.sim.model import StoreModel

Created = Literal["done", "exists", "lost"]
"""What is known of an object that was to be created. lost: nothing is."""
COLLECT_US: Final = (50, 4_000)
"""Least and greatest time of a request of who collects."""


def has_room(name: str, data: bytes) -> bool:
    """There is room for everything."""
    return False


class Objects(dict[str, bytes]):
    """By name. changes: how often one was put there or taken away."""

    changes = 0

    def __setitem__(self, name: str, data: bytes) -> None:
        self.changes += 1
        super().__setitem__(name, data)

    def pop(self, name: str, *default: Any) -> Any:
        self.changes += 1
        return super().pop(name, *default)


class SimStore:
    """objects: all that there are. refuses: it does nothing, and says so, as who cannot be reached. has_refused: somebody who wanted to
    read was told so. slow: how many times longer everything takes. full: of an object by name and bytes, whether there is no room for it;
    refused: names of those for which there was none, and when.

    random: of its own. requests: how many there were. said_us: when something has come to the journal for the last time. generations: how
    many drivers have begun here. programs: what is kept of versions, by name. unreadable: (generation, number) of checkpoints that those
    who begin pass over, since somebody has found that they cannot be read (K9).

    For checkers: promised is the newest version that who asked for it was told of. swept is the epoch of the oldest checkpoint behind
    which all rows are kept. written has every object of the journal that ever was, as it was first. refilled: names that were given to
    something else when what had been there was deleted. watch: is called when a request of who collects was carried out.
    """

    def __init__(self, clock: VirtualClock, model: StoreModel, random: Random) -> None:
        self.clock, self.model, self._random = clock, model, random
        self.objects = Objects()
        self.refuses, self.slow, self.has_refused = False, 1.0, False
        self.full: Callable[[str, bytes], bool] = has_room
        self.refused: list[tuple[str, int]] = []
        self.requests = self.generations = self.said_us = self.swept = 0
        self.programs: dict[str, Layout] = {}
        self.promised = 0
        self.unreadable: set[tuple[int, int]] = set()
        self.written: dict[str, bytes] = {}
        self.refilled: list[str] = []
        self.watch: Callable[[Request], None] = lambda request: None
        self._known: tuple[int, set[tuple[int, int]], Standing] | None = None
        self._others = Random(f"who collects beside {random.getstate()[1][:4]}")

    # ------------------------------------------------------------ requests, answered later

    def create(self, name: str, data: bytes, answer: Callable[[Created], None]) -> None:
        """Create an object if there is none of that name. answer: called once."""
        answered_us, random = self._answered_us(), self._random
        done_us, lost, found = random.randint(self.clock.now_us, answered_us), random.random() < self.model.lost, list[Created]()
        if lost:
            done_us += random.randint(0, self.model.late_us)

        def do() -> None:
            found.append(self._put(name, data))

        if self.full(name, data):
            self.refused.append((name, self.clock.now_us))
            self.clock.at(answered_us, lambda: answer("lost"))
            return
        if not self.refuses and not (lost and random.random() < 0.3):
            self.clock.at(done_us, do)
        self.clock.at(answered_us, lambda: answer("lost" if lost or self.refuses or not found else found[0]))

    def get(self, name: str, answer: Callable[[bytes | OSError | None], None]) -> None:
        """Read an object, None if there is none. answer: called once."""
        answered_us = self._answered_us()
        if self.refuses or self._random.random() < self.model.lost:
            self.has_refused = True
            self.clock.at(answered_us, lambda: answer(OSError("the store does not answer")))
            return
        torn = self._random.random() < self.model.torn

        def read() -> None:
            data = self.objects.get(name)
            part = data[: self._random.randrange(len(data))] if torn and data else data
            self.clock.at(answered_us, lambda: answer(part))

        self.clock.at(self._random.randint(self.clock.now_us, answered_us), read)

    def _answered_us(self) -> int:
        self.requests += 1
        return self.clock.now_us + int(self.slow * self._random.randint(*self.model.delay_us))

    def _put(self, name: str, data: bytes) -> Created:
        if name in self.objects:
            return "exists"
        self.objects[name] = data
        if name.startswith(JOURNAL):
            self.said_us = self.clock.now_us
        if name.startswith(JOURNAL) and self.written.setdefault(name, data) != data:
            self.refilled.append(name)
        return "done"

    # ------------------------------------------------------------ requests of who collects

    def ask(self, request: Request, answer: Callable[[Any], None]) -> None:
        """Carry it out after a while. answer: is called once, with OSError where nobody knows whether that was done."""
        self.requests += 1
        random, model = self._others, self.model
        lost, torn = random.random() < model.lost, random.random() < model.torn

        def do() -> None:
            if isinstance(request, Make) and self.full(request.name, request.data):
                self.refused.append((request.name, self.clock.now_us))
                answer(OSError("there is no room for it"))
                return
            failed = self.refuses or lost
            found = None if failed and (self.refuses or random.random() < 0.5) else self.answer(request)
            if torn and isinstance(request, Get):
                found = [None if data is None else data[: random.randrange(len(data))] for data in found or ()]
            self.watch(request)
            answer(OSError("the store does not answer") if failed else found)

        self.clock.after(int(self.slow * random.randint(*COLLECT_US)), do)

    # ------------------------------------------------------------ at once, for who begins and who checks

    def answer(self, request: Request) -> Any:
        """What is asked of it, done at once."""
        match request:
            case Look():
                return [name for name in self.objects if name.startswith(JOURNAL)]
            case Get(names):
                return [self.objects.get(name) for name in names]
            case Make(name, data):
                self._put(name, data)
            case Remove(names):
                for name in names:
                    self.objects.pop(name, None)
            case _:
                assert_never(request)
        return None

    def entries(self) -> list[Entry]:
        """All entries that ever were, for who checks. Raises JournalCorrupt."""
        numbers = Listed.of(tuple(self.written)).entries
        return [from_bytes(self.written[entry_name(number)], number) for number in numbers]

    def standing(self) -> Standing:
        """What is there of the journal adds up to. Read once until something changes: some ask at every step. Raises JournalCorrupt, and
        CheckpointCorrupt if there is nothing to go on from."""
        if self._known is None or self._known[:2] != (self.objects.changes, self.unreadable):
            self._known = self.objects.changes, set(self.unreadable), self._read()
        known = self._known[2]
        cuts = {key: list(cuts) for key, cuts in known.cuts.items()}
        return replace(
            known, contents=list(known.contents), cuts=cuts, checkpoints=list(known.checkpoints), begins=list(known.begins),
            rows=dict(known.rows),
        )  # fmt: skip

    def _read(self) -> Standing:
        unreadable = frozenset(self.unreadable)
        asking = reading(lambda: Standing(unreadable=unreadable))
        answer: Any = None
        while True:
            try:
                answer = self.answer(asking.send(answer))
            except StopIteration as done:
                found: Standing = done.value.fold
                if found.lost:
                    raise CheckpointCorrupt("no checkpoint can be read, and what came before them was collected") from None
                return found

    def standing_or_none(self) -> Standing | None:
        """The same, for who only looks; None if it cannot be read."""
        try:
            return self.standing()
        except EvenflowError:
            return None

    def is_whole(self, made: Completed) -> bool:
        """Every object of a checkpoint is there as it was written."""
        return all(each.name in self.objects and digest_of(self.objects[each.name]) == each.digest for each in made.objects)

    def sweep(self, retained: Sequence[Completed], rows: Iterable[str] = (), programs: Iterable[str] = ()) -> None:
        """Delete what nobody needs of the objects of checkpoints (K8). A store that refuses keeps them for another time."""
        self.requests += 1
        if self.refuses:
            return
        self.swept = max([self.swept, *[made.epoch for made in retained[:1]]])
        for name in [*garbage(list(self.objects), retained), *rows]:
            self.objects.pop(name, None)
        for name in programs:
            self.programs.pop(name, None)

    def begin(self, begun: Begun, nonce: str) -> Standing:
        """A driver takes the location over (J4). Returns what it finds, its own entry included."""
        self.generations += 1
        found = self.standing()
        begun = replace(begun, behind=None if self.model.cuts else found.base)
        entry = Entry(found.last + 1, found.generation + 1, nonce, begun)
        created = self._put(entry_name(entry.number), to_bytes(entry))
        assert created == "done"
        found.add(entry)
        return found
