"""A site's hand on the checkpoint location: a real directory, altered and missing files, a place that cannot be written to."""

from __future__ import annotations

import gc
import os
import threading
import weakref
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from tests.store.faulty import Around

from evenflow.availability.entries import Completed, Piece, StoredObject
from evenflow.availability.retained import folder_of, removed_name
from evenflow.coordinator.events import Sweep
from evenflow.site.events import (
    Event,
    PartTaken,
    RestoreState,
    StateArrived,
    StatePartRead,
    StateRead,
    StateUnread,
    StoreState,
    WriteFailed,
    Written,
)
from evenflow.state import folding
from evenflow.state.storing import Kind, StateToStore
from evenflow.store.location import HEAD
from evenflow.store.objects import MOST_BYTES, beside_name
from evenflow.store.opening import open_store
from evenflow.stream.ids import CopyNumber, SiteId
from evenflow.world.spark.driver.appending import swept
from evenflow.world.spark.driver.readable import fault
from evenflow.world.spark.executor import storing
from evenflow.world.spark.executor.resting import Rests
from evenflow.world.spark.executor.storing import LOOK_S, PARTS, Storing
from evenflow.world.spark.net.reactor import Reactor


class State:
    def __init__(self, data: bytes) -> None:
        self._data = data

    def to_bytes(self) -> bytes:
        return self._data


STATES = {(3, 0): b"abc" * 1000, (3, 1): b"x", (7, 0): bytes(range(256)) * 900}
FACTS = {"epoch": 9, "watermark": 5, "logs": {}, "digests": []}


def order() -> StoreState:
    states = [(partition, step, State(data)) for (partition, step), data in STATES.items()]
    return StoreState(4, folder_of(1, 4), StateToStore(2, 9, (Kind("totals"), Kind("windows")), states))


def located(url: Path) -> Path:
    """A location that a driver has opened."""
    open_store(str(url)).put(HEAD, b"{}")
    return url


def ask(url: Path, *actions: StoreState | RestoreState, spare: bool = False) -> list[Event]:
    """The answers to these actions. Parts of a state are taken in as they come."""
    located(url)
    reactor, answers = Reactor(), list[Event]()

    def answer(event: Event) -> None:
        answers.append(event)
        if isinstance(event, StatePartRead):
            hand.let_go(PartTaken(event.segment))

    hand = Storing("test", str(url), SiteId(6), reactor, answer, spare=spare)
    for action in actions:
        hand.ask(action)
    while sum(not isinstance(event, StatePartRead) for event in answers) < len(actions):
        reactor.poll(5.0)
    hand.close()
    assert hand.join(5.0)
    reactor.close()
    return answers


def restoring(written: Written) -> RestoreState:
    piece = Piece(2, 6, (3, 7), FACTS, written.objects)
    return RestoreState(2, "totals", 9, (3, 7), (piece,), tuple((stored, "totals") for stored in written.objects))


@pytest.mark.parametrize("spare", [False, True])
def test_what_is_stored_is_restored(spare: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "disk").mkdir()
    monkeypatch.setenv("SPARK_LOCAL_DIRS", str(tmp_path / "disk"))
    (written,) = ask(tmp_path, order())
    assert isinstance(written, Written) and (written.number, written.segment) == (4, 2)
    assert [stored.name for stored in written.objects] == [f"checkpoints/000001/000004/002-0{step}-0006.parquet" for step in (0, 1)]
    assert [(tmp_path / stored.name).stat().st_size for stored in written.objects] == [stored.bytes for stored in written.objects]
    *parts, read = ask(tmp_path, restoring(written), spare=spare)
    states: dict[tuple[int, int], bytes] = {}
    for part in parts:
        assert isinstance(part, StatePartRead) and part.segment == 2
        states |= {key: bytes(state) for key, state in part.states.items()}
    assert isinstance(read, StateRead) and states == STATES
    assert (read.facts["epoch"], read.facts["watermark"], read.facts["committed"]) == (9, 5, 9)


