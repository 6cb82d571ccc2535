"""One site's machine, event by event, without a world."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa
import pytest

from evenflow.availability.mode import Mode
from evenflow.exchange.section import Ack, Mark, Resume, Section
from evenflow.plan.layout import Arc, Keyed, Layout, Port, Segment, Single, Step
from evenflow.plan.placement import first_membership
from evenflow.plan.plan import Copy, Plan
from evenflow.sinks import discard
from evenflow.site.events import (
    Action,
    BatchDone,
    DrainRequested,
    Event,
    Heard,
    LinkDown,
    LinkUp,
    MembershipChanged,
    OpenSource,
    PlanAborted,
    PlanCommitted,
    PlanProposed,
    Release,
    RowsArrived,
    Run,
    SetTimer,
    SinkCommitted,
    SourceEnded,
    Started,
    TellCoordinator,
    TimerFired,
    WorkDone,
)
from evenflow.site.facts import PartFailed, PartFinished, PlanMissing, Promised, Refused
from evenflow.site.ground import Setup
from evenflow.site.machine import SiteMachine
from evenflow.site.options import FlowOptions
from evenflow.sources import MemorySource, memory
from evenflow.stream.epoch import END_OF_STREAM, NO_WATERMARK

SCHEMA = pa.schema([("k", pa.int64()), ("ts", pa.timestamp("us"))])
OPTIONS = FlowOptions(linger_ms=5, window_epochs=4, pipeline=2, epoch_rows=100)


class Pushed(MemorySource):
    """A source whose rows come as whole Spark batches."""

    pushed = True


def boom(batch: pa.RecordBatch) -> pa.Array:
    raise ValueError("no such thing")


def two_site_layout(*steps: Step) -> Layout:
    """source (1 partition, site 0) -> keyed segment (2 partitions, one per site) -> sink (site 1)."""
    segments = (
        Segment(0, "in", "ingress", 1, (), (0,), steps, False, "src", None, SCHEMA),
        Segment(1, "mid", "inner", 2, (0,), (1,), (), True, None, None, SCHEMA),
        Segment(2, "out", "egress", 1, (1,), (), (), True, None, "sink", SCHEMA),
    )
    arcs = (Arc(0, 0, 1, Port(len(steps) - 1), SCHEMA, Keyed(("k",))), Arc(1, 1, 2, Port(-1), SCHEMA, Single()))
    return Layout("t", segments, arcs, {"src": memory([], schema=SCHEMA)}, {"sink": discard()})


PLAN = Plan(0, 1, (((0,),), ((0,), (1,)), ((1,),)))


ASKED = {1: [Resume(0, 0, 1, 1, (0,), (1,)), Resume(1, 0, 2, 1, (0,), (0,))], 0: []}
"""What a site asks of the other at the start. Site 0 consumes nothing that it does not produce."""


class Driver:
    """Carries out Run at once and keeps the rest. asked: what this site has asked of the other last, by stream."""

    def __init__(self, site: int, layout: Layout | None = None, *, journalled: bool = False) -> None:
        layout = layout or two_site_layout()
        self.part = SiteMachine(Setup(layout, PLAN, first_membership(layout, PLAN, range(2)), site, OPTIONS, journalled=journalled))
        self.now_us = 1_000_000
        self.said: dict[int, list[Section]] = {}
        self.asked: dict[int, Resume] = {}

    def begin(self) -> None:
        """Start, and let the peer ask for what it wants."""
        self.give(Started())
        peer = 1 - self.part.site
        self.give(Heard(peer, Section(resumes=ASKED[peer])))

    def give(self, event: Event, after_ms: float = 0) -> list[Action]:
        self.now_us += int(after_ms * 1000)
        todo, other = self.part.handle(event, self.now_us), []
        while todo:
            action = todo.pop(0)
            if isinstance(action, Run):
                todo.extend(self.part.handle(WorkDone(action.work.run()), self.now_us))
            else:
                other.append(action)
        for say in self.part.flush(self.now_us):
            self.said.setdefault(say.peer, []).append(say.section)
            self.asked.update({resume.stream: resume for resume in say.section.resumes})
        return other

    def marks(self, peer: int, stream: int) -> list[Mark]:
        return [mark for section in self.said.get(peer, ()) for mark in section.marks if mark.stream == stream]

    def mark(self, stream: int, epoch: int, *, plan: int = 0, watermark: int = NO_WATERMARK) -> Mark:
        """The peer's mark for what this site has asked of it last."""
        return Mark(self.asked[stream].feed, stream, epoch, plan, watermark, 10, 10)


