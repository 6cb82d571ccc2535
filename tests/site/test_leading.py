"""Leader and followers of an ingress partition: who may emit when, and what a death leaves (I1)."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa
import pytest

from evenflow.availability.mode import Mode
from evenflow.exchange.outbox import Outbox
from evenflow.exchange.parts import in_parts
from evenflow.exchange.section import Held, Section
from evenflow.plan.layout import Layout, Segment
from evenflow.plan.membership import Leader, Membership
from evenflow.plan.plan import Copy, Plan
from evenflow.site.ingress import Ingress
from evenflow.site.ingress_queue import IngressQueue
from evenflow.site.leading import Leading, newest_term
from evenflow.site.log import PartitionLog
from evenflow.site.options import FlowOptions
from evenflow.site.view import View
from evenflow.sources import memory
from evenflow.stream.ids import NO_TERM
from evenflow.swarm.amnesia_mutations import WORD
from evenflow.swarm.mutations import planted

SCHEMA = pa.schema([("k", pa.int64())])
KEY = (0, 0)


class Site:
    """Leading of one site, with a way to its peers. gone: it is dead or cut off."""

    def __init__(self, index: int, layout: Layout, plan: Plan, membership: Membership) -> None:
        self.index = index
        self.view = View(layout, plan, membership, index)
        self.outbox = Outbox()
        self.ingress = Ingress(FlowOptions())
        self.leading = Leading(layout, self.view, self.ingress, self.outbox)
        self.gone = False

    @property
    def log(self) -> PartitionLog:
        return self.leading.logs[KEY]

    def put(self, *keys: int) -> None:
        self.ingress.queues[KEY].put(pa.record_batch([list(keys)], schema=SCHEMA), 5)

    def hear(self, peer: int, section: Section) -> None:
        """As a site's machine does. A partition that lacks records which nobody can send any more is given up."""
        assert not self.leading.confirm(peer, section)
        if section.records:
            self.leading.witness(section.records)
            self.leading.hear_records(peer, section.records)
        for held in section.held:
            self.leading.hear_held(peer, held)
        for settled in section.settled:
            self.leading.hear_settled(peer, settled)


class Group:
    """The sites with a replica of one ingress partition; site 0 leads. in_parts: whatever can be said in several messages is."""

    def __init__(self, sites: int, replicas: int | None = None, *, in_parts: bool = False) -> None:
        self.in_parts = in_parts
        self.layout = Layout(
            "t", (Segment(0, "in", "ingress", 1, (), (), (), False, "src", None, SCHEMA),), (), {"src": memory([], schema=SCHEMA)}, {}
        )
        self.plan = Plan(0, 1, ((tuple(range(replicas or sites)),),))
        self.membership = Membership(0, tuple(range(sites)), (), (), ((Leader(0, 0),),))
        self.sites = [Site(i, self.layout, self.plan, self.membership) for i in range(sites)]
        for site in self.sites[: replicas or sites]:
            site.leading.add(PartitionLog(*KEY))
            site.leading.change()
        for site in self.sites:
            site.leading.start()
        self.talk()

    def talk(self, *silent: int) -> None:
        """Deliver everything until nobody says anything. silent: sites that hear nothing now; what is for them waits."""
        waiting = True
        while waiting:
            waiting = False
            for site in self.sites:
                for peer in [peer for peer in site.outbox if peer not in silent]:
                    section = site.outbox.pop(peer)
                    waiting = True
                    for part in in_parts(section, 1) if self.in_parts else [section]:
                        if not site.gone and not self.sites[peer].gone:
                            self.sites[peer].hear(site.index, part)

    def close(self, *silent: int) -> None:
        leader = next(s for s in self.sites if not s.gone and s.view.leader(*KEY).site == s.index)
        leader.ingress.closed = max(leader.ingress.closed, leader.log.end)
        leader.leading.close(10)
        self.talk(*silent)

    def lose(self, index: int, leader: int) -> None:
        """The site dies, and the coordinator names a leader."""
        self.sites[index].gone = True
        number = self.membership.number + 1
        old = self.membership.leaders[0][0]
        leaders = ((old if old.site == leader else Leader(leader, number),),)
        sites = tuple(s for s in self.membership.sites if s != index)
        self.change(replace(self.membership, number=number, sites=sites, leaders=leaders))

    def change(self, membership: Membership, plan: Plan | None = None) -> None:
        self.membership = membership
        for site in self.sites:
            if not site.gone:
                self.tell(site, membership, plan)

    def tell(self, site: Site, membership: Membership, plan: Plan | None = None) -> None:
        if plan is not None:
            site.view.adopt(plan, 0)
        site.view.change(membership)
        site.leading.change()

    def settled(self) -> list[int]:
        return [site.log.settled for site in self.sites if KEY in site.leading.logs and not site.gone]


def test_a_leader_of_one_may_emit_what_it_cuts() -> None:
    group = Group(1)
    group.close()
    assert group.settled() == [1]


