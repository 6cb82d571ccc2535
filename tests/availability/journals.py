"""A journal in memory, of several generations with checkpoints, and who reads and collects it, request by request."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, TypeVar

from evenflow.availability.content import Content
from evenflow.availability.entries import Begun, Completed, Cut, Entry, Logged, entry_name, to_bytes
from evenflow.availability.reading import Asking, Get, Look, Make, Read, Remove, Request, reading
from evenflow.availability.standing import Standing

T = TypeVar("T")
A, B = (0, 0), (0, 1)
BEGUN = Begun("run-1", "counting", "abcd", {"sites": 4, "writers": None}, (A, B), Content(1))


def cut(epoch: int) -> Cut:
    return Cut(epoch, 1_000 * epoch, 1_000 * epoch - 7, epoch * 10, False, False)


def lived(generations: int, checkpoints: int, each: int = 2) -> list[Entry]:
    """The entries of so many generations, each with so many checkpoints, and before each so many entries with an epoch. Partition B is
    always an epoch ahead, and every fourth epoch the plan changes."""
    made: list[Entry] = []
    epoch = 0
    for generation in range(1, generations + 1):
        matters: list[Any] = [BEGUN]
        ahead = epoch
        for number in range(1, checkpoints + 1):
            for _ in range(each):
                epoch += 1
                contents = (Content(epoch + 1, (), ((epoch, 1),)),) if epoch % 4 == 0 else ()
                matters.append(Logged({A: (cut(epoch),), B: tuple(map(cut, range(ahead + 1, epoch + 2)))}, contents))
                ahead = epoch + 1
            matters.append(Completed(number, epoch - 1, (), generation=generation))
        made += [Entry(len(made) + at, generation, f"nonce-{generation}", matter) for at, matter in enumerate(matters, 1)]
    return made


def checkpoints_of(entries: list[Entry]) -> list[Completed]:
    return [entry.matter for entry in entries if isinstance(entry.matter, Completed)]


class Objects:
    """What a store has. answer: to a request, at once."""

    def __init__(self, entries: list[Entry]) -> None:
        self.there = {entry_name(entry.number): to_bytes(entry) for entry in entries}

    def answer(self, request: Request) -> Any:
        match request:
            case Look():
                return sorted(self.there)
            case Get(names):
                return [self.there.get(name) for name in names]
            case Make(name, data):
                self.there.setdefault(name, data)
            case Remove(names):
                for name in names:
                    self.there.pop(name, None)
        return None

    def steps(self, asking: Asking[T]) -> Iterator[T | None]:
        """Carry out one request after the other; the last one gives what comes of it."""
        answer: Any = None
        while True:
            try:
                request = asking.send(answer)
            except StopIteration as done:
                yield done.value
                return
            answer = self.answer(request)
            yield None

    def done(self, asking: Asking[T]) -> T:
        [*_, found] = self.steps(asking)
        assert found is not None
        return found

    def read(self, unreadable: frozenset[tuple[int, int]] = frozenset()) -> Read[Standing]:
        return self.done(reading(lambda: Standing(unreadable=unreadable)))

    @property
    def entries(self) -> list[int]:
        return [int(name[8:20]) for name in sorted(self.there) if "snapshot" not in name]

    @property
    def snapshots(self) -> list[int]:
        return [int(name[8:20]) for name in sorted(self.there) if "snapshot" in name]


def said(of: Standing, found: Standing | None = None) -> list[Any]:
    """What a driver goes on from; found: what may know of fewer checkpoints."""
    kept = of.checkpoints[-len((found or of).checkpoints) :]
    return [of.begun, of.generation, of.nonce, of.last, of.contents, of.cuts, kept, of.ended, of.begins, of.base, of.durable]
