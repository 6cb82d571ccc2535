"""The journal of a location: its entries are read into a `Standing`, the next one is made, and old ones are collected (J1, J4, K8).

What is asked of the store for that, and in which order, is in `availability.reading` and `availability.collecting`; here it is done. An
entry that is missing before one that is there is lost for good, so nothing behind it is believed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from enum import Enum
from itertools import chain
from typing import Any, Final, TypeVar, assert_never, cast

from evenflow.availability.collecting import collecting
from evenflow.availability.entries import JOURNAL, Begun, Completed, Entry, entry_name, to_bytes
from evenflow.availability.reading import (
    AT_ONCE,
    Asking,
    Fold,
    Get,
    Listed,
    Look,
    Make,
    Read,
    Remove,
    Request,
    one,
    reading,
    reading_on,
)
from evenflow.availability.standing import Standing
from evenflow.errors import JournalCorrupt, LocationError, Overtaken
from evenflow.store.directory import DirectoryStore
from evenflow.store.objects import Store, TooLarge
from evenflow.store.opening import explain

MOST_ENTRY_BYTES: Final = 1 << 26
"""An entry of a thousand sites with a hundred objects each has some 15 MB."""
NEAR_AT_ONCE: Final = 4
"""Entries that are read at the same time from a directory. It may be another machine's; but to hand a name to a thread, and to wait for it,
takes several times as long as a file of this one."""
LOOKS: Final = 5
"""So often it is looked whether an entry with which a driver has begun is the newest one: it is in already."""
F = TypeVar("F", bound=Fold)
T = TypeVar("T")
Each = Callable[[Callable[[str], Any], Sequence[str]], list[Any]]
"""Does the same with every name; gives what came of each."""


class Outcome(Enum):
    """How an append has ended."""

    OURS = "ours"
    """The entry is in the journal, whole and durable: this time, or it was already."""
    FOREIGN = "foreign"
    """Another entry has its number: another driver has taken the location over."""
    UNKNOWN = "unknown"
    """The store has not said. The entry may be there, or may appear yet: only the same entry may be tried again under this number."""


@dataclass(frozen=True, slots=True)
class Appended:
    """What has become of an append. error: the last one of the store, None if it had none."""

    outcome: Outcome
    error: OSError | None = None


class Unsure(LocationError):
    """The store has not said whether a driver has begun: its entry may be in, or may appear yet. Whoever finds it there later has not been
    overtaken by another one. own: generation and nonce of the entry."""

    def __init__(self, text: str, entry: Entry) -> None:
        super().__init__(text)
        self.own = (entry.generation, entry.nonce)


def read_journal(store: Store, unreadable: Iterable[tuple[int, int]] = ()) -> Standing:
    """What the journal's entries add up to. unreadable: checkpoints to pass over, see `Standing`.

    Raises JournalCorrupt for one that is missing or altered, LocationError if it cannot be read.

    Objects in the journal's folder that have no entry's name are ignored.
    """
    passed = frozenset(unreadable)
    return fold(store, lambda: Standing(unreadable=passed)).fold


def fold(store: Store, new: Callable[[], F]) -> Read[F]:
    """The whole journal, added up in what `new` makes. Raises as `read_journal` does."""
    return _asked(store, reading(new))


def _asked(store: Store, asking: Asking[T]) -> T:
    """What is read, with the location's name in whatever it raises."""
    try:
        return answered(store, asking, hands=NEAR_AT_ONCE if is_near(store) else AT_ONCE)
    except OSError as error:
        raise LocationError(explain("read the journal", store.url, error)) from error
    except JournalCorrupt as error:
        raise JournalCorrupt(f"{store.url}: {error}") from error


@dataclass(slots=True)
class _Gathered:
    found: list[Entry] = field(default_factory=list)

    def add(self, entry: Entry) -> None:
        self.found.append(entry)


def entries(store: Store) -> Sequence[Entry]:
    """What there is, oldest first: a snapshot that stands for what came before it, if there is one, and all entries behind it. Raises as
    `read_journal` does."""
    return fold(store, _Gathered).fold.found


def collect(store: Store, oldest: Completed, rest: Callable[[], object] = lambda: None, made: Entry | None = None) -> int:
    """Delete what came before the oldest checkpoint that is retained; returns how many entries. rest: is called between two requests.
    made: see `collecting`.

    Raises JournalCorrupt if the journal cannot be read so far, and OSError: then the rest goes another time.
    """
    return answered(store, collecting(oldest, made=made), rest, 1 if is_near(store) else AT_ONCE)


def is_near(store: Store) -> bool:
    """A request takes no longer than the interpreter needs for it, or waits for a disk that others want, too."""
    return isinstance(store, DirectoryStore)


def answered(store: Store, asking: Asking[T], rest: Callable[[], object] = lambda: None, hands: int = AT_ONCE) -> T:
    """Carry out what is asked of the store, one request after the other. Raises OSError.

    hands: so many objects at the same time. Where each takes microseconds, more than one only wait for each other and for the interpreter.
    """
    answer: Any = None
    with _each_by(hands) as each:
        while True:
            try:
                request = asking.send(answer)
            except StopIteration as done:
                return cast(T, done.value)
            answer = _answer(store, request, each)
            rest()