def test_no_more_is_read_than_is_taken_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Goal: what is in memory beside the tables is bounded. Method: parts of one partition each, which somebody takes in one by one."""
    monkeypatch.setattr(folding, "READ_ROWS", 1)
    many = tuple(range(8))
    states = [(partition, 0, State(bytes([partition]))) for partition in many]
    (written,) = ask(tmp_path, StoreState(4, folder_of(1, 4), StateToStore(2, 9, (Kind("totals"),), states)))
    assert isinstance(written, Written)
    reactor, answers = Reactor(), list[Event]()
    hand = Storing("test", str(tmp_path), SiteId(6), reactor, answers.append)
    piece = Piece(2, 6, many, FACTS, written.objects)
    hand.ask(RestoreState(2, "totals", 9, many, (piece,), tuple((stored, "totals") for stored in written.objects)))
    while len(answers) < PARTS:
        reactor.poll(5.0)
    reactor.poll(3 * LOOK_S)
    for taken in range(1, len(many) - PARTS + 1):
        assert len(answers) == PARTS + taken - 1
        hand.let_go(PartTaken(2))
        reactor.poll(5.0)
    hand.let_go(PartTaken(2))
    while not isinstance(answers[-1], StateRead):
        reactor.poll(5.0)
    assert [list(part.states) for part in answers[:-1] if isinstance(part, StatePartRead)] == [[(partition, 0)] for partition in many]
    hand.close()
    assert hand.join(5.0)
    reactor.close()


def test_a_reader_that_nobody_hears_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(folding, "READ_ROWS", 1)
    monkeypatch.setattr(storing, "PARTS", 1)
    (written,) = ask(tmp_path, order())
    assert isinstance(written, Written)
    reactor, answers = Reactor(), list[Event]()
    hand = Storing("test", str(tmp_path), SiteId(6), reactor, answers.append)
    hand.ask(restoring(written))
    while not answers:
        reactor.poll(5.0)
    hand.close()
    assert hand.join(5.0), "it waits for room that never comes"
    assert len(answers) == 1
    reactor.close()


@pytest.mark.parametrize("copy", [0, 5])
@pytest.mark.parametrize("spare", [False, True])
def test_what_is_stored_is_restored_however_large_it_is(spare: bool, copy: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Goal: whatever a checkpoint could write can be read, since verifying it says that it is whole. Method: a store of which nobody gets
    more than 500 bytes unless he says how many there are, which stands for objects of more than a GiB."""
    (tmp_path / "disk").mkdir()
    monkeypatch.setenv("SPARK_LOCAL_DIRS", str(tmp_path / "disk"))
    (written,) = ask(tmp_path, order())
    assert isinstance(written, Written) and all(stored.bytes > 500 for stored in written.objects)

    class Small(Around):
        def get(self, name: str, most: int = 500) -> bytes:
            return super().get(name, 500 if most == MOST_BYTES else most)

    monkeypatch.setattr(storing, "open_store", lambda url: Small(open_store(url)))
    *_, read = ask(tmp_path, replace(restoring(written), copy=CopyNumber(copy)), spare=spare)
    assert isinstance(read, StateArrived if copy else StateRead)