def rows(*keys: int, ts: int = 0) -> pa.RecordBatch:
    return pa.record_batch([list(keys), [ts] * len(keys)], schema=SCHEMA)


def facts(actions: list[Action]) -> list[object]:
    return [action.fact for action in actions if isinstance(action, TellCoordinator)]


def test_an_epoch_closes_a_linger_after_its_first_row() -> None:
    site = Driver(0)
    site.begin()
    [timer] = [a for a in site.give(RowsArrived(0, 0, rows(1, 2, 3))) if isinstance(a, SetTimer) and a.name == "linger"]
    assert timer.at_us == site.now_us + 5_000
    site.give(RowsArrived(0, 0, rows(4)), after_ms=4)
    assert site.part.closed == 0
    site.give(TimerFired("linger"), after_ms=1)
    assert site.part.closed == 1
    assert sum(b.rows.num_rows for s in site.said[1] for b in s.bundles if b.stream == 0) + site.part.counters.rows_out <= 4
    assert [m.epoch for m in site.marks(1, 0)] == [1]


def test_rows_that_were_there_before_they_were_taken_have_waited_since() -> None:
    site = Driver(0)
    site.begin()
    [timer] = [a for a in site.give(RowsArrived(0, 0, rows(1, 2), since_us=site.now_us - 4_000)) if isinstance(a, SetTimer)]
    assert timer.at_us == site.now_us + 1_000
    site.give(TimerFired("linger"), after_ms=1)
    assert site.part.closed == 1
    site.give(RowsArrived(0, 0, rows(3), since_us=site.now_us - 5_000))
    assert site.part.closed == 2


def test_what_follows_from_several_events_is_looked_at_once() -> None:
    """The same as if each had been handled alone: two marks make an epoch whole, of which the second alone would have begun it."""
    one, other = Driver(1), Driver(1)
    one.begin()
    other.begin()
    heard = [Heard(0, Section(marks=[one.mark(0, 1), one.mark(0, 2)])), Heard(0, Section(marks=[one.mark(1, 1), one.mark(1, 2)]))]
    for event in heard:
        other.give(event)
        one.part.take(event, one.now_us)
    assert one.part.processed == 0
    todo = one.part.look()
    assert [type(action) for action in todo].count(Run) == 1
    assert one.part.look() == []
    while todo:
        action = todo.pop(0)
        if isinstance(action, Run):
            one.part.take(WorkDone(action.work.run()), one.now_us)
            todo += one.part.look()
    assert (one.part.processed, one.part.finished) == (other.part.processed, other.part.finished) == (2, 2)


def test_a_full_epoch_closes_at_once_and_takes_no_more_than_it_may() -> None:
    site = Driver(0)
    site.begin()
    site.give(RowsArrived(0, 0, rows(*range(250))))
    assert site.part.closed == 2
    assert site.part.room(0, 0) == 2 * OPTIONS.epoch_rows - 50


def test_an_ingress_waits_when_the_sites_lag_and_goes_on_when_they_have_caught_up() -> None:
    site = Driver(0)
    site.begin()
    site.give(RowsArrived(0, 0, rows(*range(1000))))
    assert site.part.closed == OPTIONS.pipeline
    site.give(Heard(1, Section(marks=[], ack=Ack((2, 0), 1, 0, 4))))
    assert site.part.closed == OPTIONS.pipeline + 1


