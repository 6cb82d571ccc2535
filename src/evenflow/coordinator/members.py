"""Sites that come and go, as a run's machine is told of them (protocol V1): effects of its rules.

A membership is decided here alone, and acts on receipt.
"""

from __future__ import annotations

from dataclasses import replace

from evenflow.coordinator.effects import RunEffects
from evenflow.coordinator.events import Kind, PlanChangeRequested, RunPause, SiteLost, SiteReady, Tell
from evenflow.errors import LostBeforeStart
from evenflow.plan.membership import Membership
from evenflow.site.events import DrainRequested, PlanCommitted, PlanProposed, Started
from evenflow.site.view import NOBODY
from evenflow.stream.ids import Term


def note_ready(run: RunEffects, event: SiteReady) -> None:
    run.recovery.hosts[event.site] = event.host
    run.ready.add(event.site)
    if run.ready >= set(run.sites):
        run.started = True
        run.tell_all(Started(run.rounds.relief_us))
        run.tell_durable(run.sites)
        for text, details in run.losses.restart(run.beginning):
            run.happened(Kind.ROWS_LOST, NOBODY, text, details)
        if run.draining:
            run.drain_sources()
        if run.rounds.keeps != run.plan.settings.keeps and not run.under_way():
            run.propose(PlanChangeRequested())
        run.collect()
        run.act(*run.checkpointing.start(), *run.backing.settle())
        for site in sorted(run.ready.difference(run.sites)):
            welcome(run, SiteReady(site, run.recovery.hosts[site]))


def welcome(run: RunEffects, event: SiteReady) -> None:
    """A newcomer: it learns what it has missed, and everybody learns of it."""
    run.recovery.hosts[event.site] = event.host
    run.ready.add(event.site)
    run.act(Tell(event.site, PlanCommitted(run.plan)))
    run.reviving.note_newcomer(event.site)
    run.change_membership(sites=tuple(sorted((*run.sites, event.site))))
    run.act(Tell(event.site, Started(run.rounds.relief_us)))
    run.tell_durable((event.site,))
    if run.draining:
        run.act(Tell(event.site, DrainRequested()))
    if run.proposed is not None:
        run.act(Tell(event.site, PlanProposed(run.proposed)))
    run.happened(Kind.SITE_JOINED, event.site, f"site {event.site} has joined")
    run.recover()


def forget_stranger(run: RunEffects, event: SiteLost) -> None:
    """If it was ready before the run began, it does not join when it does."""
    run.ready.discard(event.site)


def lose_site(run: RunEffects, event: SiteLost) -> None:
    """V1: drop the dead, name successors, forget its copies. Consumers have asked other replicas already (A3)."""
    kind, verb = (Kind.SITE_LEFT, "has left") if event.planned else (Kind.SITE_LOST, "is lost")
    why, crashed = run.deaths.words(event), run.deaths.note(event)
    run.happened(kind, event.site, f"site {event.site} {verb}: {why}")
    before = run.membership
    sites = tuple(site for site in before.sites if site != event.site)
    gone = [copy for copy in before.joining if event.site in (copy.source, copy.target)]
    for copy in (*gone, *run.moving.forget(event.site)):
        if copy.moves:
            run.give_up_move(copy, f"site {event.site} is lost")
    joining = tuple(copy for copy in before.joining if copy not in gone)
    dropped = (*before.dropped, *(copy.number for copy in gone))
    run.abort()
    if crashed is not None:
        run.end(crashed)
        return
    if not sites:
        everything = {segment.name: tuple(range(segment.partitions)) for segment in run.layout.segments}
        run.end(run.deaths.lost(event, why, everything, 1, run.seen))
        return
    run.recovery.retries.keep(sites)
    after = Membership(Term(before.number + 1), sites, joining, dropped, before.leaders, before.retired)
    run.view.change(after)
    lost = run.recovery.lost()
    anew = run.recovery.can_void()
    if lost and after.joining and (anew or run.reviving.can()):
        # What is being copied waits for frames that nobody has: first these are void, or made again.
        for copy in joining:
            if copy.moves:
                run.give_up_move(copy, f"site {event.site} is lost, and something begins {'anew' if anew else 'again'}")
        after = replace(after, joining=(), dropped=(*dropped, *(copy.number for copy in joining)))
        run.view.change(after)
        lost = run.recovery.lost()
    run.reviving.last = event, why
    if lost and not run.recovery.can_void() and not run.reviving.can():
        run.end(run.deaths.lost(event, why, lost, max(map(len, run.plan.placement[0])), run.seen))
        return
    if run.checkpointing.waits_for(event.site):
        run.drop_checkpoint(f"site {event.site} is lost")
    run.announce(replace(after, leaders=run.leaders.successors(after)))
    run.act(*run.backing.ask())
    if not event.planned and not lost:
        run.happened(Kind.TAKE_OVER, event.site, f"the replicas of site {event.site}'s partitions go on without it")
    numbers = {segment.name: segment.id for segment in run.layout.segments}
    for name, partitions in lost.items() if run.reviving.can() else ():
        base = run.reviving.base_of(numbers[name])
        text = f"{len(partitions)} partitions of {name} begin again from the end of epoch {base}"
        run.happened(Kind.TAKE_OVER, event.site, text)
    run.ready.discard(event.site)
    run.end_if_finished()
    if run.settle_ms and not run.over:
        run.settling += 1
        run.wake(run.settle_ms, RunPause.DUST)
    run.recover()


def lose_before_start(run: RunEffects, event: SiteLost) -> None:
    run.end(LostBeforeStart(f"site {event.site} is lost: {event.why}, before the run began. Start it again."))
