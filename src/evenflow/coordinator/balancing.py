"""Who wants what moved, divided or replaced: policies at the end of a round, and people. Effects of a run's rules (C3, C6, E1, V2).

What is wanted is only noted here. It begins when nothing is missing and no plan is under way (`RunEffects.recover`).
"""

from __future__ import annotations

from evenflow.coordinator.effects import RunEffects
from evenflow.coordinator.events import (
    AvailabilityRequested,
    Collected,
    Done,
    DrainSite,
    Kind,
    MovesRequested,
    NewcomersSeen,
    PlanChangeRequested,
    RebalanceRequested,
    RepartitionRequested,
    ReplaceRequested,
)
from evenflow.site.view import NOBODY


def want_partitions(run: RunEffects, event: RepartitionRequested) -> None:
    run.repartitioning.want(event.segments, event.partitions, event.request)
    run.recover()


def want_version(run: RunEffects, event: ReplaceRequested) -> None:
    run.replacing.want(event.version, event.request)
    run.recover()


def want_modes(run: RunEffects, event: AvailabilityRequested) -> None:
    run.modes.want(event.modes, event.replicas, event.boxes, event.request)
    run.act(*run.modes.settled())
    run.recover()


def want_newcomers(run: RunEffects, event: NewcomersSeen) -> None:
    run.arrivals.want(event.segment, event.names)
    run.recover()


def balance(run: RunEffects, event: Collected) -> None:
    """A round: what it answers is done; if that is nothing, or something else comes first, the next one begins at once."""
    run.collecting = False
    run.pace = run.pace.then(event.ended_us, run.seen)
    if is_calm(run):
        answers = run.rounds.decide(event, {arc: of.offered for arc, of in run.ledger.arcs.totals.items()})
        for answer in answers:
            run.happened(Kind.ROUND, NOBODY, answer.text, {"moves": len(answer.moves)})
        if answers:
            moves = [move for answer in answers for move in answer.moves]
            run.moving.want(moves)
            run.recover() if moves else run.propose(PlanChangeRequested())
            return
    else:
        run.rounds.disturbed()
    run.collect()


def is_calm(run: RunEffects) -> bool:
    """Nothing is missing, wanted or under way."""
    return not (run.under_way() or run.recovery.missing or is_wanted(run))


def is_wanted(run: RunEffects) -> bool:
    """Something is to change, though nothing may be under way yet."""
    wanted = run.moving.wanted or run.repartitioning.wanted or run.moving.leaving & set(run.view.active())
    return bool(wanted or run.settling or run.draining)


def rebalance(run: RunEffects, event: RebalanceRequested) -> None:
    moves = run.rounds.once(event.statistics)
    run.happened(Kind.ROUND, NOBODY, f"balancing was asked for: {len(moves)} moves", {"moves": len(moves)})
    if event.request:
        run.act(Done(event.request, {"moves": len(moves)}))
    run.moving.want(moves)
    run.recover()


def want_moves(run: RunEffects, event: MovesRequested) -> None:
    run.moving.want(event.moves)
    run.recover()


def drain_site(run: RunEffects, event: DrainSite) -> None:
    (run.moving.stay if event.stays else run.moving.leave)(event.site)
    run.recover()
