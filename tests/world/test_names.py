"""Addresses that are names: a resolver that does not answer, or says no for a moment, holds no event loop up and ends nobody."""

from __future__ import annotations

import logging
import socket
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
from tests.spark.connections import connected
from tests.world.polled import until

from evenflow.errors import RegionsUnreachable
from evenflow.world.spark.executor.site import Site
from evenflow.world.spark.executor.site_task import source_address
from evenflow.world.spark.net import control, names
from evenflow.world.spark.net.channel import Channel
from evenflow.world.spark.net.connection import Connection
from evenflow.world.spark.net.framing import CONTROL
from evenflow.world.spark.net.handshake import Hello, dial
from evenflow.world.spark.net.listener import Dialer, Listener, open_port
from evenflow.world.spark.net.reactor import Reactor
from evenflow.world.spark.net.trust import Trust
from evenflow.world.spark.regions.silent import Ear, Silent
from evenflow.world.spark.regions.subscriber import Subscriber

SECRET = b"s" * 32
NOBODY = "no-such-host.invalid"


@pytest.fixture
def reactor() -> Iterator[Reactor]:
    made = Reactor()
    yield made
    made.close()


@pytest.fixture(autouse=True)
def nothing_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(names, "NAMES", names.Names())


class Resolver:
    """The system's, as far as a test lets it. says: None for what it says, an error, or an address. asked: the names, in order."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.says: OSError | str | None = None
        self.asked: list[str] = []
        self.answers = threading.Event()
        self.answers.set()
        real = socket.getaddrinfo

        def getaddrinfo(host: str, *more: Any, **named: Any) -> Any:
            if host in ("127.0.0.1", None):
                return real(host, *more, **named)
            self.asked.append(host)
            assert self.answers.wait(20)
            if isinstance(self.says, OSError):
                raise self.says
            return real(self.says or host, *more, **named)

        monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)


@pytest.fixture
def resolver(monkeypatch: pytest.MonkeyPatch) -> Iterator[Resolver]:
    made = Resolver(monkeypatch)
    yield made
    made.answers.set()


AGAIN = socket.gaierror(socket.EAI_AGAIN, "Temporary failure in name resolution")


class Answering:
    """A listener of a loop, and whom it let in."""

    def __init__(self, reactor: Reactor, host: str = "127.0.0.1") -> None:
        self.known: list[Connection] = []
        self.listener = Listener(open_port(host), reactor, SECRET, lambda connection, hello: self.known.append(connection))
        self.port = self.listener.port

    def close(self) -> None:
        self.listener.close()
        for connection in self.known:
            connection.close()


@pytest.fixture
def answering(reactor: Reactor) -> Iterator[Answering]:
    made = Answering(reactor)
    yield made
    made.close()


@pytest.fixture
def answering_v6(reactor: Reactor) -> Iterator[Answering]:
    try:
        made = Answering(reactor, "::1")
    except OSError as error:
        pytest.skip(f"this machine has no IPv6 ({error})")
    yield made
    made.close()


class Dialled:
    def __init__(self, reactor: Reactor, host: str, port: int) -> None:
        self.done: list[Connection] = []
        self.failed: list[str] = []
        self.dialer = Dialer((host, port), reactor, SECRET, {"as": "test"}, self.done.append, self.failed.append)

    @property
    def over(self) -> bool:
        for connection in self.done:
            connection.close()
        return bool(self.done or self.failed)


def test_a_name_that_does_not_resolve_is_a_try_that_failed(reactor: Reactor) -> None:
    dialled = Dialled(reactor, NOBODY, 1)
    assert not dialled.failed, "who dials knows its dialer before it hears of it"
    until(reactor, lambda: dialled.over)
    assert len(dialled.failed) == 1 and NOBODY in dialled.failed[0]


@pytest.mark.parametrize("host", ["a" * 70 + ".invalid", "with a blank", "::1"])
def test_what_is_no_name_is_a_try_that_failed(reactor: Reactor, host: str) -> None:
    dialled = Dialled(reactor, host, 1)
    until(reactor, lambda: dialled.over)
    assert dialled.failed and not dialled.done


def test_a_name_leads_there(reactor: Reactor, answering: Answering) -> None:
    dialled = Dialled(reactor, "localhost", answering.port)
    until(reactor, lambda: dialled.over)
    assert dialled.done and not dialled.failed


def test_a_resolver_that_does_not_answer_holds_no_loop_up(reactor: Reactor, answering: Answering, resolver: Resolver) -> None:
    """However many dial the same name, it is asked for once; other names are asked for beside it."""
    resolver.answers.clear()
    waiting = [Dialled(reactor, "localhost", answering.port) for _ in range(5)] + [Dialled(reactor, "elsewhere", 1)]
    other = Dialled(reactor, "127.0.0.1", answering.port)
    until(reactor, lambda: other.over)
    assert other.done and not any(each.done or each.failed for each in waiting)
    waiting[1].dialer.abandon()
    resolver.answers.set()
    until(reactor, lambda: all(each.over for each in waiting if each is not waiting[1]))
    assert sorted(resolver.asked) == ["elsewhere", "localhost"]
    assert [len(each.done) for each in waiting] == [1, 0, 1, 1, 1, 0] and not waiting[1].failed


def test_a_resolver_that_never_answers_is_given_up_like_any_other_silence(
    reactor: Reactor, resolver: Resolver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("evenflow.world.spark.net.listener.HANDSHAKE_TIMEOUT_S", 0.05)
    resolver.answers.clear()
    dialled = Dialled(reactor, "localhost", 1)
    until(reactor, lambda: dialled.over)
    assert dialled.failed == ["no answer in time"]


@pytest.mark.parametrize("silent", [False, True], ids=["says no", "says nothing"])
def test_where_a_name_led_last_is_tried_when_nobody_knows_it(
    reactor: Reactor, answering: Answering, resolver: Resolver, monkeypatch: pytest.MonkeyPatch, silent: bool
) -> None:
    monkeypatch.setattr(names, "PATIENCE_S", 0.02)
    first = Dialled(reactor, "localhost", answering.port)
    until(reactor, lambda: first.over)
    resolver.says = AGAIN
    if silent:
        resolver.answers.clear()
    second = Dialled(reactor, "localhost", answering.port)
    until(reactor, lambda: second.over)
    assert first.done and second.done and not second.failed


def test_a_name_that_leads_elsewhere_by_now_is_followed(reactor: Reactor, answering: Answering, resolver: Resolver) -> None:
    resolver.says = "127.0.0.3"
    first = Dialled(reactor, "east", answering.port)
    until(reactor, lambda: first.over)
    assert first.failed, "nobody listens there"
    resolver.says = "127.0.0.1"
    second = Dialled(reactor, "east", answering.port)
    until(reactor, lambda: second.over)
    assert second.done


# ---------------------------------------------------------------- IPv6

BOTH = [(socket.AF_INET6, "::1"), (socket.AF_INET, "127.0.0.1")]


def leading(monkeypatch: pytest.MonkeyPatch, found: list[tuple[int, str]]) -> None:
    """The system's resolver knows these addresses of any name, in that order."""

    def answer(host: str, port: int | None, *more: Any, **named: Any) -> list[tuple[Any, ...]]:
        return [(family, socket.SOCK_STREAM, socket.IPPROTO_TCP, "", (address, port or 0)) for family, address in found]

    monkeypatch.setattr(socket, "getaddrinfo", answer)