@pytest.mark.parametrize("sites", [2, 3])
def test_nobody_emits_before_all_live_members_hold_the_record(sites: int) -> None:
    group = Group(sites)
    silent = sites - 1
    group.close(silent)
    assert group.settled() == ([0] * sites)
    group.talk()
    assert group.settled() == [1] * sites


def test_with_two_replicas_a_follower_that_holds_a_record_knows_enough() -> None:
    """The leader's confirmation would tell it nothing new: one hop is saved."""
    group = Group(2)
    group.close(0)
    assert group.settled() == [0, 1]


def test_with_three_it_waits_for_the_leaders_word() -> None:
    group = Group(3)
    group.close(0)
    assert group.settled() == [0, 0, 0]


def test_nobody_waits_for_the_dead() -> None:
    group = Group(3)
    group.close(2)
    group.lose(2, leader=0)
    group.talk()
    assert group.settled() == [1, 1]


@pytest.mark.parametrize("sites", [2, 3])
def test_the_successors_log_is_the_truth(sites: int) -> None:
    """The last epoch reached only the one that is not promoted: it forgets it."""
    group = Group(sites)
    group.sites[0].put(1, 2, 3)
    group.close()
    group.sites[0].put(4, 5)
    group.close(1)
    group.lose(0, leader=1)
    group.sites[1].outbox.pop(0, None)
    group.talk()
    successor = group.sites[1]
    assert successor.log.taken == 3, "the source is read again from here"
    successor.put(4)
    group.close()
    assert group.settled() == [2] * (sites - 1)
    for site in group.sites[1:]:
        [record] = [r for r in site.log.since(1) if r.epoch == 2]
        assert (record.origin, record.taken) == (1, 4)


def test_a_record_that_the_successor_has_is_kept_by_all() -> None:
    group = Group(3)
    group.sites[0].put(1, 2, 3)
    group.close(2)
    group.lose(0, leader=1)
    group.talk()
    assert group.settled() == [1, 1]
    assert [site.log.since(0)[0].origin for site in group.sites[1:]] == [0, 0]
    assert [site.log.taken for site in group.sites[1:]] == [3, 3]


def test_a_successor_closes_what_it_has_closed_elsewhere_with_empty_records() -> None:
    """Its other ingress partitions are at epoch 5; the partition that it gets has a log up to 1."""
    group = Group(2)
    group.sites[0].put(1, 2)
    group.close()
    successor = group.sites[1]
    successor.ingress.queues[0, 9] = IngressQueue(9, None)
    successor.ingress.closed = 5
    group.lose(0, leader=1)
    assert successor.log.end == 5
    assert [(r.epoch, r.rows, r.taken, r.origin) for r in successor.log.since(1)] == [(e, None, 2, 1) for e in (2, 3, 4, 5)]
    assert successor.log.settled == 5


@pytest.mark.parametrize("in_parts", [False, True])
def test_who_has_not_heard_what_was_settled_is_answered_in_however_many_messages(in_parts: bool) -> None:
    """Goal: a follower goes on behind what its new leader has dropped, whatever else that has to say at once (I1, E4).

    Method: the old leader's last word reaches the successor only, which emits what it settles, drops it, and has two more records when the
    other asks. Its answer comes in one message or in several."""
    group = Group(3, in_parts=in_parts)
    group.close()
    group.sites[0].put(1)
    group.close(0)
    group.talk(2)
    group.sites[0].outbox.pop(2)
    assert group.settled() == [2, 2, 1]
    successor, other = group.sites[1:]
    for epoch in (1, 2):
        successor.log.emitted(epoch, successor.leading.safe(KEY))
    group.lose(0, leader=1)
    for epoch in (3, 4):
        successor.put(epoch)
        successor.ingress.closed = epoch - 1
        successor.leading.close(10)
    assert [record.epoch for record in successor.log.since(0)] == [3, 4] and other.log.matched == 1
    group.talk()
    assert other.log.end == 4 and group.settled() == [4, 4]


def test_words_of_an_old_term_are_too_late() -> None:
    group = Group(3)
    group.close(1, 2)
    late = [section for peer, section in group.sites[0].outbox.items() if peer == 2]
    group.lose(0, leader=1)
    group.talk()
    for section in late:
        group.sites[2].hear(0, section)
    assert group.sites[2].log.end == 0
    assert not group.sites[1].leading.hear_held(2, Held(*KEY, term=0, epoch=9, asks=False))


def joining() -> tuple[Group, Copy, Plan, Membership]:
    """Site 0 leads alone; a copy of its partition to site 1 begins with epoch 2."""
    group = Group(2, replicas=1)
    group.close()
    copy = Copy(4, 0, (0,), 0, 1)
    plan = Plan(1, 2, (((0, 1),),), (copy,))
    return group, copy, plan, replace(group.membership, number=1, joining=(copy,))


def join(site: Site) -> None:
    site.leading.add(PartitionLog.begun(*KEY, 1))
    site.leading.change()


