"""Who comes, who leaves and who is dead: what follows, and in which order. No clock, no socket; the runs are real machines."""

from __future__ import annotations

import pytest

from evenflow.coordinator.detector import (
    IDLE,
    REPLICATED,
    ControlBack,
    ControlLost,
    ExecutorRemoved,
    PatienceChanged,
    SiteEnded,
    Spoke,
)
from evenflow.coordinator.events import DrainSite, EndRun, SiteLost, SiteReady, SiteSaid, Tell
from evenflow.coordinator.fleet import (
    BeginPart,
    Dismiss,
    Drain,
    Fleet,
    FleetAction,
    FleetEvent,
    Hello,
    LetAllGo,
    LetGo,
    Linked,
    Look,
    Newcomer,
    Refuse,
    Resume,
    RunBegun,
    RunEnded,
    SendRoster,
    SetPace,
    SiteCame,
    SiteGone,
    Stay,
    TakeIn,
    TellRun,
)
from evenflow.coordinator.machine import RunMachine
from evenflow.errors import DiskError, OperationRefused
from evenflow.plan.placement import first_membership, first_plan
from evenflow.site.bases import GiveUp
from evenflow.site.facts import DiskLost
from evenflow.stream.ids import SiteId
from tests.coordinator.test_machine import LAYOUT

RUN = 7


class Stage:
    """A fleet whose world gives runs their events, and nothing else."""

    def __init__(self, sites: int, wanted: int | None = None) -> None:
        self.fleet = Fleet(wanted or sites, REPLICATED, IDLE)
        self.machines: dict[int, RunMachine] = {}
        for site in range(sites):
            self.hello(site)
        for site in range(sites):
            self.do(Linked(site, sites))

    def do(self, event: FleetEvent) -> list[FleetAction]:
        actions = []
        for action in self.fleet.handle(event):
            actions.append(action)
            if isinstance(action, TellRun):
                self.machines[action.run].handle(action.event)
        return actions

    def hello(self, name: int | str, job: int | None = None, site: int | None = None) -> list[FleetAction]:
        """From an executor of that name, for a job of that number."""
        number = job if job is not None else int(name)
        return self.do(Hello(Newcomer(number, f"x{name}", f"process {name}", f"life {name}", f"on x{name}"), 0, site))

    def run(self, sites: int, number: int = RUN) -> tuple[RunMachine, list[FleetAction]]:
        plan = first_plan(LAYOUT, sites, 2)
        machine = self.machines[number] = RunMachine(LAYOUT, plan, first_membership(LAYOUT, plan, range(sites)), 500.0)
        return machine, self.do(RunBegun(number, f"run-{number}", machine, 0))

    def running(self, sites: int) -> RunMachine:
        machine, _ = self.run(sites)
        for site in range(sites):
            machine.handle(SiteReady(site))
        assert machine.running
        return machine


def test_who_comes_gets_an_index_that_nobody_had() -> None:
    stage = Stage(0, wanted=3)
    assert stage.hello(1) == [TakeIn(0), SendRoster(1, (0,))]
    assert stage.hello(2) == [TakeIn(1), SendRoster(2, (0, 1))]
    stage.do(SiteEnded(1, 0, "it failed"))
    assert stage.hello(3) == [TakeIn(2), SendRoster(4, (0, 2))]


def test_a_site_comes_when_it_has_reached_the_peers_of_a_roster_with_it() -> None:
    stage = Stage(0, wanted=2)
    stage.hello(0)
    stage.hello(1)
    assert stage.do(Linked(1, 1)) == [], "it has reached whom it knew before it was named itself"
    assert not stage.fleet.enough(1)
    assert stage.do(Linked(1, 2)) == [SiteCame(1)] and stage.do(Linked(1, 2)) == []
    assert stage.fleet.enough(1) and not stage.fleet.enough(2)
    assert stage.do(Linked(9, 2)) == [], "it is dead meanwhile"


