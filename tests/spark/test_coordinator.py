"""The driver's end without Spark: who may become a site, and when it is too late for it."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest

from evenflow.world.spark import control
from evenflow.world.spark.channel import receive_message
from evenflow.world.spark.coordinator import Coordinator
from evenflow.world.spark.handshake import dial

SECRET = b"s" * 32


@pytest.fixture
def coordinator() -> Iterator[Coordinator]:
    made = Coordinator("engine", 1, SECRET, "127.0.0.1")
    yield made
    made.close()


def site(coordinator: Coordinator, identity: str) -> socket.socket:
    hello = {"as": "site", "engine": "engine", "site": 0, "incarnation": identity, "executor": "1", "identity": identity}
    connection = dial(("127.0.0.1", coordinator.port), SECRET, {**hello, "host": "here", "pid": 1, "port": 1, "attempt": 0})
    connection.settimeout(20)
    return connection


def told(connection: socket.socket) -> control.FromDriver | control.FromSite:
    """The next message but pings."""
    while isinstance(message := control.decode(receive_message(connection)[1]), control.Ping):
        pass
    return message


def test_a_second_site_of_the_same_index_is_sent_away(coordinator: Coordinator) -> None:
    with site(coordinator, "a") as first, site(coordinator, "b") as second:
        assert isinstance(told(first), control.Roster)
        assert told(second) == control.Leave("again: site 0 is there already")


def test_a_site_that_comes_after_the_dismissal_leaves_at_once(coordinator: Coordinator) -> None:
    """Spark starts the task of a site again when its process ends before the task does."""
    with site(coordinator, "a") as first:
        assert isinstance(told(first), control.Roster)
        coordinator.dismiss("the engine stops")
        assert told(first) == control.Leave("the engine stops")
    with site(coordinator, "b") as late:
        assert told(late) == control.Leave("the engine stops")
    assert not coordinator.ready