def test_a_joining_follower_gets_records_and_once_it_has_asked_the_leader_counts_on_it() -> None:
    """0015: the leader may learn later than the coordinator that the follower is live, and must not emit meanwhile what that lacks."""
    group, _, plan, membership = joining()
    for site in group.sites:
        group.tell(site, membership, plan)
    join(group.sites[1])
    group.close(1, 0)
    assert group.sites[0].log.settled == 2, "it has not asked: nobody waits for it"
    group.talk()
    assert group.sites[1].leading.enrolled(KEY)
    group.close(1)
    assert group.sites[0].log.settled == 2
    group.talk()
    assert group.settled() == [3, 3]


def test_who_asks_before_the_leader_has_the_plan_is_answered_when_it_has() -> None:
    group, _, plan, membership = joining()
    group.tell(group.sites[1], membership, plan)
    join(group.sites[1])
    group.talk()
    assert group.sites[1].log.end == 1 and not group.sites[1].leading.enrolled(KEY)
    group.tell(group.sites[0], membership, plan)
    group.talk()
    assert group.sites[1].leading.enrolled(KEY)
    group.close()
    assert group.settled() == [2, 2]


def test_a_follower_whose_copy_is_dropped_holds_nobody_back() -> None:
    group, _, plan, membership = joining()
    group.change(membership, plan)
    join(group.sites[1])
    group.talk()
    group.close(1)
    assert group.sites[0].log.settled == 1
    group.sites[1].gone = True
    group.change(replace(membership, number=2, sites=(0,), joining=(), dropped=(4,)))
    assert group.sites[0].log.settled == 2


def test_word_of_where_a_source_stands_is_no_record() -> None:
    """Goal: who follows a source that nobody followed has its rows (I1), though it is told without them, too, how far the source has been
    read. Method: it gets frames of the source as well, and so that word, before it has asked for records. And should it never get those,
    it remembers the word: else a successor would read the rows again (B4)."""
    group, _, plan, membership = joining()
    leader, follower = group.sites
    group.change(membership, plan)
    leader.put(7, 8)
    join(follower)
    asks = follower.outbox.pop(0)
    group.close(1)
    rows = leader.log.record(2).rows
    leader.log.emitted(2, leader.leading.safe(KEY))
    leader.leading.bear_witness([leader.log], 2, {1})
    follower.hear(0, leader.outbox.pop(1))
    assert follower.log.end == 1 and not follower.outbox
    begun = replace(plan, copies=(Copy(5, 0, (0,), -1, 1),))
    assert [(begins.epoch, begins.taken) for begins in follower.leading.heard_of(begun)] == [(2, 2)]
    leader.hear(1, asks)
    group.talk()
    assert [(record.epoch, record.rows) for record in follower.log.since(1)] == [(2, rows)] and rows is not None
    assert group.settled() == [2, 2]


def test_a_newer_word_of_where_a_source_stands_counts_beside_an_older_log() -> None:
    """Goal: what is told before rows go to a sink is the newest that is known here (B4), else a successor begins too early. Method: a
    follower knows where the source stood when it was copied, and has had word of an epoch since, and no record."""
    group, _, plan, membership = joining()
    leader, follower = group.sites
    group.change(membership, plan.with_settings(modes=(Mode.AMNESIA,)))
    leader.put(7, 8)
    join(follower)
    follower.log.known = True
    group.close(1)
    leader.log.emitted(2, leader.leading.safe(KEY))
    follower.leading.witness([leader.log.record(2)._replace(term=NO_TERM, rows=None)])
    assert [(begins.epoch, begins.taken) for begins in follower.leading.stands()] == [(2, 2)]
    assert follower.leading.stands() == (), "once is enough"


def test_that_word_as_a_record_is_found() -> None:
    with planted(WORD), pytest.raises(AssertionError):
        test_word_of_where_a_source_stands_is_no_record()


def test_records_are_kept_until_every_follower_holds_them() -> None:
    group = Group(3)
    group.close(2)
    leader = group.sites[0]
    assert leader.leading.safe(KEY) == 0
    group.talk()
    assert leader.leading.safe(KEY) == 1
    leader.log.emitted(1, leader.leading.safe(KEY))
    assert leader.log.since(0) == []


def test_after_a_new_link_the_follower_asks_for_what_was_lost() -> None:
    group = Group(2)
    group.close(1)
    group.sites[0].outbox.clear()  # The link is lost, with the record on it.
    group.close(1)
    group.sites[0].outbox.clear()
    assert group.settled() == [0, 0]
    group.sites[1].leading.link_up(0)
    group.talk()
    assert group.settled() == [2, 2]


def test_a_section_is_as_new_as_the_newest_term_in_it() -> None:
    assert newest_term(Section()) == 0
    assert newest_term(Section(held=[Held(0, 0, 3, 1, False), Held(0, 1, 5, 1, False)])) == 5