@pytest.mark.parametrize(
    ("name", "job", "why"),
    [
        (1, 9, "site 1 is on the same executor"),
        (4, 4, "there are 2 sites already"),
        (5, 2, "its job has been given up"),
        (3, 9, "its executor is given back"),
    ],
)
def test_who_cannot_stay_is_told_why(name: int, job: int, why: str) -> None:
    stage = Stage(4)
    stage.do(Drain((3,)))
    stage.do(SiteEnded(2, 0, "it failed"))
    stage.do(Look())
    stage.fleet.wanted = 2 if name == 4 else 4
    assert stage.hello(name, job) == [Refuse(why, again=True)]


def test_a_known_site_goes_on_and_a_dead_one_does_not() -> None:
    stage = Stage(2)
    stage.do(ControlLost(1, 10))
    assert stage.hello(1, site=1) == [Resume(1)]
    assert stage.fleet.detector.suspects == []
    stage.do(SiteEnded(1, 20, "it failed"))
    assert stage.hello(1, site=1) == [Refuse("it has been declared dead")]
    assert stage.hello("0", job=0, site=0) == [Resume(0)]
    other = Hello(Newcomer(0, "x0", "process 0", "another life"), 30, 0)
    assert stage.do(other) == [Refuse("it has been declared dead")]


def test_a_death_is_told_to_the_dead_then_to_its_peers_then_to_the_runs() -> None:
    stage = Stage(4)
    machine = stage.running(4)
    stage.do(ControlLost(2, 10, "reset"))
    why = "reset; Spark has removed its executor"
    assert stage.do(ExecutorRemoved(2, 20)) == [
        LetGo(2, f"it has been declared dead: {why}"),
        SendRoster(5, (0, 1, 3)),
        TellRun(RUN, SiteLost(2, f"on x2: {why}", planned=False)),
        SiteGone(2, why),
    ]
    assert 2 not in machine.sites
    assert stage.do(Spoke(2, 30)) == [], "what the dead say does not count (V3)"
    assert stage.fleet.unwanted == {2} and not stage.fleet.released and stage.fleet.wanted == 4


def test_a_run_begins_where_its_sites_are_and_where_others_have_come() -> None:
    stage = Stage(5)
    stage.hello(5)
    machine, actions = stage.run(4)
    assert actions == [SetPace(REPLICATED), *(BeginPart(RUN, site) for site in (0, 1, 2, 3, 4))]
    stage.fleet.wanted = 6
    stage.hello(5)
    assert stage.do(Linked(5, 99)) == [BeginPart(RUN, 5), SiteCame(5)]
    assert not machine.running


def test_a_run_whose_site_has_gone_before_it_begins_hears_of_it() -> None:
    stage = Stage(4)
    stage.do(SiteEnded(3, 0, "it failed"))
    machine, actions = stage.run(4)
    assert actions[1] == TellRun(RUN, SiteLost(3, "it went before the run began"))
    assert all(isinstance(action, BeginPart) and action.site != 3 for action in actions[2:])
    assert (BeginPart(RUN, 0) in actions) is not machine.over


def test_life_signs_are_quick_while_a_run_is_active_and_nobody_is_blamed() -> None:
    stage = Stage(3)
    assert stage.fleet.patience is IDLE
    _, actions = stage.run(2)
    assert SetPace(REPLICATED) in actions and stage.fleet.patience is REPLICATED
    _, actions = stage.run(2, number=8)
    assert not [action for action in actions if isinstance(action, SetPace)]
    assert stage.do(RunEnded(RUN, 0)) == []
    assert stage.do(RunEnded(8, 0)) == [SetPace(IDLE)]
    assert stage.do(PatienceChanged(REPLICATED, 0)) == []


