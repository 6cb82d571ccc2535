"""What becomes of a plan that was proposed (protocol V2): effects of a run's rules.

Every site promises, and then the plan is committed; or a site names a later epoch, and it is proposed again beyond that one.
"""

from __future__ import annotations

from dataclasses import replace

from evenflow.coordinator.effects import RunEffects
from evenflow.coordinator.events import EpochSeen, Kind, PlanChangeRequested, SiteSaid, Tell
from evenflow.site.events import PlanAborted, PlanCommitted
from evenflow.site.facts import Promised, Refused
from evenflow.site.view import NOBODY


def note_epoch(run: RunEffects, event: EpochSeen) -> None:
    run.seen = max(run.seen, event.epoch)


def want_plan(run: RunEffects, event: PlanChangeRequested) -> None:
    run.wanted.append(event)


def note_promise(run: RunEffects, event: SiteSaid) -> None:
    assert run.proposed is not None
    assert isinstance(event.fact, Promised)
    run.promised.add(event.site)
    run.losses.hear(event.fact.heard)
    if not run.promised >= set(run.sites):
        return
    before, plan, run.proposed = run.plan, run.losses.begins(run.proposed), None
    if plan.copies or run.membership.dropped or run.membership.retired:
        # First who does not count, then where things are: at no moment may a site count a replica that has no state.
        known = {copy.number for copy in (*before.copies, *plan.copies)}
        dropped = tuple(number for number in run.membership.dropped if number in known)
        retired = tuple(number for number in run.membership.retired if number in known)
        leaders = run.leaders.begun_anew(plan, run.membership) if any(copy.void for copy in plan.copies) else run.membership.leaders
        run.change_membership(joining=plan.copies, dropped=dropped, retired=retired, leaders=leaders)
    run.view.adopt(plan, plan.effective - 1)
    run.tell_all(PlanCommitted(plan))
    run.reviving.note_plan(before, plan)
    run.backing.note_plan(before, plan)
    run.act(*run.backing.settle())
    if run.journal is not None:
        run.journal.note_plan(plan)
        run.append_next()
    for details in run.repartitioning.committed(before):
        text = "{segment} has {partitions} partitions from epoch {epoch} on; before, it had {before}".format(**details)
        run.happened(Kind.REPARTITIONED, NOBODY, text, details)
    run.act(*run.repartitioning.answers())
    run.act(*run.replacing.committed(before, journalled=run.journal is not None))
    run.act(*run.arrivals.committed(before), *run.modes.committed(before))
    for copy in plan.copies:
        name, count = run.layout.segments[copy.segment].name, len(copy.partitions)
        if copy.void:
            run.happened(Kind.BEGUN_ANEW, copy.target, *run.losses.begun(copy, plan))
        elif copy.moves:
            text = f"{count} partitions of {name} move from site {copy.replaces} to site {copy.target}: {run.moving.reason(copy)}"
            run.happened(Kind.MOVE_BEGUN, copy.target, text, run.moving.described(copy))
        else:
            text = f"{count} partitions of {name} are copied from site {copy.source} to site {copy.target}"
            if copy.revives:
                run.act(Tell(copy.target, run.reviving.order(copy)))
                text = f"{count} partitions of {name} begin again at site {copy.target} from the end of epoch {copy.base}"
            run.happened(Kind.COPY_BEGUN, copy.target, text)
    run.go_on()


def propose_later(run: RunEffects, event: SiteSaid) -> None:
    assert run.proposed is not None and isinstance(event.fact, Refused)
    run.seen = max(run.seen, event.fact.closed)
    refused = run.proposed
    run.ahead *= 2
    run.tell_all(PlanAborted(refused.number))
    run.propose_plan(replace(refused, number=run.next_number(), effective=run.seen + run.ahead))


def send_plan(run: RunEffects, event: SiteSaid) -> None:
    run.act(Tell(event.site, PlanCommitted(run.plan)))