def test_no_more_of_an_object_is_read_than_was_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Others may be able to write where a location is."""
    monkeypatch.setattr(storing, "PAUSE_S", 0.001)
    (written,) = ask(tmp_path, order())
    assert isinstance(written, Written)
    os.truncate(tmp_path / written.objects[1].name, 1 << 40)
    (unread,) = ask(tmp_path, restoring(written))
    assert isinstance(unread, StateUnread) and written.objects[1].name in unread.why


class Slow(State):
    """State that somebody waits for. begun: it is being read."""

    def __init__(self, data: bytes) -> None:
        super().__init__(data)
        self.begun, self.goes_on = threading.Event(), threading.Event()

    def to_bytes(self) -> bytes:
        self.begun.set()
        assert self.goes_on.wait(20)
        return self._data


def test_what_a_newer_checkpoint_has_replaced_is_not_written_first(tmp_path: Path) -> None:
    """Goal: a site that was too slow for a checkpoint is no slower for the next. Method: three are ordered, while the first is being made.

    The second is forgotten, and with it the state that it holds; the first breaks off; only the third is in the store."""
    reactor, answers = Reactor(), list[Event]()
    hand = Storing("test", str(located(tmp_path)), SiteId(6), reactor, answers.append)
    slow, second = Slow(b"a" * 1000), State(b"b" * 1000)
    held = weakref.ref(second)

    def ask_for(number: int, segment: int, state: State) -> None:
        hand.ask(StoreState(number, folder_of(1, number), StateToStore(segment, 9, (Kind("totals"), Kind("windows")), [(3, 0, state)])))

    ask_for(4, 2, slow)
    assert slow.begun.wait(20)
    ask_for(5, 2, second)
    del second
    for segment in (2, 3):
        ask_for(6, segment, State(b"c" * 1000))
    gc.collect()
    assert held() is None
    slow.goes_on.set()
    while len(answers) < 3:
        reactor.poll(5.0)
    hand.close()
    assert hand.join(5.0)
    reactor.close()
    assert isinstance(answers[0], WriteFailed) and answers[0].number == 4
    assert [(type(event), event.number, event.segment) for event in answers[1:]] == [(Written, 6, 2), (Written, 6, 3)]  # type: ignore[union-attr]
    stored = sorted(str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*.parquet"))
    assert [name.split("/")[2] for name in stored] == ["000006", "000006"]


def told(reactor: Reactor, answers: list[Event], count: int) -> list[Event]:
    """So many answers, without a hand that rests for a minute."""
    for _ in range(20):
        if len(answers) < count:
            reactor.poll(1.0)
    return answers[:count]


@pytest.mark.parametrize("resting", [False, True])
def test_a_partition_that_is_brought_back_waits_for_no_checkpoint(resting: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Goal: a site that is to bring back what others have lost does so at once. The checkpoint that it writes was dropped by that loss, and
    nobody has told it. Method: its state is being made, or its writer rests; some waits, and is forgotten."""
    (written,) = ask(tmp_path / "location", order())
    assert isinstance(written, Written)
    before, rests = {path for path in tmp_path.rglob("*") if path.is_file()}, threading.Event()

    class Long:
        def __init__(self, wait: Callable[[float], bool], rest: float) -> None:
            self._wait = wait

        def __call__(self) -> None:
            rests.set()
            self._wait(60.0)

    if resting:
        monkeypatch.setattr(storing, "Rests", Long)
    reactor, answers = Reactor(), list[Event]()
    hand = Storing("test", str(tmp_path / "location"), SiteId(6), reactor, answers.append)
    slow, waits = Slow(b"a" * 1000), State(b"b" * 1000)
    held = weakref.ref(waits)
    kinds = (Kind("totals"), Kind("windows"))
    hand.ask(StoreState(5, folder_of(1, 5), StateToStore(2, 9, kinds, [(3, 0, slow)])))
    hand.ask(StoreState(5, folder_of(1, 5), StateToStore(3, 9, kinds, [(3, 0, waits)])))
    del waits
    assert slow.begun.wait(20)
    if resting:
        slow.goes_on.set()
        assert rests.wait(20)
    for copy in (7, 8):  # Of two segments, say.
        hand.ask(replace(restoring(written), copy=CopyNumber(copy)))
    gc.collect()
    assert held() is None
    slow.goes_on.set()
    failed, arrived = told(reactor, answers, 4)[:2], answers[2:]
    assert all(isinstance(event, WriteFailed) and event.number == 5 for event in failed), "who waits for them is told"
    assert sorted(event.segment for event in failed if isinstance(event, WriteFailed)) == [2, 3]
    assert [event.copy for event in arrived if isinstance(event, StateArrived)] == [7, 8]
    assert {path for path in tmp_path.rglob("*") if path.is_file()} == before, "nothing more was written of it"
    monkeypatch.undo()
    hand.ask(StoreState(6, folder_of(1, 6), StateToStore(2, 9, kinds, [(3, 0, State(b"c"))])))
    assert isinstance(told(reactor, answers, 5)[4], Written), "the next one is as ever"
    hand.close()
    assert hand.join(5.0)
    reactor.close()


