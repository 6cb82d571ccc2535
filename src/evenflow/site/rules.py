"""The site's rules: what each event does to a part, one row per event and guard, named as in the protocol."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from evenflow.exchange.rules import Rule, RuleTable, always
from evenflow.site import guards
from evenflow.site.effects import Effects
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


def _rules() -> Iterable[Rule[Effects]]:
    yield Rule("E5", Started, always, Effects.start, "every site is reachable, so epochs may open")
    yield Rule("E5", RowsArrived, guards.leads, Effects.take_rows, "rows wait for the next epoch")
    yield Rule("C3", RowsArrived, guards.leads_no_more, Effects.ignore, "the partition has moved away; its new leader reads them again")
    yield Rule("E5", RowsArrived, guards.has_failed, Effects.ignore, "the dataflow has failed; the rows were never recorded")
    yield Rule("I2", BatchDone, guards.leads, Effects.end_batch, "a whole Spark batch is here: its event times count")
    yield Rule("C3", BatchDone, guards.leads_no_more, Effects.ignore, "the partition has moved away; its new leader is told as well")
    yield Rule("I2", BatchDone, guards.has_failed, Effects.ignore, "the dataflow has failed")
    yield Rule("E6", SourceEnded, guards.leads, Effects.end_source, "end of stream is watermark +inf")
    yield Rule("C3", SourceEnded, guards.leads_no_more, Effects.ignore, "the partition has moved away; its new leader finds out by itself")
    yield Rule("E6", SourceEnded, guards.has_failed, Effects.ignore, "the dataflow has failed")
    yield Rule("E6", DrainRequested, always, Effects.drain, "a drained source has ended")
    yield Rule("A2", Heard, guards.can_be_heard, Effects.hear, "frames, marks, acknowledgements, resumes and records of a peer")
    yield Rule(
        "V2",
        Heard,
        guards.must_wait,
        Effects.hold_section,
        "a frame of a newer plan, or a word of a newer term, waits until that is known here",
    )
    yield Rule("V3", Heard, guards.is_fenced, Effects.ignore, "nothing is accepted from a site that was declared dead")
    yield Rule("A3", LinkUp, guards.peer_lives, Effects.resume_link, "what was under way on the old link is asked for again")
    yield Rule("V3", LinkUp, guards.peer_is_dead, Effects.ignore, "a site that was declared dead stays so")
    yield Rule("T2", LinkDown, guards.peer_lives, Effects.lose_link, "another replica is asked for what this peer fed")
    yield Rule("V3", LinkDown, guards.peer_is_dead, Effects.ignore, "nothing was expected from it")
    yield Rule(
        "V1", MembershipChanged, guards.newer_membership, Effects.change_membership, "the dead are dropped, successors lead, copies count"
    )
    yield Rule("V1", MembershipChanged, guards.older_membership, Effects.ignore, "known already: a newcomer may be told twice")
    yield Rule("C3", StateArrived, always, Effects.install_state, "a copied cohort begins with the epoch after its state")
    yield Rule("C4", TransferFailed, always, Effects.give_up_copy, "the coordinator begins the copy again, from here or elsewhere")
    yield Rule("E5", TimerFired, always, Effects.expire, "a deadline has passed")
    yield Rule("E2", WorkDone, guards.went_well, Effects.finish_work, "an epoch's frames go to their consumers")
    yield Rule("E3", WorkDone, guards.went_wrong, Effects.fail, "a box raised: the part stops and says so")
    yield Rule("E3", WorkDone, guards.has_failed, Effects.ignore, "the dataflow has failed; results no longer matter")
    for answer in (Spilled, SpillFailed, Loaded, LoadFailed):
        yield Rule("M1", answer, guards.is_running, Effects.hear_disk, "state is on disk or in memory again, or is not")
        yield Rule("M1", answer, guards.has_failed, Effects.ignore, "the dataflow has failed; its state no longer matters")
    yield Rule("M1", StateMemoryChanged, always, Effects.hear_disk, "less state may be in memory, or more")
    yield Rule("O1", SinkCommitted, always, Effects.commit_sink, "the sink has stored the epochs")
    yield Rule("O2", SinkTook, always, Effects.give_way, "what a sink has planned to read is kept for it, and holds no room")
    yield Rule("V2", PlanProposed, guards.in_time, Effects.promise, "no epoch from the effective one on before commit or abort")
    yield Rule("V2", PlanProposed, guards.too_late, Effects.refuse, "the epoch is closed already: name it")
    yield Rule("V2", PlanCommitted, guards.new_plan, Effects.adopt, "the plan acts from its effective epoch on")
    yield Rule("V2", PlanCommitted, guards.old_plan, Effects.ignore, "known already: a plan that was asked for may come twice")
    yield Rule("V2", PlanAborted, always, Effects.abandon, "the promise is over")


RULES: Final[RuleTable[Effects]] = RuleTable(_rules())
