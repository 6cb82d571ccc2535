"""A driver that was replaced comes back, and finds an entry of another one in its way, whatever was collected meanwhile."""

from __future__ import annotations

from random import Random

import pytest

from evenflow.availability.entries import Entry, Logged, entry_name, to_bytes
from evenflow.coordinator.journal import Journal
from evenflow.swarm.stale import Stale
from evenflow.world.sim.clock import VirtualClock
from evenflow.world.sim.model import StoreModel
from evenflow.world.sim.store import SimStore
from tests.availability.journals import BEGUN


def replaced() -> tuple[SimStore, Stale]:
    """The first driver was about to append entry 2 and hung; the second one has begun there, and gone on."""
    store = SimStore(VirtualClock(), StoreModel(), Random(1))
    stale = Stale(Journal.of(store.begin(BEGUN, "first")), store)
    store.begin(BEGUN, "second")
    store._put(entry_name(3), to_bytes(Entry(3, 2, "second", Logged({}))))
    return store, stale


def test_the_entry_with_which_its_successor_began_is_in_its_way() -> None:
    store, stale = replaced()
    before = dict(store.objects)
    store.objects.pop(entry_name(3))
    stale.wakes()
    assert store.objects == {name: data for name, data in before.items() if name != entry_name(3)}


def test_without_that_entry_it_would_append() -> None:
    store, stale = replaced()
    store.objects.pop(entry_name(2))
    with pytest.raises(AssertionError, match="what stood there, of the one that has replaced it, was collected"):
        stale.wakes()


def test_who_was_not_replaced_may_append() -> None:
    store = SimStore(VirtualClock(), StoreModel(), Random(1))
    Stale(Journal.of(store.begin(BEGUN, "first")), store).wakes()
