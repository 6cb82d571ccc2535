"""Whoever is a site's guest and says what its handler cannot bear: the guest goes, the site and its other guests do not."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from types import SimpleNamespace

import pytest
from tests.spark.connections import connected

from evenflow.world.spark.executor.guests import Guests
from evenflow.world.spark.net.connection import Connection
from evenflow.world.spark.net.framing import CONTROL
from evenflow.world.spark.net.reactor import Clock, Reactor

RUN = 7


class Site:
    """As much of a site as readers need."""

    def __init__(self) -> None:
        self.reactor, self.clock = Reactor(), Clock()
        held = SimpleNamespace(has=lambda after, through: False, newest=3, since=1)
        self.parts = {RUN: SimpleNamespace(held_for=lambda sink: held)}
        self.guests = Guests(self)  # type: ignore[arg-type]
        self.ends: list[Connection] = []

    def guest(self, **hello: object) -> Connection:
        there, here = connected()
        there.settimeout(0.01)
        self.ends.append(there)
        self.guests.accept(here, {"run": RUN, **hello})
        return there

    def until(self, condition: Callable[[], object]) -> None:
        deadline = time.monotonic() + 20
        while not condition():
            assert time.monotonic() < deadline, "it did not happen in time"
            self.reactor.poll(0.05)

    def lets_go(self, guest: Connection) -> bool:
        try:
            guest.receive()
        except TimeoutError:
            return False
        except ConnectionError:
            return True
        raise AssertionError("it was answered")

    def close(self) -> None:
        self.guests.close()
        self.reactor.close()
        for each in self.ends:
            each.close()


@pytest.fixture
def site() -> Iterator[Site]:
    made = Site()
    yield made
    made.close()


@pytest.mark.parametrize("said", [b"{}", b'{"ask": "rows"}', b'{"ask": "rows", "after": "x", "through": null}', b"no JSON"])
def test_a_guest_whose_words_make_no_sense_is_let_go(site: Site, said: bytes) -> None:
    other, odd = site.guest(**{"as": "fetch"}, sink="out"), site.guest(**{"as": "fetch"}, sink="out")
    odd.send(CONTROL, [said])
    site.until(lambda: site.lets_go(odd))
    other.tell(ask="rows", after=0, through=1)
    site.reactor.poll(1.0)
    other.settimeout(20)
    assert other.hear() == {"newest": 3, "since": 1}


def test_a_guest_over_whom_a_site_meets_an_error_is_let_go_and_it_is_said(site: Site, caplog: pytest.LogCaptureFixture) -> None:
    odd = site.guest(**{"as": "fetch"}, sink="out")
    site.parts[RUN].held_for = None  # type: ignore[assignment]
    odd.tell(ask="newest")
    site.until(lambda: site.lets_go(odd))
    assert "TypeError" in caplog.text and "Fetcher" in caplog.text
