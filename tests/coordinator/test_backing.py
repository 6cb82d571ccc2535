"""Which images there are, and what may begin again from them, by what the coordinator's part of that is told (P1 to P5)."""

from __future__ import annotations

from dataclasses import replace

import pytest

from evenflow.availability.mode import Mode
from evenflow.coordinator.backing import Backing
from evenflow.coordinator.events import CoordinatorAction, Tell
from evenflow.coordinator.recovery import Recovery
from evenflow.plan.placement import first_membership, first_plan
from evenflow.site.bases import BackUp, DropImages, Unit
from evenflow.site.facts import Lacking, NoRoom, Pasted
from evenflow.site.view import View
from evenflow.stream.ids import SiteId
from tests.site.cluster import TOTALS, totals

SITES = 4


class Backed:
    """A dataflow whose totals are passive, at several sites. units: by site, as each was told last."""

    def __init__(self) -> None:
        layout = totals(partitions=4, sites=SITES)
        plan = first_plan(layout, SITES, 2)
        modes = tuple(Mode.PASSIVE if segment.id == TOTALS else Mode.PAIRS for segment in layout.segments)
        alone = tuple(tuple(sites[:1] for sites in row) if segment == TOTALS else row for segment, row in enumerate(plan.placement))
        plan = replace(plan, placement=alone, settings=replace(plan.settings, modes=modes))
        self.view = View(layout, plan, first_membership(layout, plan, range(SITES)), -1)
        self.backing = Backing(layout, self.view, Recovery(layout, self.view, 0.0), located=False)
        self.units: dict[int, Unit] = {}
        self.dropped: list[tuple[int, int]] = []
        self.follow(self.backing.settle())

    def follow(self, actions: list[CoordinatorAction]) -> None:
        for action in actions:
            assert isinstance(action, Tell)
            match action.message:
                case BackUp((unit,)):
                    self.units[action.site] = unit
                case BackUp(()):
                    self.units.pop(action.site)
                case DropImages(units):
                    self.dropped += [(action.site, unit) for unit in units]

    def pasted(self, unit: Unit, epoch: int) -> None:
        self.follow(self.backing.pasted(unit.backup, Pasted(unit.number, epoch, 100)))

    def kill(self, site: int) -> None:
        sites = tuple(other for other in self.view.membership.sites if other != site)
        self.view.change(replace(self.view.membership, number=self.view.membership.number + 1, sites=sites))
        self.units.pop(site, None)
        self.follow(self.backing.settle())

    def begin_again(self) -> None:
        """What is lost lives where its images are."""
        before = self.view.plan
        placed, copies = self.backing.begun_again(self.view.membership.sites)
        rows = [list(row) for row in before.placement]
        for (segment, partition), site in placed.items():
            rows[segment][partition] = (site,)
        plan = replace(before, number=before.number + 1, effective=30, placement=tuple(map(tuple, rows)), copies=tuple(copies))
        self.view.adopt(plan, 29)
        self.backing.note_plan(before, plan)
        self.follow(self.backing.settle())


@pytest.fixture
def backed() -> Backed:
    return Backed()


def test_who_has_an_image_begins_again_from_it(backed: Backed) -> None:
    for unit in backed.units.values():
        backed.pasted(unit, 20)
    assert backed.backing.stable[TOTALS] == 20 and backed.backing.protected()
    backed.kill(0)
    assert backed.backing.can() and backed.backing.least == 20


@pytest.mark.parametrize("epoch", [10, 0])
def test_nobody_begins_again_before_what_is_kept(backed: Backed, epoch: int) -> None:
    """B2: frames up to 20 are gone, whatever an image says afterwards."""
    for unit in backed.units.values():
        backed.pasted(unit, 20)
    backed.pasted(backed.units[0], epoch)
    assert backed.backing.stable[TOTALS] == 20
    assert not backed.backing.protected()
    backed.kill(0)
    assert not backed.backing.can()