def test_an_address_of_ipv6_is_dialled_at_once(reactor: Reactor, answering_v6: Answering, resolver: Resolver) -> None:
    dialled = Dialled(reactor, "::1", answering_v6.port)
    until(reactor, lambda: dialled.over)
    assert dialled.done and resolver.asked == []


def test_a_name_that_has_only_ipv6_leads_there(reactor: Reactor, answering_v6: Answering, monkeypatch: pytest.MonkeyPatch) -> None:
    leading(monkeypatch, BOTH[:1])
    dialled = Dialled(reactor, "pod.namespace.svc", answering_v6.port)
    until(reactor, lambda: dialled.over)
    assert dialled.done and not dialled.failed


def test_of_a_name_that_has_both_ipv4_is_dialled(reactor: Reactor, answering: Answering, monkeypatch: pytest.MonkeyPatch) -> None:
    """As before there was any other. Method: nobody listens at the other address."""
    leading(monkeypatch, BOTH)
    dialled = Dialled(reactor, "both", answering.port)
    until(reactor, lambda: dialled.over)
    assert dialled.done and not dialled.failed


def test_a_dial_that_waits_knows_where_it_led(reactor: Reactor, answering_v6: Answering, monkeypatch: pytest.MonkeyPatch) -> None:
    """The loop of the listener is this one, so the dial is in a thread of its own."""
    leading(monkeypatch, [(socket.AF_INET6, "::1")])
    made: list[Connection] = []
    thread = threading.Thread(target=lambda: made.append(dial(("east", answering_v6.port), SECRET, {"as": "test"})))
    thread.start()
    until(reactor, lambda: made)
    thread.join()
    made[0].close()
    assert names.NAMES.known("east") == "::1"


