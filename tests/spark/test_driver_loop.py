"""The driver's end without Spark: who may become a site, who is dead, and who hears of it in which order."""

from __future__ import annotations

import errno
import os
import pickle
import socket
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from evenflow.coordinator.events import SiteLost
from evenflow.coordinator.fleet import Drain, Look
from evenflow.errors import ClusterError
from evenflow.world.spark.driver import driver_loop as driver_loop_module
from evenflow.world.spark.driver.driver_loop import DriverLoop
from evenflow.world.spark.executor import preparing
from evenflow.world.spark.net import control
from evenflow.world.spark.net.channel import GARBLED_MAX
from evenflow.world.spark.net.framing import CONTROL, HEADER, MAGIC, RELEASE, VERSION
from evenflow.world.spark.net.handshake import Connecting, dial
from evenflow.world.spark.net.reactor import Reactor

SECRET = b"s" * 32


def hello_of(identity: str, job: int) -> dict[str, Any]:
    return {
        "as": "site", "engine": "engine", "incarnation": identity, "executor": identity, "identity": identity, "job": job,
        "host": "here", "pid": 1, "port": 1, "attempt": 0,
    }  # fmt: skip


class Fake:
    """A site as the driver sees it: it says what the test says, and takes down what it hears. taken: counted messages."""

    def __init__(self, coordinator: DriverLoop, identity: str, job: int = 1, **more: Any) -> None:
        self.coordinator, self.taken = coordinator, 0
        self._saying = threading.Lock()  # Beats come from a thread of their own: a message goes out whole.
        self.hello = hello_of(identity, job)
        self.connect(**more)

    def connect(self, **more: Any) -> None:
        self.connection = dial(("127.0.0.1", self.coordinator.port), SECRET, {**self.hello, **more})
        self.connection.settimeout(20)
        self.first = control.from_driver(self.connection.receive()[1])
        self.index = self.first.index if isinstance(self.first, control.You) else -1

    def hear(self) -> Any:
        """The next message but pings; None at the end."""
        while True:
            try:
                message = control.from_driver(self.connection.receive()[1])
            except ConnectionError:
                return None
            self.taken += 1
            if not isinstance(message, control.Ping):
                return message

    def say(self, message: control.FromSite) -> None:
        with self._saying:
            self.connection.send(CONTROL, control.encode(message))

    def beat(self, *accused: int, busy: str | None = None) -> None:
        self.say(control.Beat(self.taken, accused, busy, None))

    def link(self, sites: int) -> None:
        """Hear rosters until there is one with so many sites, and say that all of them are linked."""
        while len((roster := self.hear()).sites) < sites:
            pass
        self.say(control.Linked(roster.number))

    def close(self) -> None:
        self.connection.close()