def test_a_site_that_leaves_is_emptied_and_goes_as_one_that_is_dead() -> None:
    stage = Stage(5)
    machine = stage.running(4)
    assert stage.do(Drain((1, 4))) == []
    actions = stage.do(Look())
    assert actions[:1] == [TellRun(RUN, DrainSite(1))]
    assert [action for action in actions[1:] if not isinstance(action, SiteGone)] == [
        LetGo(4, "it was drained"),
        SendRoster(6, (0, 1, 2, 3)),
        TellRun(RUN, SiteLost(4, "on x4: it was drained", planned=True)),
    ], "nothing was there"
    assert 1 in machine.moving.leaving
    assert stage.do(Look()) == [], "it is told once, and still hosts something"
    assert (stage.fleet.leaving, stage.fleet.wanted, stage.fleet.released, stage.fleet.shunned) == ([1], 4, {4}, {"x4"})
    assert stage.fleet.hosted(1) > 0


def test_a_run_that_begins_meanwhile_is_told_at_the_next_look() -> None:
    stage = Stage(5)
    stage.do(Drain((1,)))
    machine, actions = stage.run(4)
    assert BeginPart(RUN, 1) in actions, "its plan was made before"
    assert stage.do(Look()) == [], "it would end the run before it has begun"
    for site in range(4):
        machine.handle(SiteReady(site))
    assert stage.do(Look()) == [TellRun(RUN, DrainSite(1))]


def test_a_site_that_dies_while_it_is_emptied_is_not_replaced() -> None:
    stage = Stage(5)
    stage.running(4)
    stage.do(Drain((1,)))
    stage.do(SiteEnded(1, 0, "it failed"))
    assert (stage.fleet.leaving, stage.fleet.wanted, stage.fleet.released, stage.fleet.unwanted) == ([], 4, set(), {1})
    assert stage.do(Look()) == []


def test_a_site_that_stays_after_all_is_told_to_those_who_do_not_know_it() -> None:
    stage = Stage(5)
    machine = stage.running(4)
    stage.do(Drain((1, 4)))
    stage.run(2, number=8)
    assert BeginPart(8, 4) not in stage.run(2, number=9)[1]
    machine.handle(DrainSite(1))
    assert stage.do(Stay((1, 4))) == [
        TellRun(RUN, DrainSite(1, stays=True)),
        BeginPart(RUN, 4),
        *(action for run in (8, 9) for action in (TellRun(run, DrainSite(1, stays=True)), BeginPart(run, 4))),
    ]
    assert stage.fleet.leaving == [] and not machine.moving.leaving


def test_what_cannot_leave_is_refused_and_named() -> None:
    stage = Stage(3)
    stage.running(3)
    for sites, why in (((7,), "there is no site 7; there are 0, 1, 2"), ((0, 1), r"1 would be left, and 2 replicas .*add_sites\(1\)")):
        with pytest.raises(OperationRefused, match=why):
            stage.fleet.check_drain(sites, 2)
    stage.fleet.check_drain((0,), 2)


def test_at_the_end_all_go_and_nobody_is_told_of_the_others() -> None:
    stage = Stage(2)
    assert stage.do(Dismiss("the engine has stopped")) == [LetAllGo("the engine has stopped")]
    assert stage.hello(9) == [Refuse("the engine has stopped")] == stage.hello(1, site=1)
    assert stage.do(ControlLost(1, 10, "reset")) == [LetGo(1, "it has been declared dead: reset")]
    assert stage.do(ControlLost(1, 10, "reset")) == [] == stage.do(ControlBack(1, 20))


def test_a_site_whose_disk_has_lost_state_ends_unless_another_run_needs_it() -> None:
    """M1. Method: two runs at the same sites; what one says of its disk is judged with the other in sight."""
    stage = Stage(3)
    mine, other = stage.running(3), stage.run(3, RUN + 1)[0]
    for site in range(3):
        other.handle(SiteReady(SiteId(site)))
    said = SiteSaid(SiteId(1), DiskLost("totals", 5, "the disk cannot be read"))
    (told,) = mine.handle(said)
    assert isinstance(told, Tell) and told.site == 1 and isinstance(told.message, GiveUp)
    other.handle(SiteLost(SiteId(2), "another executor's death, of which this run alone has heard"))
    assert other.running and other.vital(SiteId(1)) and not mine.vital(SiteId(1))
    assert [type(action.error) for action in mine.handle(said) if isinstance(action, EndRun)] == [DiskError]
    assert other.running, "it goes on with the site"