def test_room_is_granted_by_epoch() -> None:
    """A5: processed everywhere, but the sink does not commit: the ingress stops at the window."""
    site = Driver(0)
    site.begin()
    for epoch in range(1, 10):
        site.give(RowsArrived(0, 0, rows(*range(100))))
        site.give(Heard(1, Section(ack=Ack((epoch, 0), epoch, 0, 4))))
    assert site.part.closed == OPTIONS.window_epochs
    site.give(Heard(1, Section(ack=Ack((4, 0), 4, 1, 5))))
    assert site.part.closed == OPTIONS.window_epochs + 1


def test_no_epoch_opens_before_the_start() -> None:
    site = Driver(0)
    assert site.part.room(0, 0) == 0
    site.give(Heard(1, Section(ack=Ack((0, 0), 0, 0, 4))))
    assert site.part.closed == 0


def test_a_consumer_releases_whole_epochs_in_order_and_finishes_at_the_end_of_the_stream() -> None:
    site = Driver(1)
    site.begin()
    site.give(Heard(0, Section(marks=[site.mark(0, 1), site.mark(0, 2, watermark=END_OF_STREAM)])))
    assert site.part.processed == 0
    actions = site.give(Heard(0, Section(marks=[site.mark(1, 1), site.mark(1, 2, watermark=END_OF_STREAM)])))
    releases = [a for a in actions if isinstance(a, Release)]
    assert [(r.epoch, r.last) for r in releases] == [(2, True)]
    assert facts(actions) == []
    assert facts(site.give(SinkCommitted(2, 2))) == [PartFinished(2)]


def test_an_ingress_that_gets_no_frames_from_here_hears_at_once_that_an_epoch_is_processed() -> None:
    site = Driver(1)
    site.begin()
    site.give(Heard(0, Section(marks=[site.mark(0, 1), site.mark(1, 1)])))
    acks = [section.ack for section in site.said[0] if section.ack is not None]
    assert acks[-1] == Ack((1, 1), 1, 1, 1 + OPTIONS.window_epochs)


def test_who_listens_later_hears_how_far_this_site_is_though_nothing_happens_here() -> None:
    """Goal: a copy that is level finds out that it is (C3). Method: a site to which all has come and from which nobody gets anything else;
    then state is copied to a third one, which must know how far this one is, and no rows come until it does."""
    site = Driver(1)
    site.begin()
    site.give(Heard(0, Section(marks=[site.mark(0, 1), site.mark(1, 1)])))
    site.give(TimerFired("ack"), after_ms=OPTIONS.ack_ms)  # By now all that was to be said is.
    copy = Copy(1, 0, (0,), 0, 2, 0)
    plan = replace(PLAN, number=1, effective=2, placement=(((0, 2),), *PLAN.placement[1:]), copies=(copy,))
    first = first_membership(two_site_layout(), PLAN, range(2))
    site.give(PlanCommitted(plan))
    actions = site.give(MembershipChanged(replace(first, number=1, sites=(0, 1, 2), joining=(copy,))))
    assert [timer.name for timer in actions if isinstance(timer, SetTimer)] == ["ack"] and 2 not in site.said
    site.give(TimerFired("ack"), after_ms=OPTIONS.ack_ms)
    assert [section.ack for section in site.said[2]] == [Ack((1, 1), 1, 1, 1 + OPTIONS.window_epochs)]


def test_a_consumer_asks_its_feeders_when_the_run_starts_and_again_over_a_new_link() -> None:
    site = Driver(1)
    assert site.asked == {}
    site.begin()
    assert [(r.stream, r.cohort, r.start, r.producers, r.consumers) for r in site.asked.values()] == [
        (0, 0, 1, (0,), (1,)),
        (1, 0, 1, (0,), (0,)),
    ]
    before = {resume.feed for resume in site.asked.values()}
    site.give(Heard(0, Section(marks=[site.mark(0, 1)])))
    site.give(LinkDown(0))
    site.give(LinkUp(0))
    assert {stream: resume.start for stream, resume in site.asked.items()} == {0: 2, 1: 1}
    assert not before & {resume.feed for resume in site.asked.values()}, "a number of a feed is never used again"