@contextmanager
def _each_by(hands: int) -> Iterator[Each]:
    """Each hand takes some of the names, one after the other."""
    with ThreadPoolExecutor(hands) as pool:

        def each(do: Callable[[str], Any], names: Sequence[str]) -> list[Any]:
            size = max(1, -(-len(names) // hands))
            shares = [names[at : at + size] for at in range(0, len(names), size)]
            take = pool.map if len(shares) > 1 else map  # For one alone no thread is needed.
            return list(chain.from_iterable(take(lambda share: list(map(do, share)), shares)))

        yield each


def _answer(store: Store, request: Request, each: Each) -> Any:
    match request:
        case Look():
            return store.names(JOURNAL)
        case Get(names):
            return each(lambda name: _got(store, name), names)
        case Make(name, data):
            with suppress(FileExistsError):
                store.create(name, data)
        case Remove(names):
            each(store.delete, names)
        case _:
            assert_never(request)
    return None


def _got(store: Store, name: str) -> bytes | JournalCorrupt | None:
    try:
        return store.get(name, MOST_ENTRY_BYTES)
    except FileNotFoundError:
        return None
    except TooLarge:
        return JournalCorrupt(f"{name} has more bytes than any entry")


def read_on(store: Store, known: Standing) -> Standing:
    """The same standing, with the entries that have come since it was read. A driver that lives appends so often that to read everything
    again would always be too late. Raises as `read_journal`."""
    _asked(store, reading_on(known, known.last))
    return known


def has_entries(store: Store) -> bool:
    """Somebody has begun here. Raises LocationError if the store does not say."""
    try:
        return Listed.of(store.names(JOURNAL)).last > 0
    except OSError as error:
        raise LocationError(explain("list the journal", store.url, error)) from error


def append(store: Store, entry: Entry, tries: int = 3, again: Callable[[int], None] = lambda tried: None) -> Appended:
    """Make the entry the next one of the journal, if its number is free.

    tries: how often the store is asked. again: is called before each try but the first, with the number of those before, and may wait.
    """
    name, data = entry_name(entry.number), to_bytes(entry)
    error: OSError | None = None
    for tried in range(tries):
        if tried:
            again(tried)
        try:
            try:
                store.create(name, data)
                return Appended(Outcome.OURS, error)
            except FileExistsError:
                # A try whose answer was lost may have made it. The nonce in the bytes is of this driver alone.
                found = store.get(name, MOST_ENTRY_BYTES)
                return Appended(Outcome.OURS if found == data else Outcome.FOREIGN, error)
        except TooLarge as large:
            return Appended(Outcome.FOREIGN, large)
        except OSError as failure:
            error = failure
    return Appended(Outcome.UNKNOWN, error)


def begin(
    store: Store,
    known: Standing,
    begun: Callable[[Standing], Begun],
    nonce: str,
    tries: int = 1,
    again: Callable[[int], None] = lambda tried: None,
) -> None:
    """A driver takes the location over (J4): its generation is the one after the newest.

    known: where the location stands; at the end with what came meanwhile and with this driver's entry. begun: what that says, given where
    the location stands. nonce: of this driver alone. tries: so often, where the driver that is replaced still appends. again: as in
    `append`. Raises Overtaken if another driver has begun meanwhile, Unsure if the store does not say; JournalCorrupt, LocationError.
    """
    for left in range(tries - 1, -1, -1):
        entry = Entry(known.last + 1, known.generation + 1, nonce, begun(known))
        done = append(store, entry, again=again)
        match done.outcome:
            case Outcome.OURS:
                _demand_newest(store, entry, known, again)
                known.add(entry)
                return
            case Outcome.UNKNOWN:
                error = done.error or OSError("the store does not answer")
                raise Unsure(explain("begin the journal", store.url, error), entry) from error
            case Outcome.FOREIGN:
                generation = known.generation
                read_on(store, known)
                if not left or known.generation != generation or known.ended is not None:
                    raise Overtaken(f"another driver has begun at {store.url} at this very moment: only one of them can go on")


def _demand_newest(store: Store, made: Entry, known: Standing, again: Callable[[int], None]) -> None:
    """The entry that was made just now is the newest one. Who has hung for long between reading and this has made it where another driver's
    was, which has been collected; nobody will ever read it there. Then `known` is read anew, so that who waits can wait on."""
    for tried in range(1, LOOKS + 1):
        try:
            outrun = Listed.of(store.names(JOURNAL)).is_outrun(made.number)
            break
        except OSError as error:
            if tried == LOOKS:
                raise Unsure(explain("see whether another driver has begun", store.url, error), made) from error
        again(tried)
    if outrun:
        known.become(read_journal(store, known.unreadable))
        raise Overtaken(
            f"another driver runs at {store.url}: its journal has gone on beyond entry {made.number} while this one was about to begin"
        )


def read_entry(store: Store, number: int) -> Entry | None:
    """The entry of that number; None if there is none now. Raises JournalCorrupt for one that cannot be used, and OSError."""
    return answered(store, one(number))
