"""Sites come and go while a policy balances: nobody misses who leaves, newcomers get their share, and old numbers do no harm."""

from __future__ import annotations

from typing import Any

import pytest

from evenflow.coordinator.events import Collected, Pin
from evenflow.errors import OperationRefused
from evenflow.policy.proposal import Parameters
from evenflow.swarm.balance_checkers import BalanceCheckers
from tests.sim.test_moving import kinds
from tests.sim.test_scenarios import Stage

EAGER = Parameters(th_imb=1.02, th_util=1.0, delta_min_us=5_000, moves_max=128, delta_least_us=1_000, idle=0.0)


def staged(**given: Any) -> Stage:
    """A run that is under way, with the checkers of balancing too."""
    stage = Stage(**({"sites": 4, "replicas": 2} | given))
    BalanceCheckers(stage.world)
    stage.world.run_for(0.02)
    return stage


def hosts_of(stage: Stage) -> set[int]:
    return set(stage.machine.view.active())


@pytest.mark.parametrize("replicas", [1, 2])
def test_sites_leave_together_and_nobody_misses_them(replicas: int) -> None:
    stage = staged(replicas=replicas)
    removal = stage.world.remove_sites(0, 3)
    stage.wait(lambda: not removal.left, "two empty sites")
    assert stage.machine.sites == (1, 2) and hosts_of(stage) == {1, 2}
    assert kinds(stage).count("site_left") == 2 and "take_over" not in kinds(stage)
    assert stage.world.redundancy() == replicas
    stage.finish()
    assert not stage.world.sites[0].alive and not stage.world.sites[3].alive


def test_a_site_that_dies_while_it_is_emptied_is_lost_as_any_other() -> None:
    stage = staged()
    removal = stage.world.remove_sites(1)
    stage.wait(lambda: bool(stage.machine.membership.joining), "its first move")
    stage.world.kill(1)
    stage.wait(lambda: not removal.left, "the verdict")
    assert "site_left" not in kinds(stage) and kinds(stage).count("site_lost") == 1
    stage.world.add_site()
    stage.whole()
    stage.finish()


def test_a_removal_that_is_called_off_leaves_the_site_where_it_is() -> None:
    stage = staged()
    removal = stage.world.remove_sites(2)
    removal.call_off()
    stage.world.run_for(0.05)
    assert 2 in stage.machine.sites and not stage.machine.moving.leaving and "site_left" not in kinds(stage)
    stage.finish()


@pytest.mark.parametrize(("sites", "why"), [((7,), "there is no site 7"), ((0, 1, 2), "1 would be left, and 2 replicas")])
def test_too_many_cannot_leave(sites: tuple[int, ...], why: str) -> None:
    stage = staged()
    with pytest.raises(OperationRefused, match=why):
        stage.world.remove_sites(*sites)
    stage.finish()


def test_who_has_something_pinned_cannot_leave() -> None:
    stage = staged()
    stage.world.driver.coordinate(Pin(frozenset((1, p) for p in range(16))))
    with pytest.raises(OperationRefused, match="pinned there"):
        stage.world.remove_sites(0)
    stage.finish()


def test_a_site_that_is_let_go_before_it_has_joined_does_not_join() -> None:
    """Goal: nobody waits for who has gone. Method: it goes while its word that it is ready is on its way."""
    stage = staged()
    newcomer = stage.world.add_site()
    stage.world.remove_sites(newcomer)
    stage.world.run_for(0.5)
    assert newcomer not in stage.machine.sites and "site_joined" not in kinds(stage)
    stage.finish()


def test_rounds_give_a_newcomer_its_share() -> None:
    stage = staged(policy="evenflow", parameters=EAGER)
    newcomer = stage.world.add_site()
    stage.wait(lambda: newcomer in hosts_of(stage), "something at the newcomer")
    assert "round" in kinds(stage)
    stage.finish()


@pytest.mark.parametrize("leaves", [True, False])
def test_numbers_of_a_site_that_has_gone_meanwhile_do_no_harm(leaves: bool) -> None:
    """Goal: stale statistics propose nothing that cannot be. Method: a site leaves or dies while what it has reported is on its way."""
    stage = staged(policy="evenflow", parameters=EAGER, report_us=(60_000, 60_000))
    told: list[Collected] = []
    stage.world.observers[0].coordinated = lambda driver, event, actions: told.append(event)  # type: ignore[method-assign]
    if leaves:
        removal = stage.world.remove_sites(3)
        stage.wait(lambda: not removal.left, "an empty site")
    else:
        stage.world.kill(3)
        stage.wait(lambda: 3 not in stage.machine.sites, "the verdict")
    after = len(told)
    stage.wait(lambda: sum(isinstance(event, Collected) for event in told[after:]) >= 2, "two rounds")
    stale = [event for event in told[after:] if isinstance(event, Collected) and 3 in {window.site for window in event.statistics.sites}]
    assert stale, "what the site had reported came after it had gone"
    stage.world.add_site()
    stage.whole()
    stage.finish()


def test_who_comes_while_the_run_is_still_being_built_joins_it() -> None:
    """Goal: a site that is ready before the first ones are is not forgotten. Method: these take 50 ms; later one dies, and it is needed."""
    stage = Stage(sites=2, replicas=2, start_us=(50_000, 50_000))
    newest = stage.world.add_site()
    stage.world.run_for(0.04)
    assert not stage.machine.started and stage.world.fired("V1", "note_ready") == 1
    stage.wait(lambda: newest in stage.machine.sites, "it to join")
    stage.world.kill(0)
    stage.wait(lambda: stage.world.redundancy() == 2, "it to have what was lost")
    stage.finish()
