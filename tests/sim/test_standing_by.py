"""What is demanded of a driver that stands by beside runs that are lost is what its machine promises (K14)."""

from __future__ import annotations

from random import Random

import pytest

from evenflow.swarm import standbys
from evenflow.swarm.mutations import Mutation, planted
from evenflow.swarm.standbys import LIMIT, StandsBy
from evenflow.world.sim.clock import VirtualClock
from tests.sim.test_restart import Stage

LEASE_US, LOOK_US, SLOW_US = 100_000, 100, 1_000_000
NEVER = Mutation("who stands by never begins", "coordinator.standby:Standby._look", "self.silent_s > self.patience_s", "False")


def killed_in_a_slow_look(monkeypatch: pytest.MonkeyPatch) -> tuple[StandsBy, VirtualClock]:
    """The driver dies while a look is under way at a store that is slow; then the store is itself again."""
    monkeypatch.setattr(standbys, "LEASE_US", (LEASE_US, LEASE_US))
    monkeypatch.setattr(standbys, "LOOK_US", (LOOK_US, LOOK_US))
    stage = Stage("running", replicas=2)
    standby = StandsBy(stage.cluster, Random(1))
    store = stage.cluster.store
    stage.world.run_for(2 * standby.machine.look_s)
    store.slow = SLOW_US / LOOK_US
    stage.world.run_for(2 * standby.machine.look_s)
    store.slow = 1.0
    stage.cluster.kill_driver()
    return standby, stage.cluster.lasting.clock


def test_a_slow_look_that_is_under_way_at_the_death_makes_it_patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Goal: it is waited for as its patience says, which it learns when that look ends. Method: of all looks only that one is slow, and
    takes longer than it would have been waited for before."""
    standby, clock = killed_in_a_slow_look(monkeypatch)
    died_us, before_us = clock.now_us, standby.machine.patience_s * 1e6
    standby.takes_over()
    assert standby.began == 1
    assert clock.now_us - died_us > LIMIT * before_us


def test_who_never_takes_over_is_found_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    with planted(NEVER), pytest.raises(AssertionError, match="nobody has taken over"):
        killed_in_a_slow_look(monkeypatch)[0].takes_over()
