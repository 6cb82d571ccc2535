"""Passive standby without a store: what a site has is in images at others, and begins again from there, in the same run (P1 to P5, B1)."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from evenflow.coordinator.events import Kind
from evenflow.errors import EvenflowError, PartitionsLost
from evenflow.query.planner import layout
from evenflow.site.backing import PATIENCE
from evenflow.site.options import FlowOptions
from evenflow.swarm.cases import Case
from evenflow.swarm.checkers import Checkers
from evenflow.swarm.draw import EVERY_CASE
from evenflow.swarm.image_mutations import IMAGES as PLANTED
from evenflow.swarm.mutations import Mutation, planted
from evenflow.world.sim.model import DetectionModel, LinkModel
from evenflow.world.sim.world import SimWorld
from tests.drawn import but, one_in

QUICK = DetectionModel(link_us=(100, 500), removed_us=(500, 1_000))


class Stage:
    """A dataflow that is passive, with every checker, whose sources hold a third of their rows back until it finishes."""

    def __init__(
        self, case: str, *, sites: int = 4, rows: int = 600, seed: int = 1, capture_ms: float = 10.0, options: Any = None, **given: Any
    ) -> None:
        self.case: Case = EVERY_CASE[case](Random(seed), rows)
        chosen = FlowOptions(linger_ms=0.5, epoch_rows=20, heartbeat_ms=10.0, capture_max_ms=capture_ms, **(options or {}))
        self.planned = layout(self.case.flow.network, sites=sites, partitions=16)
        given = {"read_rows": 10, "read_every_us": (500, 2_000), "availability": "passive", "replicas": 2, **given}
        self.world = SimWorld(self.planned, seed=seed, sites=sites, options=chosen, **given)
        Checkers(self.world)
        self.world.sources_may_end = False
        for segment in self.planned.segments:
            if segment.kind == "ingress":
                for partition, count in enumerate(self.case.counts[segment.source or ""]):
                    self.world.quotas[segment.id, partition] = count * 2 // 3

    def count(self, kind: Kind) -> int:
        return sum(event.kind is kind for _, event in self.world.happened)

    @property
    def backing(self) -> Any:
        return self.world.coordinator.backing

    def until_protected(self) -> None:
        self.world.run_until(lambda: self.whole and self.backing.protected(), 10.0, "images of everything")

    def kill(self, site: int) -> None:
        """And wait until the coordinator knows."""
        self.world.kill(site)
        self.world.run_until(lambda: site not in self.world.coordinator.sites, 10.0, "its death is known")

    @property
    def owner(self) -> int:
        """A site that has most alone."""
        found: dict[int, int] = {}
        for (_, site), held in self.backing.units.items():
            found[site] = found.get(site, 0) + len(held.unit.partitions)
        return max(found, key=lambda site: (found[site], site))

    @property
    def whole(self) -> bool:
        run = self.world.coordinator
        return not run.recovery.lost() and not run.under_way() and not run.recovery.missing

    @property
    def flows(self) -> bool:
        """Sources have not given yet all that they may."""
        taken = max(sum(site.part.counters.taken.values()) for site in self.world.sites)
        return 0 < taken < sum(self.world.quotas.values()) // 2

    def until_whole(self) -> None:
        self.world.run_until(lambda: self.whole, 10.0, "everything lives again")

    def finish(self) -> None:
        self.world.quotas.clear()
        self.world.sources_may_end = True
        self.world.run_until_quiet(20.0)
        assert self.case.judge({sink: self.world.output(sink) for sink in self.world.released}) is None


@pytest.mark.parametrize("case", one_in(3, ["running", "windows", "joins", "two_stages", "boxes", "late"]))
def test_what_only_a_dead_site_had_begins_again_from_its_images(case: str) -> None:
    stage = Stage(case)
    stage.until_protected()
    stage.world.run_for(0.02)
    stage.kill(stage.owner)
    stage.until_whole()
    begun = [event.text for _, event in stage.world.happened if event.kind is Kind.COPY_BEGUN and "begin again" in event.text]
    assert begun and any(not text.endswith("epoch 0") for text in begun), begun
    stage.finish()


def begun_again(stage: Stage) -> list[str]:
    return [event.text for _, event in stage.world.happened if event.kind is Kind.COPY_BEGUN and "begin again" in event.text]


def test_a_death_before_anything_is_pasted_begins_from_nothing() -> None:
    """All is kept since the first epoch."""
    stage = Stage("two_stages")
    stage.world.transfer_fates += ["lost"] * 99
    stage.world.run_for(0.02)
    stage.kill(stage.owner)
    assert stage.world.coordinator.protected() == 0
    stage.world.transfer_fates.clear()
    stage.until_whole()
    assert any(text.endswith("epoch 0") for text in begun_again(stage))
    stage.finish()


def test_frames_are_kept_until_their_effect_is_in_an_image_and_no_longer() -> None:
    """B2, P3: by segment, the least image; what follows it is there, what goes before is not."""
    stage = Stage("running")
    stage.until_protected()
    stage.world.run_for(0.1)
    stable = stage.backing.stable
    held = [kept for site in stage.world.sites for cohort in site.part.cohorts.values() for kept in cohort.retained.values()]
    passive = [kept for kept in held if kept.stable is not None]
    assert passive and max(stable) > 10
    for kept in passive:
        consumer = stage.planned.arcs[kept.stream].consumer
        assert kept.stable is not None and 0 < kept.stable <= stable[consumer]
        assert all(each.epoch > kept.released() for each in kept.since(0))


def test_nobody_waits_for_who_begins_again_elsewhere() -> None:
    """Goal: what is in an image is no reason to wait for a site that may come back; it is one while there is no image, and while others
    may be dead too. Method: the one that has most alone loses its connection for good, and its process lives."""
    stage = Stage("running")
    world, owner = stage.world, stage.owner
    assert world.coordinator.vital(owner)
    stage.until_protected()
    other = next(site for site in world.coordinator.sites if site != owner)
    assert not world.coordinator.vital(owner) and world.coordinator.vital(owner, {other})
    grace_s = world.detection.patience.grace_us / 1e6
    world.drop_control(owner, 10.0)
    for peer in world.network.peers(owner):
        world.drop_link(owner, peer, 10_000_000)
    world.run_for(0.8 * grace_s)
    assert owner not in world.coordinator.sites
    stage.until_whole()
    stage.finish()


@pytest.mark.conformance
def test_a_second_death_when_everything_has_an_image_again() -> None:
    stage = Stage("two_stages", sites=5, rows=1200)
    for _ in range(2):
        stage.until_protected()
        stage.kill(stage.owner)
        assert stage.world.coordinator.protected() == 0
        stage.until_whole()
    assert len({text.split(" at site ")[1].split()[0] for text in begun_again(stage)}) > 1
    stage.finish()


def test_a_backup_that_dies_is_replaced_and_what_it_backed_up_is_sent_whole() -> None:
    """P5 and dynamic reassignment: never the site itself, and another one than the dead."""
    stage = Stage("running", sites=4)
    stage.until_protected()
    before = {key: held.unit for key, held in stage.backing.units.items()}
    victim = stage.owner
    stage.kill(victim)
    stage.until_whole()
    stage.until_protected()
    for (segment, site), held in stage.backing.units.items():
        assert held.unit.backup not in (site, victim)
        if before.get((segment, site)) is not None and before[segment, site].backup == victim:
            assert held.unit.number != before[segment, site].number
    stage.finish()


@pytest.mark.parametrize("seed", one_in(2, range(4)))
def test_a_site_and_its_backup_at_once_are_declared_lost(seed: int) -> None:
    """B3: never a wrong result; either nothing was stable yet, or it is said."""
    stage = Stage("two_stages", sites=5, seed=seed)
    stage.until_protected()
    (_, site), held = next(iter(stage.backing.units.items()))
    stage.world.kill(site)
    stage.world.kill(held.unit.backup)
    with pytest.raises(PartitionsLost):
        stage.finish()


@pytest.mark.parametrize("fate", one_in(2, ["corrupt", "lost"]))
def test_a_capture_that_does_not_come_as_it_was_sent_costs_a_whole_one(fate: Any) -> None:
    stage = Stage("running")
    stage.world.transfer_fates += [fate] * 6
    stage.until_protected()
    stage.kill(stage.owner)
    stage.until_whole()
    stage.finish()
    assert not stage.world.transfer_fates


def test_captures_that_take_longer_than_they_are_waited_for_are_not_sent_whole_for_ever() -> None:
    """Goal: who has been slow to paste comes to what has changed again. Method: to pack and to paste take longer than a capture is waited
    for, while rows go on coming."""
    stage = Stage("running", rows=1_500, read_every_us=(6_000, 9_000), link=LinkModel(pack_us=(60_000, 60_000)))
    sites = stage.world.sites
    stage.world.run_until(lambda: stage.backing.protected(), 1.0, "images of everything")
    stage.world.run_for(0.1)

    def units() -> list[Any]:
        return [backed for site in sites for backed in site.part.backing.units.values()]

    assert any(backed.patience > PATIENCE for backed in units()), "none was given up"
    stage.world.run_until(lambda: all(backed.pasted > 0 for backed in units()), 0.7, "captures of what has changed")
    assert stage.flows and {backed.patience for backed in units()} == {PATIENCE}


def test_how_long_a_capture_is_waited_for_has_a_bound() -> None:
    """Goal: no answer is waited for for ever. Method: as if each capture had been sent long ago, and nothing had come back."""
    stage = Stage("running", capture_ms=10.0)
    stage.until_protected()
    backing = next(site.part.backing for site in stage.world.sites if site.part.backing.units)
    backed = next(iter(backing.units.values()))
    for _ in range(40):
        backed.captured, backed.ship, backed.since_us = 1, None, -(2**62)
        backing.look()
    assert backed.patience * 10.0 == 3_600_000.0


def test_a_backup_without_memory_says_so_and_the_run_goes_on() -> None:
    stage = Stage("running", options={"image_memory_bytes": 1})
    stage.world.run_until(lambda: stage.count(Kind.NOT_BACKED_UP) > 0, 10.0, "somebody says so")
    assert stage.world.coordinator.protected() == 0
    text = next(event.text for _, event in stage.world.happened if event.kind is Kind.NOT_BACKED_UP)
    assert "image_memory_bytes" in text and "checkpoint location" in text
    stage.finish()


@pytest.mark.conformance
def test_a_unit_that_changes_is_another_one_and_its_old_image_stays() -> None:
    """P5. Method: a site is emptied, and another one dies as soon as what has moved to it counts, when nothing new is pasted."""
    stage = Stage("two_stages", sites=4, rows=1200)
    stage.until_protected()
    stage.world.remove_sites(stage.owner)
    stage.world.run_until(lambda: len(stage.world.coordinator.sites) == 3, 10.0, "it is gone")
    stage.until_protected()
    stage.kill(stage.owner)
    stage.until_whole()
    stage.finish()


def apart(stage: Stage) -> tuple[int, int, int]:
    """(a site where a producer's image is newer than its consumer's, the two segments): who begins again wants what is in it. Method: the
    consumer is captured no more."""
    units = stage.backing.units
    arc, site = next(
        (arc, site) for arc in stage.planned.arcs for (segment, site) in units if segment == arc.producer and (arc.consumer, site) in units
    )
    fall_behind(stage, (arc.consumer, site), (arc.producer, site))
    return site, arc.producer, arc.consumer


def fall_behind(stage: Stage, consumer: tuple[int, int], producer: tuple[int, int]) -> None:
    """Until an image of the producer's unit is newer than that of the consumer's, which is captured no more. Both: (segment, site)."""
    units, (segment, site) = stage.backing.units, consumer
    unit = stage.world.sites[site].part.backing.units[segment]
    unit.since_us = 10**15
    stage.world.run_until(lambda: not unit.captured and not unit.due, 10.0, "nothing of it is on its way")
    unit.since_us = 10**15
    base = units[consumer].base
    stage.world.run_until(lambda: units[producer].base > base + 3, 10.0, "its producer's image is ahead")
    assert stage.flows, "what is lost has rows"


def test_consumers_at_ones_own_site_find_their_frames_in_the_image() -> None:
    """P1. Method: a site dies when its producer's image is newer than its consumer's."""
    stage = Stage("running", rows=3000, read_every_us=(2_000, 4_000))
    stage.until_protected()
    site, *both = apart(stage)
    stage.kill(site)
    stage.until_whole()
    names = [stage.planned.segments[segment].name for segment in both]
    first, then = (int(text.rsplit(" ", 1)[1]) for name in names for text in begun_again(stage) if f"of {name} begin" in text)
    assert first > then, "the consumer begins again before its producer"
    stage.finish()


def ends_of_a_stream(stage: Stage) -> tuple[int, int]:
    """(a site that makes something, another one that takes it)."""
    producers = {arc.producer for arc in stage.planned.arcs}
    site = next(held.site for held in stage.backing.units.values() if held.unit.segment in producers)
    return site, next(held.site for held in stage.backing.units.values() if held.site != site and held.unit.segment not in producers)


def bereaved() -> Stage:
    """A consumer hangs while a producer elsewhere is captured, and that dies; then the consumer goes on."""
    stage = Stage("two_stages", rows=1200, sites=5, capture_ms=5.0)
    stage.until_protected()
    site, other = ends_of_a_stream(stage)
    stage.world.hang(other)
    stage.world.run_for(0.03)
    stage.kill(site)
    stage.world.run_for(0.01)
    stage.world.go_on(other)
    return stage


def test_a_capture_waits_for_consumers_elsewhere() -> None:
    """HW 4.5: who hangs has not received what was captured."""
    stage = bereaved()
    stage.until_whole()
    stage.finish()


def behind_its_producer(stage: Stage) -> tuple[int, int, int]:
    """(a consumer's segment, its site, the site of a producer whose image is newer than the consumer's). Method: the consumer is captured
    no more."""
    units = stage.backing.units
    ends = [(arc, to, of) for arc in stage.planned.arcs for s, to in units if s == arc.consumer for p, of in units if p == arc.producer]
    arc, to, of = next((arc, to, of) for arc, to, of in ends if to != of)
    fall_behind(stage, (arc.consumer, to), (arc.producer, of))
    return arc.consumer, to, of


def until_begun(stage: Stage, site: int) -> None:
    """A site dies, and what it had is being begun again."""
    stage.world.kill(site)
    stage.world.run_until(lambda: any(copy.revives for copy in stage.world.coordinator.membership.joining), 10.0, "it begins again")


def test_what_has_begun_again_is_not_taken_to_hold_what_it_held_before() -> None:
    """P1, B1. Method: a consumer begins again where others of its partitions are, behind what these hold; who feeds it hears that."""
    stage = Stage("two_stages", rows=1500, sites=5, read_every_us=(1_000, 2_000))
    stage.until_protected()
    consumer, site, feeder = behind_its_producer(stage)
    until_begun(stage, site)
    copies = [copy for copy in stage.world.coordinator.membership.joining if copy.segment == consumer]
    streams = [arc.id for arc in stage.planned.arcs if arc.consumer == consumer]
    world = stage.world

    def claims() -> list[tuple[int, int, int]]:
        """(said to be received, received, by whom) where more is said than is true, of sites that have asked since they began again."""
        found = []
        for copy in copies:
            for stream in streams:
                true = world.sites[copy.target].part.feeding.received(stream)
                for other in world.sites:
                    for cohort in other.part.cohorts.values() if other.alive else ():
                        kept = cohort.retained.get(stream)
                        asked = (copy.target, copy.number) in other.part.feeding._asked[stream]
                        if kept is not None and asked and kept.acked.get(copy.target, 0) > true:
                            found.append((kept.acked[copy.target], true, other.index))
        return found

    def asked() -> bool:
        return any(
            key[1] == copy.number for copy in copies for stream in streams for key in world.sites[feeder].part.feeding._asked[stream]
        )

    world.run_until(asked, 10.0, "it has asked")
    assert not claims()
    stage.until_whole()
    stage.finish()


def test_what_waits_for_what_nobody_has_ends_the_run_and_not_in_silence() -> None:
    """B3: nobody can make the epochs between a consumer that lives and who begins again ahead of it. Method: captures are sent at once, so
    that a producer's image is ahead of a consumer that hangs; in earnest a consumer that has just begun again is behind so."""
    bug = next(mutation for mutation in PLANTED if mutation.name == "sent before received")
    with planted(bug):
        stage = bereaved()
        stage.world.run_until(lambda: stage.world.ended, 10.0, "the run ends")
    assert isinstance(stage.world.error, PartitionsLost), stage.world.error
    dropped = [event.text for _, event in stage.world.happened if event.kind is Kind.COPY_DROPPED]
    assert any("and nobody has what came then" in text for text in dropped), dropped


