"""State on its way between a simulated site and the store: of checkpoints to there, and what a run begins with from there."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random
from typing import Final, Protocol, assert_never

from evenflow.site.capturing import write
from evenflow.site.events import (
    Event,
    PartTaken,
    RestoreState,
    StatePartRead,
    StateUnread,
    StoreState,
    TransferFailed,
    WriteFailed,
    Written,
)
from evenflow.site.kept_rows import ReadRows, RowsRead, RowsUnread, StoreRows, read_rows, write_rows
from evenflow.site.restoring import read, read_for_copy
from evenflow.stream.ids import SiteId
from evenflow.world.sim.store import Created, SimStore

PAUSE_US: Final = 1_000
"""Until a store that does not answer is asked again for rows, or to take them."""
PART_US: Final = 200
"""Until the next part of a state is read, when the one before is taken in."""
READS: Final = 3
"""What cannot be read, or is not what was written, is read so often: it may have been on its way only."""


class Stores(Protocol):
    """A simulated site, as far as it stores and restores."""

    @property
    def index(self) -> int: ...
    def deliver(self, event: Event) -> None: ...
    def beside(self, do: Callable[[], None]) -> None: ...


class SimStoring:
    """What one site asks of the store, beside its loop. None of it is done by a site that hangs; who dies leaves what is there.

    store: None if the run has none; then nobody asks. pack_us: least and greatest time until bytes are made of what was captured.
    """

    def __init__(self, site: Stores, store: SimStore | None, random: Random, pack_us: tuple[int, int]) -> None:
        self._site, self._given, self._random, self._pack_us = site, store, random, pack_us
        self._unsaid: dict[int, list[Event]] = {}

    @property
    def _store(self) -> SimStore:
        assert self._given is not None, "a run without a store has no checkpoints"
        return self._given

    def ask(self, action: StoreState | RestoreState | PartTaken | StoreRows | ReadRows) -> None:
        """Carry it out, and answer with its event."""
        match action:
            case StoreState():
                self.store(action)
            case RestoreState():
                self.restore(action)
            case PartTaken(segment):
                self._store.clock.after(PART_US, lambda: self._site.beside(lambda: self._say(segment)))
            case StoreRows():
                made: dict[str, bytes] = {}
                answer = write_rows(action, made.__setitem__)
                self._put_rows(*made.popitem(), answer)
            case ReadRows():
                self._get_rows(action, READS)
            case _:
                assert_never(action)

    # ------------------------------------------------------------ rows

    def _put_rows(self, name: str, data: bytes, answer: Event) -> None:
        """Until the store has them; its name is there already if an earlier try was done unnoticed."""

        def put(created: Created) -> None:
            if created == "lost":
                self._store.clock.after(PAUSE_US, lambda: self._put_rows(name, data, answer))
            else:
                self._site.deliver(answer)

        self._store.create(name, data, lambda created: self._site.beside(lambda: put(created)))

    def _get_rows(self, order: ReadRows, tries: int) -> None:
        def got(data: bytes | OSError | None) -> None:
            answer: RowsRead | RowsUnread | None = None
            if not isinstance(data, OSError):
                gone = FileNotFoundError(f"there is no object {order.stored.name}")
                answer = read_rows(order, lambda _: _bytes(gone if data is None else data))
            if answer is None or (isinstance(answer, RowsUnread) and tries > 1):
                self._store.clock.after(PAUSE_US, lambda: self._get_rows(order, tries - (answer is not None)))
            else:
                self._site.deliver(answer)

        self._store.get(order.stored.name, lambda data: self._site.beside(lambda: got(data)))

    # ------------------------------------------------------------ to the store

    def store(self, order: StoreState) -> None:
        """Make objects after a while, put them into the store one by one, and say how it went."""
        after_us = self._random.randint(*self._pack_us)
        self._store.clock.after(after_us, lambda: self._site.beside(lambda: self._make(order)))

    def _make(self, order: StoreState) -> None:
        made: dict[str, bytes] = {}
        answer = write(order, SiteId(self._site.index), made.__setitem__)
        if isinstance(answer, Written):
            self._put(list(made.items()), answer)
        else:
            self._site.deliver(answer)

    def _put(self, rest: Sequence[tuple[str, bytes]], answer: Written) -> None:
        if not rest:
            self._site.deliver(answer)
            return
        name, data = rest[0]

        def put(created: Created) -> None:
            if created == "lost":
                self._site.deliver(WriteFailed(answer.number, answer.segment, f"the store has not answered about {name}"))
            else:
                self._site.beside(lambda: self._put(rest[1:], answer))

        self._store.create(name, data, lambda created: self._site.beside(lambda: put(created)))

    # ------------------------------------------------------------ from the store

    def restore(self, order: RestoreState, tries: int = READS) -> None:
        """Read the objects one by one, then take them for what they are."""
        self._get(order, [stored.name for stored, _ in order.objects], {}, tries)

    def _get(self, order: RestoreState, rest: Sequence[str], found: dict[str, bytes | OSError], tries: int) -> None:
        if not rest:
            if order.copy:
                arrived = read_for_copy(order, lambda name: _bytes(found[name]))
                if isinstance(arrived, TransferFailed) and tries > 1:
                    self.restore(order, tries - 1)
                else:
                    self._site.deliver(arrived)
                return
            parts: list[StatePartRead] = []
            answer = read(order, lambda name: _bytes(found[name]), parts.append)
            if isinstance(answer, StateUnread) and tries > 1:
                self.restore(order, tries - 1)
            else:
                self._unsaid[order.segment] = [*parts, answer]
                self._say(order.segment)
            return

        def got(data: bytes | OSError | None) -> None:
            found[rest[0]] = FileNotFoundError(f"there is no object {rest[0]}") if data is None else data
            self._get(order, rest[1:], found, tries)

        self._store.get(rest[0], lambda data: self._site.beside(lambda: got(data)))

    def _say(self, segment: int) -> None:
        """What comes next of a segment's state. Who never says that a part is taken in gets no other."""
        if said := self._unsaid.get(segment):
            self._site.deliver(said.pop(0))


def _bytes(data: bytes | OSError) -> bytes:
    if isinstance(data, OSError):
        raise data
    return data
