"""The journal at a site: what leaders tell, what everybody keeps until it is durable, and what waits for that (J2, J3, J5)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from evenflow.availability.entries import Cut
from evenflow.exchange.section import Share
from evenflow.plan.layout import Layout
from evenflow.sinks import discard, spark
from evenflow.site.events import Action, Durable, RowsArrived, SetTimer, SinkCommitted, StateArrived, TimerFired
from evenflow.site.facts import Logged, PartFinished
from evenflow.site.ground import Setup
from evenflow.site.log import PartitionLog, cut_from_facts, facts_of_cut
from evenflow.site.machine import SiteMachine
from evenflow.site.options import FlowOptions
from evenflow.site.replaying import Beginning
from evenflow.stream.ids import Term
from tests.site.cluster import OUT, SOURCE, TOTALS, Cluster, expected, totals
from tests.site.test_log import record
from tests.site.test_machine import OPTIONS, Driver, rows, two_site_layout


def cuts(log: PartitionLog, after: int = 0) -> list[int]:
    return [cut.epoch for cut in log.settled_cuts(after)]


# ------------------------------------------------------------ the log


def journalled(log: PartitionLog) -> PartitionLog:
    log.cuts = {}
    return log


def test_a_cut_stays_when_its_rows_go_until_it_is_durable() -> None:
    log = journalled(PartitionLog(0, 3))
    for epoch in range(1, 5):
        log.append(record(epoch))
    log.lead()
    log.settle(3)
    for epoch in range(1, 4):
        log.emitted(epoch, safe=9)
    assert [held.epoch for held in log.since(0)] == [4] and cuts(log) == [1, 2, 3], "the fourth is not settled"
    log.forget_cuts(2)
    assert cuts(log) == [3]


def test_what_a_follower_forgets_it_has_no_cut_of() -> None:
    log = journalled(PartitionLog(0, 3))
    for epoch in range(1, 5):
        log.accept(record(epoch))
    log.settle(1)
    log.new_term()
    log.accept(record(2, term=1, taken=99))
    log.lead()
    log.settle(9)
    assert [(cut.epoch, cut.taken) for cut in log.settled_cuts(0)] == [(1, 10), (2, 99)]


def test_a_copied_log_has_the_cuts_from_before_it() -> None:
    source = journalled(PartitionLog(0, 3))
    shares = (Share(4, -1, 0, True),)
    for epoch in range(1, 8):
        source.append(record(epoch)._replace(shares=shares))
    source.lead()
    source.settle(6)
    for epoch in range(1, 7):
        source.emitted(epoch, safe=0)
    source.forget_cuts(3)
    copy = journalled(PartitionLog.begun(0, 3, 6))
    copy.accept(record(7))
    copy.begin(*source.facts_done())
    copy.settle(7)
    assert cuts(copy) == [4, 5, 6, 7]
    assert copy.settled_cuts(0)[:3] == source.settled_cuts(0)


def test_a_cut_comes_back_from_what_json_says() -> None:
    cut = Cut(3, 20, 10, 7, True, False, (Share(1, 2, 3, False),))
    assert cut_from_facts([3, 20, 10, 7, True, False, [[1, 2, 3, False]]]) == cut
    assert isinstance(cut_from_facts(list(cut)).shares[0], Share)
    assert [*map(len, (facts_of_cut(cut), facts_of_cut(cut._replace(keep=(1,), dropped=(2,)))))] == [9, 11], "versions before read 9"
    assert cut_from_facts(facts_of_cut(cut)) == cut
    thinned = cut._replace(keep=(2**31, 2**32), dropped=(4, 0))
    assert cut_from_facts([list(each) if isinstance(each, tuple) else each for each in thinned]) == thinned


def test_a_log_of_a_run_without_a_journal_keeps_nothing() -> None:
    log = PartitionLog(0, 3)
    log.append(record(1))
    assert log.cuts is None and log.facts_done()[-1] == []


# ------------------------------------------------------------ what is told


class Journalled(Cluster):
    """durable: what the sites were told last."""

    def __init__(self, planned: Layout, sites: int = 2, **given: Any) -> None:
        super().__init__(planned, sites, journalled=True, **given)

    def logged(self, site: int | None = None) -> list[tuple[int, int]]:
        """(partition, epoch) of the cuts that were told, in order."""
        told = [fact for teller, fact in self.facts if isinstance(fact, Logged) and site in (None, teller)]
        return [(partition, cut.epoch) for fact in told for (_, partition), of in fact.cuts.items() for cut in of]

    def durable(self, epoch: int) -> None:
        for site in list(self.parts):
            self.give(site, Durable(epoch))


def test_a_cut_is_told_when_all_members_hold_it() -> None:
    cluster = Journalled(totals())
    leader, other = (cluster.membership.leaders[SOURCE][p].site for p in (0, 1))
    assert leader != other
    cluster.cut(leader, other, told=lambda site: False)
    cluster.rows((1, 1))
    while cluster.step():
        pass
    assert cluster.logged() == [], "its follower may have to go on without it"
    cluster.join(leader, other)
    cluster.talk()
    assert sorted(cluster.logged()) == [(0, 1), (1, 1)]


def test_each_cut_is_told_once_and_by_its_leader() -> None:
    cluster = Journalled(totals())
    for k in range(5):
        cluster.rows((k, 1), partition=k % 2)
        cluster.talk()
    for partition in (0, 1):
        leader = cluster.membership.leaders[SOURCE][partition].site
        epochs = [epoch for p, epoch in cluster.logged(leader) if p == partition]
        assert epochs == list(range(1, len(epochs) + 1)) and len(epochs) >= 5
    assert len(set(cluster.logged())) == len(cluster.logged())


def test_a_site_tells_at_most_every_journal_ms() -> None:
    site = Driver(0, two_site_layout(), journalled=True)
    site.begin()

    def close() -> list[Action]:
        return site.give(RowsArrived(0, 0, rows(*range(OPTIONS.epoch_rows))), after_ms=0.1)

    def told(actions: list[Action]) -> list[int]:
        found = [action.fact for action in actions if isinstance(getattr(action, "fact", None), Logged)]
        return [cut.epoch for fact in found for cut in fact.cuts[0, 0]]  # type: ignore[attr-defined]

    first = close()
    assert told(first) == [1] and not any(isinstance(a, SetTimer) and a.name == "journal" for a in first)
    second = close()
    assert told(second) == []
    [timer] = [action for action in second if isinstance(action, SetTimer) and action.name == "journal"]
    assert timer.at_us == site.now_us - 100 + int(OPTIONS.journal_ms * 1000)
    assert told(site.give(TimerFired("journal"), after_ms=5)) == [2]
    assert told(site.give(TimerFired("ack"), after_ms=50)) == [], "there is nothing new"


def test_a_successor_tells_again_what_may_not_be_durable() -> None:
    cluster = Journalled(totals())
    leader = cluster.membership.leaders[SOURCE][0].site
    successor = 1 - leader
    for k in range(4):
        cluster.rows((k, 1))
        cluster.talk()
    cluster.durable(2)
    cluster.kill(leader)
    before = len(cluster.logged(successor))
    leaders = tuple(tuple(each._replace(site=successor, since=Term(1)) for each in row) for row in cluster.membership.leaders)
    cluster.declare(sites=(successor,), leaders=leaders)
    cluster.talk()
    told = cluster.logged(successor)[before:]
    newest = max(epoch for _, epoch in cluster.logged())
    assert [epoch for p, epoch in told if p == 0] == list(range(3, newest + 1)), "the driver may have heard none of these"


def test_a_copied_replica_that_leads_tells_the_epochs_from_before_it() -> None:
    cluster = Journalled(totals(sites=3), 2, spares=1)
    source = cluster.membership.leaders[SOURCE][0].site
    for k in range(3):
        cluster.rows((k, 1))
        cluster.talk()
    copy = cluster.copy(SOURCE, (0,), source, 2, replacing=source)
    cluster.rows((7, 7))
    cluster.talk()
    [ship] = [ship for ship in cluster.ships if ship.copy == copy]
    cluster.give(2, StateArrived(copy.number, ship.capture.to_bytes()))
    cluster.talk()
    row = list(cluster.membership.leaders[SOURCE])
    row[0] = row[0]._replace(site=2, since=Term(cluster.membership.number + 1))
    cluster.declare(joining=(), retired=(copy.number,), leaders=(tuple(row), *cluster.membership.leaders[1:]))
    cluster.talk()
    told = [epoch for p, epoch in cluster.logged(2) if p == 0]
    assert told == list(range(1, max(told) + 1)), "what the former leader has told may be lost with it"


# ------------------------------------------------------------ what waits


def released(cluster: Cluster) -> list[int]:
    return sorted({epoch for given in cluster.released.values() for epoch, rows in given if rows})


def test_sinks_that_read_at_the_sites_get_what_is_durable() -> None:
    cluster = Journalled(totals(sink=spark()))
    for k in range(3):
        cluster.rows((k, 1))
        cluster.talk(commit=False)
    assert cluster.released == {}
    newest = max(epoch for _, epoch in cluster.logged())
    cluster.durable(2)
    assert {epoch for given in cluster.released.values() for epoch, _ in given} == {1, 2}
    cluster.durable(newest)
    assert {epoch for given in cluster.released.values() for epoch, _ in given} == set(range(1, newest + 1))
    assert all([epoch for epoch, _ in given] == list(range(1, newest + 1)) for given in cluster.released.values()), "in order, each once"


def test_what_another_replica_has_given_to_the_sink_is_not_given_again() -> None:
    cluster = Journalled(totals(sink=spark()))
    for k in range(2):
        cluster.rows((k, 1))
        cluster.talk(commit=False)
    site = next(iter(cluster.parts))
    cluster.give(site, SinkCommitted(OUT, 1))
    cluster.give(site, Durable(2))
    assert [epoch for epoch, _ in cluster.released[site]] == [2]


def test_the_driver_holds_back_for_its_own_sinks() -> None:
    cluster = Journalled(totals())
    cluster.rows((1, 1))
    cluster.talk(commit=False)
    assert released(cluster) == [1]


@pytest.mark.parametrize("segment", [TOTALS, OUT])
def test_what_publishes_does_not_begin_an_epoch_before_it_is_durable(segment: int) -> None:
    planned = totals()
    segments = tuple(replace(each, publishes=each.id == segment) for each in planned.segments)
    cluster = Journalled(replace(planned, segments=segments))
    for k in range(3):
        cluster.rows((k, 1))
        cluster.talk()
    done = lambda: {part.cohorts[segment, 0].hosted.done for part in cluster.parts.values() if (segment, 0) in part.cohorts}  # noqa: E731
    assert done() == {0}
    assert max(epoch for _, epoch in cluster.logged()) >= 2, "what is durable does not wait for what waits for it"
    cluster.durable(1)
    assert done() == {1}
    cluster.durable(1)
    assert done() == {1} and all(part.story.fired["J3", "ignore"] == 1 for part in cluster.parts.values())
    while max(epoch for _, epoch in cluster.logged()) > max(done()):
        cluster.durable(max(epoch for _, epoch in cluster.logged()))
        cluster.talk()
    assert cluster.output() == expected([(0, 1), (1, 1), (2, 1)])


def test_a_part_is_not_over_before_its_last_epoch_is_durable() -> None:
    """The sinks here do not wait, as those that only count do not."""
    cluster = Journalled(totals(sink=discard()))
    cluster.rows((1, 1))
    cluster.end()
    cluster.talk()
    assert cluster.told(PartFinished) == []
    cluster.durable(max(epoch for _, epoch in cluster.logged()))
    cluster.talk()
    assert len(cluster.told(PartFinished)) == 2


def test_a_run_without_a_journal_tells_nothing_and_sets_no_timer() -> None:
    cluster = Cluster(totals(), 2)
    cluster.rows((1, 1))
    cluster.end()
    cluster.talk()
    assert cluster.told(Logged) == [] and len(cluster.told(PartFinished)) == 2
    assert all(log.cuts is None for part in cluster.parts.values() for log in part.leading.logs.values())


def test_what_a_site_begins_with_is_durable() -> None:
    cluster = Cluster(totals(), 2)
    beginning = Beginning(cuts={(0, p): tuple(Cut(e, e, e, 0, False, False) for e in (1, 2)) for p in (0, 1)})
    part = SiteMachine(Setup(cluster.layout, cluster.plan, cluster.membership, 0, FlowOptions(), beginning, journalled=True))
    assert part.durable == 2