def test_an_image_of_what_is_no_unit_any_more_goes(backed: Backed) -> None:
    """P5: its backup has asked for room meanwhile, or its site has other partitions now; the capture was on its way."""
    unit = backed.units[0]
    backed.follow(backed.backing.full(unit.backup, NoRoom(unit.number, 100))[1])
    assert backed.units[0].number != unit.number
    backed.pasted(unit, 20)
    assert backed.dropped == [(unit.backup, unit.number)]
    assert backed.backing.stable[TOTALS] == 0


def test_while_a_partition_moves_what_its_two_sites_paste_leaves_an_image(backed: Backed) -> None:
    """P5: until the target has answered, both back it up. Method: the image of the source's unit is pasted once more when that of the
    target's is there; then the source goes. No image is counted on that its backup has been told to drop."""
    for unit in backed.units.values():
        backed.pasted(unit, 20)
    before, view = backed.units[0], backed.view
    (target,) = [site for site in range(SITES) if site not in (0, before.backup)][:1]
    rows = [list(row) for row in view.plan.placement]
    for partition in before.partitions:
        rows[TOTALS][partition] = (SiteId(0), SiteId(target))
    both = replace(view.plan, number=view.plan.number + 1, effective=30, placement=tuple(map(tuple, rows)))
    view.adopt(both, 29)
    backed.backing.note_plan(view.plans[-2], both)
    backed.follow(backed.backing.settle())
    after = backed.units[target]
    assert set(before.partitions) <= set(after.partitions)
    backed.pasted(after, 40)
    backed.pasted(before, 40)
    for partition in before.partitions:
        rows[TOTALS][partition] = (SiteId(target),)
    alone = replace(both, number=both.number + 1, effective=50, placement=tuple(map(tuple, rows)))
    view.adopt(alone, 49)
    backed.backing.note_plan(both, alone)
    backed.follow(backed.backing.settle())
    there = [held.unit.number for held in backed.backing.images]
    assert after.number in there and (after.backup, after.number) not in backed.dropped
    assert before.number not in there and (before.backup, before.number) in backed.dropped


def test_an_image_at_a_newcomer_is_of_no_use_before_the_plans_that_it_knows(backed: Backed) -> None:
    for unit in backed.units.values():
        backed.pasted(unit, 20)
    newcomer = backed.units[0].backup
    assert not backed.backing.spares(SiteId(0), {newcomer: 22}) and backed.backing.spares(SiteId(0), {newcomer: 21})
    assert not backed.backing.protected({newcomer: 22})


def test_an_image_at_the_site_itself_protects_nobody(backed: Backed) -> None:
    """B3: what began again from its image lives where that is, and until it has another one, one death takes both."""
    for unit in backed.units.values():
        backed.pasted(unit, 20)
    heir = backed.units[0].backup
    backed.kill(0)
    backed.begin_again()
    assert not backed.backing.protected() and not backed.backing.spares(heir)
    for site in backed.view.membership.sites:
        for unit in list(backed.units.values()):
            if unit.backup == site:
                backed.pasted(unit, 40)
    assert backed.backing.protected() and backed.backing.spares(heir)


@pytest.mark.parametrize(("consumers", "leaves"), [((0, 1), False), ((1, 2), True), ((2,), True)])
def test_who_waits_finds_in_an_image_what_is_there_for_it_and_nothing_else(
    backed: Backed, consumers: tuple[int, ...], leaves: bool
) -> None:
    """B3, P1: frames for partitions 0 and 1 of a consumer went along with the captures; any other one waits for what nobody has."""
    consumer = TOTALS + 1
    for unit in backed.units.values():
        backed.follow(backed.backing.pasted(unit.backup, Pasted(unit.number, 20, 100, ((consumer, (0, 1)),))))
    backed.kill(0)
    backed.begin_again()
    (copy,) = [copy for copy in backed.view.plan.copies if copy.revives]
    assert backed.backing.leaves(Lacking(copy.number, consumer, consumers, 10)) is leaves