def test_at_the_end_of_a_run_nothing_more_is_written(tmp_path: Path) -> None:
    reactor, answers = Reactor(), list[Event]()
    hand, slow = Storing("test", str(located(tmp_path)), SiteId(6), reactor, answers.append), Slow(b"a" * 1000)
    states = [(3, 0, slow), *[(partition, 1, State(b"b")) for partition in range(20)]]
    hand.ask(StoreState(4, folder_of(1, 4), StateToStore(2, 9, (Kind("totals"), Kind("windows")), states)))
    assert slow.begun.wait(20)
    hand.close()
    slow.goes_on.set()
    assert hand.join(5.0)
    assert not list(tmp_path.rglob("*.parquet")) and not answers
    reactor.close()


def test_who_writes_checkpoints_restores_with_the_weight_that_it_had(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Goal: what is lost comes back as fast after a thousand checkpoints. Method: as an ordinary user, who may give a thread less weight
    and not more, write and restore by turns; see what each weighs."""
    allowed, seen = os.setpriority, list[tuple[str, int]]()

    def only_less(which: int, who: int, value: int) -> None:
        if value < os.getpriority(which, who):
            raise PermissionError(13, "Permission denied")
        allowed(which, who, value)

    def note(what: str) -> None:
        seen.append((what, os.getpriority(os.PRIO_PROCESS, threading.get_native_id())))

    class Noting(Around):
        def put(self, name: str, data: bytes) -> None:
            note("put")
            super().put(name, data)

        def get(self, name: str, most: int = MOST_BYTES) -> bytes:
            if name != HEAD:
                note("get")
            return super().get(name, most)

    monkeypatch.setattr(os, "setpriority", only_less)
    monkeypatch.setattr(storing, "open_store", lambda url: Noting(open_store(url)))
    before = os.getpriority(os.PRIO_PROCESS, 0)
    reactor, answers = Reactor(), list[Event]()
    hand = Storing("test", str(located(tmp_path)), SiteId(6), reactor, answers.append)
    for count in (1, 2):
        hand.ask(order())
        written = told(reactor, answers, count)[-1]
    assert isinstance(written, Written)
    hand.ask(replace(restoring(written), copy=CopyNumber(7)))
    assert isinstance(told(reactor, answers, 3)[-1], StateArrived)
    hand.close()
    assert hand.join(5.0)
    reactor.close()
    assert {nice for what, nice in seen if what == "put"} == {min(before + storing.AFTER_ALL, 19)}
    assert {nice for what, nice in seen if what == "get"} == {before}


@pytest.mark.parametrize("how", ["altered", "missing", "cut off"])
def test_what_is_not_as_it_was_written_is_said(how: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(storing, "PAUSE_S", 0.001)
    (written,) = ask(tmp_path, order())
    assert isinstance(written, Written)
    path = tmp_path / written.objects[1].name
    data = path.read_bytes()
    path.unlink()
    if how != "missing":
        path.write_bytes(data[:100] + b"!" + data[101:] if how == "altered" else data[:-1])
    (unread,) = ask(tmp_path, restoring(written))
    assert isinstance(unread, StateUnread)
    assert written.objects[1].name in unread.why and "partitions 3, 7" in unread.why


def test_state_is_not_written_where_the_location_is_not_seen(tmp_path: Path) -> None:
    """Goal: no checkpoint counts of which a restart would find nothing. Method: a path that is a directory of this machine only, or of
    which the share is not mounted: what the driver has written there is not to be seen."""
    reactor, answers = Reactor(), list[Event]()
    hand = Storing("test", str(tmp_path / "location"), SiteId(6), reactor, answers.append)
    hand.ask(order())
    (failed,) = told(reactor, answers, 1)
    assert isinstance(failed, WriteFailed) and "all machines of the cluster share" in failed.why
    assert not (tmp_path / "location").exists()
    located(tmp_path / "location")
    hand.ask(order())
    assert isinstance(told(reactor, answers, 2)[1], Written), "it is mounted by now"
    hand.close()
    assert hand.join(5.0)
    reactor.close()


def test_a_place_that_takes_nothing_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(storing, "PAUSE_S", 0.001)
    (tmp_path / "checkpoints").write_text("a file where a folder should be")
    (failed,) = ask(tmp_path, order())
    assert isinstance(failed, WriteFailed) and failed.number == 4


def test_old_checkpoints_are_swept(tmp_path: Path) -> None:
    store = open_store(str(tmp_path))
    names = [f"{folder_of(1, number)}/000-00-0000.parquet" for number in range(1, 6)]
    for name in names:
        store.put(name, b"state")
    retained = [
        Completed(number, 10 * number, (Piece(0, 0, (0,), {}, (StoredObject(names[number - 1], 0, 1, 5, ""),)),), generation=1)
        for number in (3, 5)
    ]
    rows = [f"rows/{generation:06d}/0000-00000000{number}.arrow" for generation in (1, 2) for number in (1, 2, 3)]
    for name in rows:
        store.put(name, b"rows")
    order = Sweep(tuple(retained), 2, needed=frozenset([rows[1], rows[4]]), gone=frozenset([rows[3]]))
    rests: list[None] = []
    assert swept(store, order, lambda: rests.append(None)) == 5
    assert len(rests) == 2, "after each object with state"
    assert store.names("checkpoints/") == names[2:]
    assert store.names("rows/") == [rows[1], rows[4], rows[5]], "one of this generation may still be named"
    assert not os.path.exists(tmp_path / names[0])


def test_what_killed_sites_of_older_generations_have_left_is_swept(tmp_path: Path) -> None:
    """Not what this generation writes, however old it is, nor what people and others have put there."""
    store = open_store(str(tmp_path))
    begun = [f"{folder_of(generation, 9)}/000-00-0000.parquet" for generation in (1, 2, 3)]
    for name in begun:
        store.put(name, b"state")
    store.put(removed_name(1, 9), b"mark")
    beside = [tmp_path / Path(name).parent / beside_name(Path(name).name) for name in (*begun, removed_name(1, 9))]
    others = [tmp_path / "checkpoints/000001/000009" / name for name in (".hidden", ".a.tmp", ".link.0123456789ab.tmp")]
    for file in (*beside, *others[:2]):
        file.write_bytes(b"st")
    others[2].symlink_to(beside[1])
    newest = Completed(9, 90, (Piece(0, 0, (0,), {}, (StoredObject(begun[1], 0, 1, 5, ""),)),), generation=2)
    assert swept(store, Sweep((newest,), 2)) == 2, "the object of generation 1, and the mark of its checkpoint"
    assert [file.exists() for file in beside] == [False, True, True, True]
    assert all(os.path.lexists(file) for file in others)


def test_what_killed_sites_of_older_generations_have_left_of_rows_is_swept(tmp_path: Path) -> None:
    store = open_store(str(tmp_path))
    rows = [f"rows/{generation:06d}/0002-000000000007.arrow" for generation in (1, 2, 3, 4)]
    for name in rows:
        store.put(name, b"rows")
    beside = [tmp_path / Path(name).parent / beside_name(Path(name).name) for name in rows]
    hidden = tmp_path / "rows/000001/.a.tmp"
    for file in (*beside, hidden):
        file.write_bytes(b"ro")
    assert swept(store, Sweep((), 3, needed=frozenset(rows[:1]))) == 1, "objects are counted"
    assert [file.exists() for file in beside] == [False, False, True, True], "whoever is of this generation may write them yet"
    assert hidden.exists() and store.names("rows/") == [rows[0], *rows[2:]]
    assert not (tmp_path / "rows/000002").exists(), "nothing is left in it"


def of(generation: int, number: int, *names: str) -> Completed:
    """A checkpoint with these objects of five bytes."""
    objects = tuple(StoredObject(name, 0, 1, 5, "") for name in names)
    return Completed(number, 10 * number, (Piece(0, 0, (0,), {}, objects),), generation=generation)


def state_of(generation: int, number: int) -> str:
    return f"{folder_of(generation, number)}/000-00-0000.parquet"


def test_folders_of_checkpoints_that_are_gone_go_too(tmp_path: Path) -> None:
    """Goal: a location that is old is as quick to look through as a new one. Method: folders of versions that left them, of checkpoints
    that were dropped, of what is swept now; of the generation that lives only those below the oldest that is kept may go."""
    store = open_store(str(tmp_path))
    base, kept = state_of(1, 2), [state_of(2, number) for number in (7, 9, 10)]
    for name in (base, state_of(1, 5), *kept, state_of(2, 6)):
        store.put(name, b"state")
    empty = [(1, 1), (1, 3), (1, 40), (2, 5), (2, 8), (2, 11), (3, 1)]
    for place in empty:
        (tmp_path / folder_of(*place)).mkdir(parents=True, exist_ok=True)
    (tmp_path / "checkpoints" / "000000").mkdir()
    retained = (of(2, 7, base, kept[0]), of(2, 9, kept[1]), of(2, 10, kept[2]))
    assert swept(store, Sweep(retained, 2)) == 2, "objects are counted"
    left = sorted(str(path.relative_to(tmp_path)) for path in (tmp_path / "checkpoints").glob("*/*"))
    assert left == sorted([folder_of(1, 2), *[folder_of(2, number) for number in (7, 8, 9, 10, 11)], folder_of(3, 1)])
    assert not (tmp_path / "checkpoints" / "000000").exists()
    assert swept(store, Sweep(retained, 3)) == 0
    assert not (tmp_path / folder_of(2, 8)).exists() and not (tmp_path / folder_of(2, 11)).exists(), "of an older generation all may go"
    assert store.names("checkpoints/") == [base, *kept]


def test_a_sweep_looks_into_no_folder_that_an_earlier_one_has_emptied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Goal: what a sweep and a restart cost does not grow with the location's age."""
    store, kept = open_store(str(tmp_path)), state_of(3, 500)
    for number in range(1, 400):
        (tmp_path / folder_of(1 + number % 3, number)).mkdir(parents=True)
    store.put(kept, b"state")
    order, looked, real = Sweep((of(3, 500, kept),), 3), list[int](), os.scandir
    monkeypatch.setattr(os, "scandir", lambda folder: looked.append(folder) or real(folder))
    assert fault(store, order.retained[0], thoroughly=False) is None
    assert len(looked) == 1, "only into what the checkpoint names"
    swept(store, order)
    looked.clear()
    swept(store, order)
    assert len(looked) < 10


def test_a_checkpoint_is_looked_for_in_all_folders_that_it_names(tmp_path: Path) -> None:
    store = open_store(str(tmp_path))
    names = [state_of(1, 2), state_of(1, 3), state_of(2, 1)]
    made = of(2, 1, *names)
    for name in names[:2]:
        store.put(name, b"state")
    assert fault(store, made, thoroughly=False) == f"{names[2]} is missing"
    store.put(names[2], b"state")
    assert fault(store, made, thoroughly=False) is None
    store.put(names[0], b"longer")
    assert fault(store, made, thoroughly=False) == f"{names[0]} has 6 bytes, and had 5 when it was written"
    store.put(names[0], b"state")
    store.put(removed_name(2, 1), b"mark")
    assert fault(store, made, thoroughly=False) == "it was removed by hand"
    bare = of(2, 2)
    assert fault(store, bare, thoroughly=False) is None
    store.put(removed_name(2, 2), b"mark")
    assert fault(store, bare, thoroughly=False) == "it was removed by hand", "one without state has a mark, too"


def test_who_writes_gives_way_for_three_times_as_long_as_it_was_at_work_and_never_for_long() -> None:
    clock, waited = iter([0.0, 0.001, 0.010, 0.040, 0.045, 0.060, 9.060, 9.560]), list[float]()
    rests = Rests(lambda seconds: bool(waited.append(seconds)), lambda: next(clock))
    for _ in range(4):
        rests()
    assert waited == [pytest.approx(0.030), pytest.approx(0.015), 0.5]