class World:
    def __init__(self, sites: int, replicas: int = 1) -> None:
        self.coordinator = DriverLoop("engine", sites, SECRET, "127.0.0.1", replicas=replicas)
        self.lost: list[tuple[int, str]] = []
        self.came: list[int] = []
        self.coordinator.on_lost.append(lambda index, why: self.lost.append((index, why)))
        self.coordinator.on_site.append(self.came.append)
        self.fakes: list[Fake] = []
        self._beating = threading.Event()
        self.silent: set[int] = set()
        self.accused: dict[int, tuple[int, ...]] = {}

    def site(self, identity: str, job: int = 1, **more: Any) -> Fake:
        self.fakes.append(Fake(self.coordinator, identity, job, **more))
        return self.fakes[-1]

    def until(self, condition: Callable[[], object]) -> None:
        deadline = time.monotonic() + 20
        with self.coordinator.changed:
            while not condition():
                assert time.monotonic() < deadline, "it did not happen in time"
                self.coordinator.changed.wait(0.02)

    def beat_on(self) -> None:
        """Beat for everybody who is not in `silent`, in a thread of its own."""

        def beat() -> None:
            while not self._beating.wait(0.03):
                for fake in self.fakes:
                    if fake.index >= 0 and fake.index not in self.silent:
                        try:
                            fake.beat(*self.accused.get(fake.index, ()))
                        except OSError:
                            continue

        self._thread = threading.Thread(target=beat, daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._beating.set()
        self.coordinator.close()
        for fake in self.fakes:
            fake.close()


@pytest.fixture
def world() -> Iterator[Callable[..., World]]:
    made: list[World] = []

    def make(sites: int, replicas: int = 1) -> World:
        made.append(World(sites, replicas))
        return made[-1]

    yield make
    for each in made:
        each.close()


def test_indices_are_given_once(world: Callable[..., World]) -> None:
    made = world(2)
    one, two = made.site("a", 1), made.site("b", 2)
    assert (one.index, two.index) == (0, 1)
    one.link(2)
    two.link(2)
    made.until(lambda: made.coordinator.ready)
    assert made.came == [0, 1]
    two.close()
    made.until(lambda: len(made.coordinator.sites) == 1)
    assert not made.coordinator.ready
    assert set(one.hear().sites) == {0}
    three = made.site("b", 3)
    assert three.index == 2
    assert one.hear().sites.keys() == {0, 2}
    three.link(2)
    made.until(lambda: made.coordinator.ready)
    assert made.came == [0, 1, 2]


def test_a_second_site_of_the_same_executor_is_sent_away(world: Callable[..., World]) -> None:
    made = world(2)
    made.site("a")
    assert made.site("a", 2).first == control.Leave("site 0 is on the same executor", again=True)
    assert isinstance(made.site("b", 2).first, control.You)
    assert made.site("c", 3).first == control.Leave("there are 2 sites already", again=True)


def test_a_task_that_spark_starts_again_after_its_site_is_dead_is_sent_away(world: Callable[..., World]) -> None:
    made = world(1)
    made.site("a", 1).close()
    made.until(lambda: made.lost)
    assert made.site("a", 1).first == control.Leave("its job has been given up", again=True)
    assert made.site("a", 2).index == 1


def test_a_site_that_comes_after_the_dismissal_leaves_at_once(world: Callable[..., World]) -> None:
    """Spark starts the task of a site again when its process ends before the task does."""
    made = world(1)
    first = made.site("a")
    assert isinstance(first.hear(), control.Roster)
    made.coordinator.dismiss("the engine stops")
    assert first.hear() == control.Leave("the engine stops")
    assert made.site("b").first == control.Leave("the engine stops")
    assert not made.coordinator.ready


def test_without_replicas_the_end_of_a_connection_is_the_end_of_the_site(world: Callable[..., World]) -> None:
    made = world(2)
    one, two = made.site("a", 1), made.site("b", 2)
    assert one.first == control.You(0, 0, 0.0)
    two.close()
    made.until(lambda: made.lost)
    assert [index for index, _ in made.lost] == [1]


def three(made: World) -> list[Fake]:
    """Three linked sites that have heard every roster."""
    fakes = [made.site(name, job) for job, name in enumerate("abc")]
    for fake in fakes:
        fake.link(3)
    made.until(lambda: made.coordinator.ready)
    made.beat_on()
    return fakes


def test_a_site_that_its_peers_cannot_reach_either_is_dead_at_once(world: Callable[..., World]) -> None:
    made = world(3, replicas=2)
    one, two, gone = three(made)
    made.accused = {0: (2,), 1: (2,)}
    gone.close()
    one.beat(2)
    two.beat(2)
    made.until(lambda: made.lost)
    assert made.lost[0][0] == 2
    assert "sites 0, 1 cannot reach it either" in made.lost[0][1]
    assert one.hear().sites.keys() == two.hear().sites.keys() == {0, 1}


def test_a_site_may_come_back_to_its_line_in_time(world: Callable[..., World]) -> None:
    made = world(3, replicas=2)
    three_ = three(made)[2]
    made.silent = {2}
    three_.say(control.Linked(-1))
    three_.close()
    three_.connect(site=2, taken=three_.taken)
    assert isinstance(three_.first, control.You)
    assert three_.first.index == 2
    assert three_.first.taken >= 1
    made.silent = set()
    assert made.lost == []
    made.coordinator.call_soon(lambda: made.coordinator.send(2, control.EndPart(7)))
    assert three_.hear() == control.EndPart(7)


class Idle:
    """As much of a run as the coordinator looks at. begun, lost: sites."""

    number = 1

    def __init__(self, *sites: int) -> None:
        self.over, self.on_over, self.run_id = threading.Event(), [], "idle"
        self.when_over = self.on_over.append
        self.machine = SimpleNamespace(over=False, sites=sites, vital=lambda site, silent: False)
        self.begun: list[int] = []
        self.lost: list[int] = []

    def begin(self, site: int) -> None:
        self.begun.append(site)

    def lose(self, lost: SiteLost) -> None:
        self.lost.append(lost.site)

    def note_user_code(self, site: int, works: tuple[tuple[int, int], ...]) -> None: ...

    def part_ended(self, site: int) -> None: ...


def test_life_signs_are_quick_while_a_run_is_active(world: Callable[..., World]) -> None:
    made = world(3, replicas=2)
    fakes = three(made)
    run: Any = Idle(0, 1, 2)
    assert fakes[0].first == control.You(0, 0, 0.25)
    made.coordinator.add_run(run)
    for fake in fakes:
        assert fake.hear() == control.Pace(0.05)
    made.until(lambda: run.begun == [0, 1, 2])
    run.over.set()
    made.coordinator.call_soon(lambda: [call() for call in run.on_over] and None)
    for fake in fakes:
        assert fake.hear() == control.Pace(0.25)


def test_runs_hear_who_is_dead_and_who_has_come(world: Callable[..., World]) -> None:
    made = world(3, replicas=2)
    fakes = three(made)
    run: Any = Idle(0, 1, 2)
    made.coordinator.add_run(run)
    for fake in fakes:
        assert isinstance(fake.hear(), control.Pace)
    made.accused = {0: (2,), 1: (2,)}
    fakes[2].close()
    made.until(lambda: run.lost == [2])
    made.accused = {}
    assert made.coordinator.sites.keys() == {0, 1}
    newcomer = made.site("d", 9)
    assert newcomer.first == control.You(3, 0, 0.05)
    newcomer.link(3)
    made.until(lambda: run.begun == [0, 1, 2, 3])


def test_what_is_asked_of_a_busy_coordinator_is_done_or_has_failed(world: Callable[..., World], monkeypatch: pytest.MonkeyPatch) -> None:
    """Goal: what somebody was told has failed does not happen later. Method: it is held; then the call itself holds it."""
    monkeypatch.setattr(driver_loop_module, "ANSWER_S", 0.2)
    coordinator, held, goes, done = world(1).coordinator, threading.Event(), threading.Event(), list[str]()
    coordinator.call_soon(lambda: goes.wait(20) and None)
    with pytest.raises(ClusterError, match="does not answer"):
        coordinator.ask(lambda: done.append("late"))
    goes.set()
    assert coordinator.ask(lambda: list(done)) == []

    def slow() -> str:
        held.wait(0.3)
        return "it takes a while"

    assert coordinator.ask(slow) == "it takes a while"


def test_a_run_that_is_over_is_forgotten(world: Callable[..., World]) -> None:
    """Goal: a driver that starts many runs, or survives many losses, is no larger and no slower for it: who started a run has it."""
    made = world(3, replicas=2)
    fakes = three(made)

    def begin(number: int) -> weakref.ref[Any]:
        run: Any = Idle(0, 1, 2)
        run.number, run.itself = number, run  # A real one is in circles, too.
        made.coordinator.add_run(run)
        made.until(lambda: run.begun == [0, 1, 2])
        return weakref.ref(run)

    def end(left: weakref.ref[Any]) -> None:
        run = left()
        assert run is not None
        run.machine.over = True
        run.over.set()
        for call in run.on_over:
            call()

    for number in range(1, 4):
        left = begin(number)
        made.coordinator.call_soon(partial(end, left))
        for fake in fakes:
            fake.beat()
        made.until(lambda left=left: left() is None)  # type: ignore[misc]
        assert not made.coordinator.runs


def test_a_hang_is_a_death_that_the_site_hears_of_when_it_wakes(world: Callable[..., World]) -> None:
    made = world(3, replicas=2)
    hung = three(made)[2]
    made.silent, made.accused = {2}, {0: (2,), 1: (2,)}
    began = time.monotonic()
    made.until(lambda: made.lost)
    assert time.monotonic() - began < 5
    assert "silent" in made.lost[0][1]
    left = hung.hear()
    assert isinstance(left, control.Leave)
    assert "declared dead" in left.why
    assert hung.hear() is None
    hung.connect(site=2, taken=hung.taken)
    assert isinstance(hung.first, control.Leave), "a site that was declared dead never comes back under its name"


def test_a_site_that_only_the_driver_does_not_hear_lives(world: Callable[..., World]) -> None:
    made = world(3, replicas=2)
    three(made)
    made.silent = {2}
    time.sleep(1.5)  # Nothing happens, which no event can say.
    assert made.lost == []


# ---------------------------------------------------------------- what goes wrong in the driver


def ghost(made: World, identity: str, job: int) -> None:
    """A site that says hello and is gone before the driver, which is held up, has read it."""
    held, gone = threading.Event(), threading.Event()

    def hold() -> None:
        held.set()
        gone.wait(20)

    with socket.create_connection(("127.0.0.1", made.coordinator.port)) as sock:
        end = Connecting(SECRET, hello_of(identity, job), made.coordinator.port)
        while not end.out:
            end.feed(sock.recv(end.needs))
        made.coordinator.call_soon(hold)
        assert held.wait(20)
        sock.sendall(end.out)
    gone.set()


def test_a_site_that_is_gone_behind_its_hello_was_never_there(world: Callable[..., World]) -> None:
    made = world(2)
    ghost(made, "a", 1)
    one, two = made.site("a", 2), made.site("b", 3)
    assert isinstance(one.first, control.You) and isinstance(two.first, control.You)
    one.link(2)
    two.link(2)
    made.until(lambda: made.coordinator.ready)
    assert made.coordinator.fleet.sites.keys() == made.coordinator.sites.keys() == {one.index, two.index}


def test_a_death_behind_such_a_site_is_told(world: Callable[..., World]) -> None:
    made = world(4)
    fakes = [made.site(name, job) for job, name in enumerate("abc")]
    for fake in fakes:
        fake.link(3)
    run: Any = Idle(0, 1, 2)
    made.coordinator.add_run(run)
    made.until(lambda: run.begun == [0, 1, 2])
    ghost(made, "d", 4)
    fakes[2].close()
    made.until(lambda: made.lost)
    assert run.lost == [2] and fakes[0].hear().sites.keys() == {0, 1}


def test_a_site_that_cannot_be_taken_in_is_let_go(world: Callable[..., World], monkeypatch: pytest.MonkeyPatch) -> None:
    """Its socket cannot be watched: the system's limit, or the user's, has been reached."""
    made = world(1)
    lives = Reactor.register

    def register(self: Reactor, *given: Any) -> None:
        if self is made.coordinator._reactor and made.coordinator.fleet.sites:
            raise OSError(errno.ENOSPC, "no space left on device")
        lives(self, *given)

    monkeypatch.setattr(Reactor, "register", register)
    with pytest.raises(ConnectionError):
        made.site("a", 1)
    made.until(lambda: made.lost)
    assert not made.coordinator.fleet.sites and not made.coordinator.sites
    monkeypatch.undo()
    assert isinstance(made.site("a", 2).first, control.You)


def test_what_goes_wrong_over_one_run_hides_a_death_from_nobody(world: Callable[..., World], caplog: pytest.LogCaptureFixture) -> None:
    made = world(2)
    fakes = [made.site(name, job) for job, name in enumerate("ab")]
    for fake in fakes:
        fake.link(2)
    broken: Any = Idle(0, 1)
    broken.lose = lambda lost: 1 // 0
    run: Any = Idle(0, 1)
    run.number = 2
    made.coordinator.add_run(broken)
    made.coordinator.add_run(run)
    made.until(lambda: run.begun == [0, 1])
    fakes[1].close()
    made.until(lambda: made.lost)
    assert run.lost == [1] and [index for index, _ in made.lost] == [1]
    assert "ZeroDivisionError" in caplog.text and "TellRun" in caplog.text, "and it is said of what"


def test_a_hello_without_what_the_driver_needs_makes_no_site(world: Callable[..., World]) -> None:
    made = world(1)
    for lacks in ("port", "job", "incarnation"):
        hello = {name: said for name, said in hello_of("a", 1).items() if name != lacks}
        with dial(("127.0.0.1", made.coordinator.port), SECRET, hello) as connection:
            connection.settimeout(20)
            with pytest.raises(ConnectionError):
                connection.receive()
    assert isinstance(made.site("a", 2).first, control.You)


# ---------------------------------------------------------------- who leaves as planned


def test_a_site_that_is_let_go_leaves_and_one_less_is_wanted(world: Callable[..., World]) -> None:
    made = world(3)
    coordinator, fleet = made.coordinator, made.coordinator.fleet
    sites = [made.site(name, job) for job, name in enumerate("abc", 1)]
    for each in sites:
        each.link(3)
    made.until(lambda: coordinator.ready)
    coordinator.ask(lambda: coordinator.observe(Drain((1,))))
    assert [site.leaving for site in coordinator.describe_sites()] == [False, True, False]
    coordinator.ask(lambda: coordinator.observe(Look()))
    assert sites[1].hear() == control.Leave("it was drained")
    assert set(sites[0].hear().sites) == {0, 2}
    assert (fleet.wanted, fleet.leaving, fleet.released, fleet.shunned) == (2, [], {2}, {"b"})
    assert coordinator.ready
    made.until(lambda: made.lost)
    assert made.lost == [(1, "it was drained")]
    assert made.site("d", 4).first == control.Leave("there are 2 sites already", again=True)
    coordinator.ask(lambda: setattr(fleet, "wanted", 3))
    assert made.site("b", 5).first == control.Leave("its executor is given back", again=True)
    assert isinstance(made.site("d", 6).first, control.You)


def test_a_site_that_dies_while_it_is_emptied_is_not_replaced(world: Callable[..., World]) -> None:
    made = world(2)
    made.site("a", 1)
    second = made.site("b", 2)
    made.coordinator.ask(lambda: made.coordinator.observe(Drain((1,))))
    second.close()
    made.until(lambda: made.lost)
    assert (made.coordinator.fleet.wanted, made.coordinator.fleet.released) == (1, set())
    assert made.site("c", 3).first == control.Leave("there are 1 sites already", again=True)


def test_an_answer_of_the_coordinators_thread_is_what_it_returned_or_raised(
    world: Callable[..., World], monkeypatch: pytest.MonkeyPatch
) -> None:
    made = world(1)
    assert made.coordinator.ask(threading.current_thread) is made.coordinator._thread
    with pytest.raises(ZeroDivisionError):
        made.coordinator.ask(lambda: 1 // 0)
    made.coordinator.close()
    monkeypatch.setattr(driver_loop_module, "ANSWER_S", 0.01)
    with pytest.raises(ClusterError, match="it has been stopped"):
        made.coordinator.ask(lambda: None)


def test_a_message_that_cannot_be_read_is_said_again(world: Callable[..., World]) -> None:
    """Altered on its way: the connection ends, nothing counts as taken, and the site says it over the next one."""
    made = world(1, replicas=2)
    one = made.site("a")
    one.beat()
    one.connection.send(CONTROL, [b"nonsense"])
    while one.hear() is not None:
        pass
    taken = made.coordinator.sites[0].line.taken
    one.connect(site=0, taken=0)
    assert isinstance(one.first, control.You) and one.first.taken == taken == 1
    one.beat()
    made.until(lambda: made.coordinator.sites[0].line.taken == 2)
    assert made.lost == []


@pytest.mark.parametrize("kind", [CONTROL, RELEASE])
def test_who_cannot_be_read_again_and_again_is_a_broken_site(world: Callable[..., World], kind: int) -> None:
    made = world(1, replicas=2)
    one = made.site("a")
    for times in range(GARBLED_MAX):
        if times:
            one.connect(site=0, taken=0)
        one.connection.send(kind, [b"nonsense"])
        while one.hear() is not None:
            pass
    made.until(lambda: made.lost)
    ((site, why),) = made.lost
    assert site == 0 and "cannot be read, again and again" in why


class Bomb:
    """Whoever unpickles it makes a directory."""

    def __init__(self, told: Path) -> None:
        self.told = told

    def __reduce__(self) -> Any:
        return os.mkdir, (str(self.told),)


@pytest.mark.parametrize("sealed", [False, True])
def test_what_is_put_into_a_connection_runs_nothing_and_costs_only_it(world: Callable[..., World], tmp_path: Path, sealed: bool) -> None:
    """By somebody on the way, who has no seal; by a site that has gone mad, which has."""
    made = world(2, replicas=2)
    one, other = made.site("a"), made.site("b")
    bomb = pickle.dumps(Bomb(tmp_path / "robbed"))
    for times in range(GARBLED_MAX - 1 if sealed else 2 * GARBLED_MAX):
        if times:
            one.connect(site=0, taken=0)
        if sealed:
            one.connection.send(CONTROL, [bomb])
        else:
            one.connection.sock.sendall(HEADER.pack(MAGIC, VERSION, CONTROL, len(bomb), bytes(16)) + bomb)
        while one.hear() is not None:
            pass
    one.connect(site=0, taken=0)
    assert isinstance(one.first, control.You) and made.lost == []
    other.beat()
    made.until(lambda: made.coordinator.sites[1].line.taken == 1)
    assert not (tmp_path / "robbed").exists()


def test_tasks_that_compile_kernels_are_waited_for(world: Callable[..., World], caplog: pytest.LogCaptureFixture) -> None:
    """The user is told once for a host; it is over when the connections are."""
    made = world(2)
    preparations = made.coordinator.preparations
    hello = {"as": "prepares", "engine": "engine", "executor": "1", "host": "here"}
    connections = [dial(("127.0.0.1", made.coordinator.port), SECRET, hello) for _ in range(2)]
    made.until(lambda: len(preparations._channels) == 2)
    told = [record.getMessage() for record in caplog.records if "compiling kernels on here (executor 1)" in record.getMessage()]
    assert len(told) == 1 and not made.coordinator.sites
    connections[0].close()
    made.until(lambda: len(preparations._channels) == 1)
    assert preparations.under_way and not preparations.stuck
    connections[1].close()
    made.until(lambda: not preparations.under_way)


def test_a_task_that_hangs_while_it_compiles_kernels_is_not_waited_for_for_ever(
    world: Callable[..., World], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It keeps its connection. Who waits behind it at the lock of its machine's kernels hangs as well."""
    monkeypatch.setattr(preparing, "PREPARES_MAX_S", 0.2)
    made = world(2)
    preparations = made.coordinator.preparations
    dialled = dial(("127.0.0.1", made.coordinator.port), SECRET, {"as": "prepares", "engine": "engine", "executor": "1", "host": "here"})
    made.until(lambda: bool(preparations._channels))
    made.until(lambda: not preparations.under_way)
    assert preparations.stuck == ["executor 1 on here"]
    dialled.close()
    made.until(lambda: not preparations.stuck)
