"""A simulated object store, which outlives whoever writes to it: what a checkpoint location is on.

Objects are created whole, and only if there is none of their name. It takes its time, can be slow, can refuse everything, and answers can
get lost: then the request may have been done, or not, or it is done later, when nobody expects it any more.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from random import Random
from typing import Final, Literal

from evenflow.availability.entries import Begun, Completed, Entry, entry_name, from_bytes, to_bytes
from evenflow.availability.retained import garbage
from evenflow.availability.standing import Standing, standing
from evenflow.world.sim.clock import VirtualClock
from evenflow.world.sim.model import StoreModel

Created = Literal["done", "exists", "lost"]
"""What is known of an object that was to be created. lost: nothing is."""
JOURNAL: Final = "journal/"


class SimStore:
    """objects: by name. refuses: it does nothing, and says so, as who cannot be reached. slow: how many times longer everything takes.

    random: of its own. requests: how many there were. generations: how many drivers have begun here. unreadable: (generation, number) of
    checkpoints that those who begin pass over, since somebody has found that they cannot be read (K9).
    """

    def __init__(self, clock: VirtualClock, model: StoreModel, random: Random) -> None:
        self.clock, self.model, self._random = clock, model, random
        self.objects: dict[str, bytes] = {}
        self.refuses, self.slow = False, 1.0
        self.requests = self.generations = 0
        self.unreadable: set[tuple[int, int]] = set()

    # ------------------------------------------------------------ requests, answered later

    def create(self, name: str, data: bytes, answer: Callable[[Created], None]) -> None:
        """Create an object if there is none of that name. answer: called once."""
        answered_us, random = self._answered_us(), self._random
        done_us, lost, found = random.randint(self.clock.now_us, answered_us), random.random() < self.model.lost, list[Created]()
        if lost:
            done_us += random.randint(0, self.model.late_us)

        def do() -> None:
            found.append(self._put(name, data))

        if not self.refuses and not (lost and random.random() < 0.3):
            self.clock.at(done_us, do)
        self.clock.at(answered_us, lambda: answer("lost" if lost or self.refuses or not found else found[0]))

    def get(self, name: str, answer: Callable[[bytes | OSError | None], None]) -> None:
        """Read an object, None if there is none. answer: called once."""
        answered_us = self._answered_us()
        if self.refuses or self._random.random() < self.model.lost:
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
        return "done"

    # ------------------------------------------------------------ at once, for who begins and who checks

    def entries(self) -> list[Entry]:
        """The journal. Raises JournalCorrupt."""
        names = sorted(name for name in self.objects if name.startswith(JOURNAL))
        return [from_bytes(self.objects[name], number) for number, name in enumerate(names, 1)]

    def standing(self) -> Standing:
        """What the journal adds up to. Raises JournalCorrupt."""
        return standing(self.entries(), self.unreadable)

    def sweep(self, retained: Sequence[Completed], rows: Iterable[str] = ()) -> None:
        """Delete what nobody needs of the objects of checkpoints (K8). A store that refuses keeps them for another time."""
        self.requests += 1
        for name in [*garbage(list(self.objects), retained), *rows] if not self.refuses else ():
            self.objects.pop(name, None)

    def begin(self, begun: Begun, nonce: str) -> Standing:
        """A driver takes the location over (J4). Returns what it finds, its own entry included."""
        self.generations += 1
        found = self.standing()
        entry = Entry(found.last + 1, found.generation + 1, nonce, begun)
        created = self._put(entry_name(entry.number), to_bytes(entry))
        assert created == "done"
        found.add(entry)
        return found
