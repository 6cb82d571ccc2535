"""The site's rules: what each event does to a part, one row per event and guard, named as in the protocol."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from evenflow.exchange.rules import Rule, RuleTable, always
from evenflow.site import guards
from evenflow.site.events import (
    BatchDone,
    DrainRequested,
    Heard,
    LinkDown,
    LinkUp,
    Loaded,
    LoadFailed,
    MembershipChanged,
    PlanAborted,
    PlanCommitted,
    PlanProposed,
    RowsArrived,
    SinkCommitted,
    SinkTook,
    SourceEnded,
    Spilled,
    SpillFailed,
    Started,
    StateArrived,
    StateMemoryChanged,
    TimerFired,
    TransferFailed,
    WorkDone,
)
from evenflow.site.part import Part
from evenflow.site.releasing import commit_sink, give_way
from evenflow.site.spilling import hear_disk


def _rules() -> Iterable[Rule[Part]]:
    yield Rule("E5", Started, always, Part.start, "every site is reachable, so epochs may open")
    yield Rule("E5", RowsArrived, guards.leads, Part.take_rows, "rows wait for the next epoch")
    yield Rule("C3", RowsArrived, guards.leads_no_more, Part.ignore, "the partition has moved away; its new leader reads them again")
    yield Rule("E5", RowsArrived, guards.has_failed, Part.ignore, "the dataflow has failed; the rows were never recorded")
    yield Rule("I2", BatchDone, guards.leads, Part.end_batch, "a whole Spark batch is here: its event times count")
    yield Rule("C3", BatchDone, guards.leads_no_more, Part.ignore, "the partition has moved away; its new leader is told as well")
    yield Rule("I2", BatchDone, guards.has_failed, Part.ignore, "the dataflow has failed")
    yield Rule("E6", SourceEnded, guards.leads, Part.end_source, "end of stream is watermark +inf")
    yield Rule("C3", SourceEnded, guards.leads_no_more, Part.ignore, "the partition has moved away; its new leader finds out by itself")
    yield Rule("E6", SourceEnded, guards.has_failed, Part.ignore, "the dataflow has failed")
    yield Rule("E6", DrainRequested, always, Part.drain, "a drained source has ended")
    yield Rule("A2", Heard, guards.can_be_heard, Part.hear, "frames, marks, acknowledgements, resumes and records of a peer")
    yield Rule(
        "V2",
        Heard,
        guards.must_wait,
        Part.hold_section,
        "a frame of a newer plan, or a word of a newer term, waits until that is known here",
    )
    yield Rule("V3", Heard, guards.is_fenced, Part.ignore, "nothing is accepted from a site that was declared dead")
    yield Rule("A3", LinkUp, guards.peer_lives, Part.resume_link, "what was under way on the old link is asked for again")
    yield Rule("V3", LinkUp, guards.peer_is_dead, Part.ignore, "a site that was declared dead stays so")
    yield Rule("T2", LinkDown, guards.peer_lives, Part.lose_link, "another replica is asked for what this peer fed")
    yield Rule("V3", LinkDown, guards.peer_is_dead, Part.ignore, "nothing was expected from it")
    yield Rule(
        "V1", MembershipChanged, guards.newer_membership, Part.change_membership, "the dead are dropped, successors lead, copies count"
    )
    yield Rule("V1", MembershipChanged, guards.older_membership, Part.ignore, "known already: a newcomer may be told twice")
    yield Rule("C3", StateArrived, always, Part.install_state, "a copied cohort begins with the epoch after its state")
    yield Rule("C4", TransferFailed, always, Part.give_up_copy, "the coordinator begins the copy again, from here or elsewhere")
    yield Rule("E5", TimerFired, always, Part.expire, "a deadline has passed")
    yield Rule("E2", WorkDone, guards.went_well, Part.finish_work, "an epoch's frames go to their consumers")
    yield Rule("E3", WorkDone, guards.went_wrong, Part.fail, "a box raised: the part stops and says so")
    yield Rule("E3", WorkDone, guards.has_failed, Part.ignore, "the dataflow has failed; results no longer matter")
    for answer in (Spilled, SpillFailed, Loaded, LoadFailed):
        yield Rule("M1", answer, guards.is_running, hear_disk, "state is on disk or in memory again, or is not")
        yield Rule("M1", answer, guards.has_failed, Part.ignore, "the dataflow has failed; its state no longer matters")
    yield Rule("M1", StateMemoryChanged, always, hear_disk, "less state may be in memory, or more")
    yield Rule("O1", SinkCommitted, always, commit_sink, "the sink has stored the epochs")
    yield Rule("O2", SinkTook, always, give_way, "what a sink has planned to read is kept for it, and holds no room")
    yield Rule("V2", PlanProposed, guards.in_time, Part.promise, "no epoch from the effective one on before commit or abort")
    yield Rule("V2", PlanProposed, guards.too_late, Part.refuse, "the epoch is closed already: name it")
    yield Rule("V2", PlanCommitted, guards.new_plan, Part.adopt, "the plan acts from its effective epoch on")
    yield Rule("V2", PlanCommitted, guards.old_plan, Part.ignore, "known already: a plan that was asked for may come twice")
    yield Rule("V2", PlanAborted, always, Part.abandon, "the promise is over")


RULES: Final[RuleTable[Part]] = RuleTable(_rules())