def test_a_lone_reader_says_where_its_source_stands_also_for_an_epoch_without_new_rows() -> None:
    """B4: a sink may get rows in it, of a window that has closed; who begins anew behind an earlier epoch would be taken for repeated."""
    here, modes = Plan(0, 1, (((0,),), ((0,), (0,)), ((0,),))), (Mode.AMNESIA,) * 3
    plan, layout = here.with_settings(modes=modes), two_site_layout()
    part = SiteMachine(Setup(layout, plan, first_membership(layout, plan, range(2)), 0, OPTIONS))
    todo = part.handle(Started(), 1_000_000) + part.handle(RowsArrived(0, 0, rows(*range(100))), 1_000_001)
    said = []
    for epoch in (1, 2):
        while todo:
            action = todo.pop(0)
            todo += part.handle(WorkDone(action.work.run()), 1_000_002) if isinstance(action, Run) else []
        assert part.processed == epoch
        said.append([(begins.epoch, begins.taken) for begins in part.leading.stands()])
        part.ingress.want(2)
        todo = part.handle(TimerFired("heartbeat"), 9_000_000)
    assert said == [[], [(2, 100)]], "the first was said with its rows"


def test_what_was_not_acknowledged_is_sent_again_to_whom_asks() -> None:
    site = Driver(0)
    site.begin()
    site.give(RowsArrived(0, 0, rows(*range(100))))
    before = site.said.pop(1)
    site.give(LinkUp(1))
    assert [(s.bundles, s.marks) for s in site.said.pop(1)] == [([], [])], "until it asks, nothing is sent"

    site.give(Heard(1, Section(resumes=ASKED[1])))
    again = site.said.pop(1)
    assert [m.epoch for s in again for m in s.marks if m.stream == 0] == [1]
    assert sum(b.rows.num_rows for s in again for b in s.bundles) == sum(b.rows.num_rows for s in before for b in s.bundles) > 0

    site.give(Heard(1, Section(ack=Ack((1, 1), 1, 1, 5))))
    site.give(Heard(1, Section(resumes=[resume._replace(feed=7 + resume.feed, start=2) for resume in ASKED[1]])))
    assert 1 not in site.said, "what was acknowledged is gone"


def test_a_promise_is_kept_until_commit_or_abort() -> None:
    site = Driver(0)
    site.begin()
    plan = Plan(1, 2, PLAN.placement)
    assert facts(site.give(PlanProposed(plan))) == [Promised(1)]
    site.give(RowsArrived(0, 0, rows(*range(250))))
    assert site.part.closed == 1
    site.give(PlanCommitted(plan))
    assert site.part.closed == 2
    assert [m.plan for m in site.marks(1, 0)] == [0, 1]
    site.give(PlanCommitted(plan))
    assert len(site.part.view.plans) == 2


def test_an_aborted_plan_holds_nobody() -> None:
    site = Driver(0)
    site.begin()
    site.give(PlanProposed(Plan(1, 1, PLAN.placement)))
    site.give(RowsArrived(0, 0, rows(*range(100))))
    assert site.part.closed == 0
    site.give(PlanAborted(1))
    assert site.part.closed == 1


def test_the_end_of_an_older_proposal_frees_nobody_from_a_newer_promise() -> None:
    site = Driver(0)
    site.begin()
    site.give(PlanProposed(Plan(1, 1, PLAN.placement)))
    site.give(PlanProposed(Plan(2, 1, PLAN.placement)))
    site.give(RowsArrived(0, 0, rows(*range(100))))
    site.give(PlanAborted(1))
    assert site.part.closed == 0
    site.give(PlanAborted(2))
    assert site.part.closed == 1


def test_a_plan_opens_no_epoch_after_the_last_one() -> None:
    site = Driver(0)
    site.begin()
    site.give(SourceEnded(0, 0))
    assert site.part.closed == 1
    site.give(Heard(1, Section(ack=Ack((1, 0), 1, 1, 5))))
    site.give(PlanCommitted(Plan(1, 3, PLAN.placement)))
    assert site.part.closed == 1


