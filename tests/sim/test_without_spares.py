"""What recovery does where no site is spare: who takes what was lost, what goes home, and what becomes of copies that fail."""

from __future__ import annotations

from evenflow.coordinator.events import Happened
from evenflow.coordinator.recovery import PATIENCE_MS, SETTLE_MS
from tests.sim.test_scenarios import Stage


def events(stage: Stage, kind: str) -> list[Happened]:
    return [event for _, event in stage.world.happened if event.kind == kind]


def kill_one(stage: Stage) -> int:
    """One of those who have most; waits until the coordinator knows."""
    load = stage.machine.view.load()
    victim = max(load, key=lambda site: (load[site], site))
    stage.world.kill(victim)
    stage.wait(lambda: victim not in stage.machine.sites, "the death to be noticed")
    return int(victim)


def test_three_deaths_seven_seconds_apart_are_survived_by_five_sites_without_a_spare() -> None:
    """Goal: redundancy does not wait for a site that may never come. Method: pairs on five sites, the usual setting,
    and nobody replaces the dead."""
    stage = Stage(sites=5, patience_ms=PATIENCE_MS, settle_ms=SETTLE_MS)
    for _ in range(3):
        stage.world.run_for(7.0)
        assert stage.world.redundancy() == 2
        kill_one(stage)
    stage.whole()
    assert len(stage.machine.sites) == 2 and stage.world.error is None
    stage.finish()


def test_the_rest_take_what_was_lost_and_it_goes_home_to_a_new_site() -> None:
    """Goal: load is even again after a site has come. Method: kill one of five, wait until the others are whole, add one."""
    stage = Stage(sites=5, patience_ms=PATIENCE_MS)
    before = sorted(stage.machine.view.load().values())
    stage.world.run_for(0.05)
    kill_one(stage)
    stage.whole()
    assert len(stage.machine.view.load()) == 4
    index = stage.world.add_site()
    stage.wait(lambda: sorted(stage.machine.view.load().values()) == before and not stage.machine.under_way(), "even load")
    assert {event.details["target"] for event in events(stage, "move_done")} == {index}
    assert not events(stage, "move_refused")
    stage.finish()


def test_two_sites_die_and_two_come() -> None:
    """Goal: each newcomer takes the place of one of the dead. Method: the second to die has taken in some of what the first had."""
    stage = Stage(sites=5, patience_ms=PATIENCE_MS)
    before = sorted(stage.machine.view.load().values())
    stage.world.run_for(0.05)
    for _ in range(2):
        kill_one(stage)
        stage.whole()
    stage.world.add_site()
    stage.wait(lambda: bool(events(stage, "move_done")), "a move home")
    stage.world.add_site()
    stage.wait(lambda: sorted(stage.machine.view.load().values()) == before and not stage.machine.under_way(), "even load")
    stage.finish()


def test_a_new_site_dies_while_replicas_go_home_to_it() -> None:
    """Goal: who has taken what was lost keeps it until it counts elsewhere. Method: kill the newcomer in the middle of
    the moves, add another."""
    stage = Stage(sites=4, patience_ms=PATIENCE_MS)
    stage.world.run_for(0.05)
    kill_one(stage)
    stage.whole()
    index = stage.world.add_site()
    stage.wait(lambda: any(copy.moves for copy in stage.machine.membership.joining), "a move home")
    stage.world.kill(index)
    stage.wait(lambda: index not in stage.machine.sites, "the death to be noticed")
    assert stage.world.redundancy() == 2 or stage.machine.view.load()[index] == 0
    stage.whole()
    other = stage.world.add_site()
    stage.wait(lambda: stage.machine.view.load()[other] > 0 and not stage.machine.under_way(), "moves to the other one")
    stage.whole()
    stage.finish()
    assert events(stage, "move_dropped")


def test_recovery_goes_on_after_sixty_dropped_copies() -> None:
    """Goal: no number of failures in a run's life ends recovery. Method: 60 transfers are lost after several deaths, then
    a further site dies and is recovered as fast as the first."""
    stage = Stage(sites=4, patience_ms=PATIENCE_MS, pause_ms=1.0)
    world = stage.world
    world.run_for(0.05)
    for _ in range(4):
        world.transfer_fates += ["lost"] * 15
        kill_one(stage)
        world.add_site()
        stage.whole()
    assert len(events(stage, "copy_dropped")) + len(events(stage, "move_dropped")) >= 60
    world.transfer_fates.clear()
    killed_us = world.now_us
    kill_one(stage)
    world.add_site()
    stage.whole()
    assert world.now_us - killed_us < 1_000_000, "a new site has failed nobody"
    stage.finish()


def test_what_waits_after_failed_copies_says_so_and_is_copied_after_the_pause() -> None:
    """Goal: a person sees why redundancy is not there. Method: two sites are left, and every transfer between them is lost for a while."""
    stage = Stage(sites=3, patience_ms=PATIENCE_MS)
    stage.world.run_for(0.05)
    stage.world.transfer_fates += ["lost"] * 6
    kill_one(stage)
    stage.wait(lambda: bool(events(stage, "recovery_waits")), "the reason to be said")
    assert "have a pause" in events(stage, "recovery_waits")[0].text and stage.world.redundancy() == 1
    stage.whole()
    said = [event.text for event in events(stage, "recovery_waits")]
    assert len(said) == len(set(said)), "each reason once"
    stage.finish()