def test_what_is_pending_is_pasted_before_it_is_said_how_far_an_image_is() -> None:
    """P4. Method: a site dies when a capture of it has come and is being pasted."""
    stage = Stage("running", rows=1200, read_every_us=(4_000, 8_000), link=LinkModel(pack_us=(20_000, 30_000)), detection=QUICK)
    stage.until_protected()
    busy = lambda: [unit for site in stage.world.sites for unit, kept in site.part.imaging.images.items() if kept.busy]  # noqa: E731
    stage.world.run_until(lambda: bool(busy()), 10.0, "something is pasted")
    site = next(held.site for held in stage.backing.units.values() if held.unit.number == busy()[0])
    stage.world.kill(site)
    stage.world.run_until(lambda: site not in stage.world.coordinator.sites and stage.whole, 10.0, "everything lives again")
    stage.finish()


@pytest.mark.parametrize("mode", one_in(2, ["passive", "amnesia"]))
def test_a_site_whose_disk_has_lost_what_it_has_alone_ends_and_the_run_goes_on(mode: str) -> None:
    """M1, B4. Method: all state goes to disks, and one can be read no more when there are images of everything."""
    stage = Stage("running", options={"state_memory_bytes": 1}, availability=mode)
    if mode == "passive":
        stage.until_protected()
    owner = stage.owner if mode == "passive" else stage.world.sites[0].index
    stage.world.run_until(lambda: stage.world.sites[owner].part.spilling.spilled_bytes > 0, 10.0, "state on its disk")
    stage.world.sites[owner].disk.breaks()
    stage.world.run_until(lambda: not stage.world.sites[owner].alive, 10.0, "the site to end")
    stage.world.run_until(lambda: owner not in stage.world.coordinator.sites and stage.whole, 10.0, "everything lives again")
    if mode == "passive":
        stage.finish()
    else:
        assert stage.world.error is None and stage.count(Kind.BEGUN_ANEW)


LONG = {"own-site frames missing", "sent before received", "pending unpasted"}
"""A run that waits for what does not come waits long."""
FOUND_BY = {
    "own-site frames missing": test_consumers_at_ones_own_site_find_their_frames_in_the_image,
    "sent before received": test_a_capture_waits_for_consumers_elsewhere,
    "pending unpasted": test_what_is_pending_is_pasted_before_it_is_said_how_far_an_image_is,
    "old image dropped": test_a_unit_that_changes_is_another_one_and_its_old_image_stays,
    "stable of the newest image": test_what_is_pending_is_pasted_before_it_is_said_how_far_an_image_is,
    "stable at capture": test_consumers_at_ones_own_site_find_their_frames_in_the_image,
    "an image begins again an epoch late": test_consumers_at_ones_own_site_find_their_frames_in_the_image,
}


@pytest.mark.conformance
@pytest.mark.parametrize("mutation", but(LONG, PLANTED), ids=lambda mutation: mutation.name)
def test_planted_bugs_show(mutation: Mutation) -> None:
    with planted(mutation), pytest.raises((AssertionError, EvenflowError, TimeoutError, KeyError)):
        FOUND_BY[mutation.name]()