def test_plans_that_govern_no_epoch_any_more_are_forgotten() -> None:
    site = Driver(1)
    site.begin()
    for number, effective in ((1, 2), (2, 3)):
        site.give(PlanCommitted(Plan(number, effective, PLAN.placement)))
    marks = [site.mark(s, e, plan=p) for e, p in ((1, 0), (2, 1), (3, 2)) for s in (0, 1)]
    site.give(Heard(0, Section(marks=marks)))
    assert site.part.finished == 3
    site.give(PlanCommitted(Plan(3, 9, PLAN.placement)))
    assert [plan.number for plan in site.part.view.plans] == [2, 3]


def test_a_proposal_for_a_closed_epoch_is_refused_with_the_epoch() -> None:
    site = Driver(0)
    site.begin()
    site.give(RowsArrived(0, 0, rows(*range(100))))
    assert facts(site.give(PlanProposed(Plan(1, 1, PLAN.placement)))) == [Refused(1, 1)]


def test_a_frame_of_an_unknown_plan_waits_for_it() -> None:
    site = Driver(1)
    site.begin()
    ahead = Heard(0, Section(marks=[site.mark(0, 1, plan=1), site.mark(1, 1, plan=1)]))
    assert facts(site.give(ahead)) == [PlanMissing(1)]
    assert facts(site.give(Heard(0, Section(marks=[site.mark(0, 2, plan=1), site.mark(1, 2, plan=1)])))) == []
    assert site.part.processed == 0
    site.give(PlanCommitted(Plan(1, 1, PLAN.placement)))
    assert site.part.processed == 2


def test_a_box_that_raises_stops_the_part_and_names_the_box_and_the_epoch() -> None:
    step = Step("explode", "filter", {"condition": boom}, SCHEMA, Port(-1), user_code=True)
    site = Driver(0, two_site_layout(step))
    site.begin()
    [fact] = facts(site.give(RowsArrived(0, 0, rows(*range(100)))))
    assert isinstance(fact, PartFailed)
    assert (fact.box, fact.epoch, fact.kind) == ("explode", 1, "BoxFailed")
    assert "no such thing" in fact.user_traceback and "in boom" in fact.user_traceback
    assert site.part.room(0, 0) == 0
    assert facts(site.give(RowsArrived(0, 0, rows(1)))) == []


@pytest.mark.parametrize("end", [SourceEnded(0, 0), DrainRequested()], ids=["ended", "drained"])
def test_the_end_of_a_source_is_the_last_watermark(end: Event) -> None:
    site = Driver(0)
    site.begin()
    site.give(RowsArrived(0, 0, rows(1)))
    site.give(end)
    assert [m.watermark for m in site.marks(1, 0)] == [END_OF_STREAM]


@pytest.mark.parametrize("held", [False, True], ids=["cut", "to be cut"])
def test_what_is_under_way_when_a_run_is_drained_is_in_no_epoch(held: bool) -> None:
    """Behind the last watermark rows would be late for every box, and count as taken in all the same. Method: rows and the end of a batch
    come behind the drain, whether the last epoch has been cut by then, or waits for a plan."""
    site = Driver(0, replace(two_site_layout(), sources={"src": Pushed(SCHEMA, ())}))
    site.begin()
    site.give(RowsArrived(0, 0, rows(1)))
    if held:
        site.give(PlanProposed(replace(PLAN, number=1, effective=1)))
    site.give(DrainRequested())
    assert site.part.closed == (0 if held else 1)
    site.give(RowsArrived(0, 0, rows(2, 3)))
    site.give(BatchDone(0, 0))
    if held:
        site.give(PlanAborted(1))
    log = site.part.leading.logs[0, 0]
    assert (site.part.closed, log.ended, log.taken, site.part.counters.taken) == (1, True, 1, {0: 1})
    assert [mark.watermark for mark in site.marks(1, 0)] == [END_OF_STREAM]
    assert site.part.story.fired["E6", "ignore"] == 2