@pytest.mark.parametrize(("host", "own"), [("127.0.0.1", "127.0.0.1"), ("::1", "::1")])
def test_a_site_listens_where_it_reaches_the_driver_from(host: str, own: str, request: pytest.FixtureRequest) -> None:
    if own == "::1":
        request.getfixturevalue("answering_v6")
    assert source_address((host, 9)) == own


# ---------------------------------------------------------------- sites


class Driver:
    """The end that a site dials again, which tells it to leave."""

    def __init__(self) -> None:
        self.reactor, self.stopped = Reactor(), threading.Event()
        self.listener = Listener(open_port("127.0.0.1"), self.reactor, SECRET, self._welcome)
        self.port = self.listener.port
        self.thread = threading.Thread(target=self._run, daemon=True)
        self.thread.start()

    def _welcome(self, connection: Connection, hello: Hello) -> None:
        if "site" in hello:
            channel = Channel(connection, self.reactor, lambda *_: None, lambda *_: None)
            channel.send(CONTROL, control.encode(control.Leave("the test is over")))
        else:
            connection.close()

    def _run(self) -> None:
        while not self.stopped.is_set():
            self.reactor.poll(0.05)
        self.listener.close()
        self.reactor.close()

    def close(self) -> None:
        self.stopped.set()
        self.reactor.wake()
        self.thread.join(5.0)


@pytest.fixture
def driver() -> Iterator[Driver]:
    made = Driver()
    yield made
    made.close()


def site_of(address: tuple[str, int], lease_s: float) -> tuple[Site, Connection]:
    """A site, and the driver's end of its connection."""
    here, there = connected()
    return Site(control.You(0, 0, 0.05), {"as": "site", "incarnation": "a"}, SECRET, address, here, open_port("127.0.0.1"), lease_s), there


def test_a_site_that_cannot_find_its_driver_lives_as_long_as_its_lease() -> None:
    site, there = site_of((NOBODY, 1), lease_s=0.5)
    there.close()
    assert "the driver has been silent for" in site.serve()


def test_a_site_finds_its_driver_when_the_resolver_is_back(driver: Driver, resolver: Resolver) -> None:
    site, there = site_of(("driver", driver.port), lease_s=20.0)
    resolver.says = AGAIN
    site.reactor.call_later(0.3, lambda: setattr(resolver, "says", "127.0.0.1"))
    there.close()
    assert site.serve() == "the test is over" and len(resolver.asked) > 1


def test_a_site_finds_its_driver_where_it_was_though_the_resolver_is_away(driver: Driver, resolver: Resolver) -> None:
    """It has dialled once, as a task does before it is a site."""
    resolver.says = "127.0.0.1"
    dial(("driver", driver.port), SECRET, {"as": "test"}).close()
    resolver.says = AGAIN
    site, there = site_of(("driver", driver.port), lease_s=20.0)
    there.close()
    assert site.serve() == "the test is over"


# ---------------------------------------------------------------- regions


def test_a_reader_waits_for_a_region_whose_name_does_not_resolve() -> None:
    reads = Subscriber([(NOBODY, 1, 1)], None, None, 0, Trust(SECRET, None), race=False, patience_s=0.3)
    with reads, pytest.raises(RegionsUnreachable, match=NOBODY):
        reads.take(20.0)


def test_an_ear_goes_on_when_a_name_does_not_resolve(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG, "evenflow"):
        ear = Ear(Silent(0, ["out"]), {"out": ([(NOBODY, 1, 1)], Trust(SECRET, None))}, {"name": "traffic"})
        deadline = time.monotonic() + 20
        while sum("is not heard" in record.message for record in caplog.records) < 2:
            assert ear._thread.is_alive() and time.monotonic() < deadline
            ear._thread.join(0.01)
        ear.close()