def test_a_whole_batch_source_moves_event_time_when_its_batch_is_done() -> None:
    step = Step("wm", "watermark", {"time": "ts", "delay_us": 5}, SCHEMA, Port(-1))
    site = Driver(0, replace(two_site_layout(step), sources={"src": Pushed(SCHEMA, ())}))
    site.begin()
    site.give(RowsArrived(0, 0, rows(*range(100), ts=70)))
    assert [m.watermark for m in site.marks(1, 0)] == [NO_WATERMARK]
    site.give(BatchDone(0, 0), after_ms=10)
    assert [m.watermark for m in site.marks(1, 0)] == [NO_WATERMARK, 65]


def test_an_idle_dataflow_closes_an_empty_epoch_now_and_then() -> None:
    site = Driver(0)
    site.begin()
    site.give(TimerFired("heartbeat"), after_ms=OPTIONS.heartbeat_ms)
    assert site.part.closed == 1
    assert [(m.epoch, m.watermark) for m in site.marks(1, 0)] == [(1, NO_WATERMARK)]


def test_sources_are_opened_by_their_leader_at_the_start() -> None:
    layout = two_site_layout()
    leader = SiteMachine(Setup(layout, PLAN, first_membership(layout, PLAN, range(2)), 0, OPTIONS))
    assert [a for a in leader.handle(Started(), 1) if isinstance(a, OpenSource)] == [OpenSource(0, 0, 0)]
    other = SiteMachine(Setup(layout, PLAN, first_membership(layout, PLAN, range(2)), 1, OPTIONS))
    assert [a for a in other.handle(Started(), 1) if isinstance(a, OpenSource)] == []


def test_nothing_is_heard_from_the_dead() -> None:
    """V3: what a site said before its death and comes after the news of it is dropped."""
    site = Driver(1)
    site.begin()
    late = Heard(0, Section(marks=[site.mark(0, 1), site.mark(1, 1)]))
    membership = replace(first_membership(two_site_layout(), PLAN, range(2)), number=1, sites=(1,))
    site.give(MembershipChanged(membership))
    site.give(late)
    assert site.part.story.fired["V3", "ignore"] == 1 and site.part.processed == 0
    assert site.part.buffered_bytes == 0


def test_a_part_that_learns_of_its_own_death_stops() -> None:
    site = Driver(0)
    site.begin()
    membership = replace(first_membership(two_site_layout(), PLAN, range(2)), number=1, sites=(1,))
    site.give(MembershipChanged(membership))
    site.give(RowsArrived(0, 0, rows(*range(100))))
    assert (site.part.failed, site.part.closed, site.part.room(0, 0)) == (True, 0, 0)


def test_an_older_membership_changes_nothing() -> None:
    site = Driver(1)
    site.begin()
    first = first_membership(two_site_layout(), PLAN, range(2))
    site.give(MembershipChanged(replace(first, number=2, sites=(0, 1, 5))))
    site.give(MembershipChanged(replace(first, number=1, sites=(1,))))
    assert site.part.view.membership.sites == (0, 1, 5)


def test_what_a_stranger_says_waits_for_the_membership_that_names_it() -> None:
    """A new site may reach this one before the news of it."""
    for_all = first_membership(two_site_layout(), PLAN, range(2))
    site = Driver(0)
    site.begin()
    site.give(Heard(5, Section(resumes=[Resume(0, 3, 1, 1, (0,), (1,))])))
    assert 5 not in site.said
    site.give(RowsArrived(0, 0, rows(*range(100))))
    site.give(MembershipChanged(replace(for_all, number=1, sites=(0, 1, 5))))
    assert [m.epoch for m in site.marks(5, 0)] == [1]
    site.give(LinkDown(3))
    site.give(LinkUp(3))
    assert 3 not in site.part.feeding.unreachable, "it said hello before 5, and joins behind it"
    site.give(Heard(3, Section(resumes=[Resume(0, 4, 1, 1, (0,), (1,))])))
    site.give(MembershipChanged(replace(for_all, number=2, sites=(0, 1, 3, 5))))
    assert [m.epoch for m in site.marks(3, 0)] == [1]
