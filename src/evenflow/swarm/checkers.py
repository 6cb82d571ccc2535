"""What must hold at every step of a simulated run. Outside the product: they only look, and know the protocol, not its code.

Each raises AssertionError with one sentence. Replicas are known by what the coordinator has committed; what a fenced site still does is
nobody's business, as long as nobody accepts it.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from evenflow.availability.mode import Mode
from evenflow.coordinator.events import CoordinatorAction, CoordinatorEvent, Tell
from evenflow.kernels.digest import add_digests
from evenflow.plan.layout import Segment
from evenflow.plan.membership import Membership
from evenflow.plan.plan import Plan
from evenflow.site.copying import Stage, may_follow
from evenflow.site.events import Event, Heard, MembershipChanged, PlanCommitted, Release, SinkCommitted, WorkDone
from evenflow.site.hosted import Work
from evenflow.site.outcome import Outcome
from evenflow.stream.epoch import NO_WATERMARK
from evenflow.stream.ids import NO_SITE
from evenflow.world.sim.driver import SimDriver
from evenflow.world.sim.observer import Observer
from evenflow.world.sim.site import SimSite
from evenflow.world.sim.world import SimWorld

FOR_EVER: Final = 2**62
SLACK: Final = 8
"""Epochs beyond the window: those that a plan or an idle clock asks for, and what a new replica is behind."""


class Checkers(Observer):
    """plans, memberships: all that were ever committed, by number. put_out: digest by (segment, epoch, partition), with the site that was
    first; a key's last part is whether the site has digested it (E3): then it is of the rows before they are sent. steps: what was looked
    at, to know that something was. former: those of the generation before, whose epochs may come again."""

    def __init__(self, world: SimWorld, former: Checkers | None = None) -> None:
        self.world = world
        machine = world.coordinator
        self.plans: dict[int, Plan] = {plan.number: plan for plan in machine.view.plans}
        self.memberships: dict[int, Membership] = {machine.membership.number: machine.membership}
        self.steps = 0
        # Without replicas nothing is digested but by this checker, which has less to look at.
        alike = former is not None and (former.world.replicas > 1) == (world.replicas > 1)
        replayed = former.put_out if former is not None and alike else {}
        self.put_out: dict[tuple[int, int, bool], tuple[np.ndarray, np.ndarray]] = {
            key: digests for key, digests in replayed.items() if key[1] <= machine.beginning.durable
        }
        self._newest: dict[int, int] = {}
        self._known_dead: dict[int, set[int]] = {}
        self._done: dict[tuple[int, int, int], int] = {}
        self._born: dict[tuple[int, int, int], int] = {}
        self._bases: dict[int, int] = {}
        self._former: set[tuple[int, int]] = set()
        self._left: set[tuple[int, int, int]] = set()
        self._watermarks: dict[tuple[int, int, int, int], tuple[int, int]] = {}
        self._released: dict[tuple[int, int], tuple[int, int]] = {}
        self._rows_of: dict[tuple[int, int], int] = {}
        self._accepted: dict[int, int] = {}
        self._stored: dict[str, int] = {}
        self._reviving = bool(world.coordinator.beginning.epoch)  # Its state is on its way from the store.
        self._granted = 0
        self._through: dict[int, int] = {}
        self._stages: dict[tuple[int, int], Stage] = {}
        world.observers = (*world.observers, self)

    def _member(self, site: SimSite) -> bool:
        return site.index in self.world.coordinator.sites and site.index in self.world.driver.present

    # ------------------------------------------------------------ the coordinator

    def coordinated(self, driver: SimDriver, event: CoordinatorEvent, actions: list[CoordinatorAction]) -> None:
        """V1, V2: one sequence of memberships, one of plans; nobody counts who has no state; no two replicas at one site."""
        for action in actions:
            if not isinstance(action, Tell):
                continue
            if isinstance(action.message, MembershipChanged):
                self._take_membership(action.message.membership)
            elif isinstance(action.message, PlanCommitted):
                self._take_plan(action.message.plan)

    def _take_plan(self, plan: Plan) -> None:
        if plan.number in self.plans:
            assert self.plans[plan.number] == plan, f"there are two plans {plan.number}"
            return
        self.plans[plan.number] = plan
        self._bases.update((copy.number, copy.base) for copy in plan.copies if copy.revives)
        newest = max(self.plans)
        if plan.number == newest and len(self.plans) > 1:
            before = self.plans[sorted(self.plans)[-2]]
            assert plan.effective >= before.effective, (
                f"plan {plan.number} acts from {plan.effective}, the one before from {before.effective}"
            )
            out = max([epoch for site, epoch in self._newest.items() if self._counts(site)], default=0)
            assert plan.effective > out, f"plan {plan.number} acts from {plan.effective}; {out} is out"
            if plan.modes != before.modes:  # Replicas that are not needed go, and may be copied back.
                gone = _hosting(before) - _hosting(plan)
                self._left.update(gone)
                self._former.update((site, segment) for site, segment, _ in gone)
        for row in plan.placement:
            for sites in row:
                real = [site for site in sites if site >= 0]
                assert len(set(real)) == len(real), f"two replicas of a partition at one site: {sites} in plan {plan.number}"

    def _counts(self, site: int) -> bool:
        """What it has processed is out. One that reads for itself, or alone, may die ahead of all others, and nobody has heard of that."""
        machine = self.world.coordinator
        ingress = [segment.id for segment in self.world.layout.segments if segment.kind == "ingress"]
        alone = machine.by_content or any(machine.plan.mode(segment) is Mode.AMNESIA for segment in ingress)
        return not alone or site in machine.sites

    def _take_membership(self, membership: Membership) -> None:
        if membership.number in self.memberships:
            assert self.memberships[membership.number] == membership, f"there are two memberships {membership.number}"
            return
        self.memberships[membership.number] = membership
        before = self.memberships.get(membership.number - 1)
        assert before is not None, f"membership {membership.number} follows on none"
        newcomers = set(membership.sites) - set(before.sites)
        gone = {site for other in self.memberships.values() for site in other.sites} - set(before.sites) - set(membership.sites)
        assert not newcomers & gone, f"{newcomers & gone} have come back from the dead"
        self._reviving = self._reviving or any(copy.source == NO_SITE for copy in membership.joining)
        for copy in membership.joining:
            assert copy.target in membership.sites, f"{copy} is under way to a dead site"
            assert copy.revives or copy.void or copy.source in membership.sites, f"{copy} is under way from a dead site"
        plan = self.world.coordinator.plan
        for move in [copy for copy in plan.copies if copy.number in membership.retired and copy.number not in before.retired]:
            for partition in move.partitions:
                live = membership.live(plan, move.segment, partition)
                had = (set(before.live(plan, move.segment, partition)) & set(membership.sites)) - {move.target}
                assert len(live) >= len(had), f"{move} leaves partition {partition} with fewer replicas than before"
                self._left.add((move.replaces, move.segment, partition))
                self._former.add((move.replaces, move.segment))
        for copy in [copy for copy in plan.copies if copy.number in membership.dropped and copy.number not in before.dropped]:
            self._left.update((copy.target, copy.segment, partition) for partition in copy.partitions)
        for segment, row in enumerate(membership.leaders):
            for partition, leader in enumerate(row):
                if not membership.live(plan, segment, partition) and plan.mode(segment) is Mode.AMNESIA:
                    continue  # Until it begins anew.
                assert leader.site in membership.sites, f"the dead site {leader.site} leads"
                assert leader.site in membership.live(plan, segment, partition) or self.world.ended, (
                    f"site {leader.site} leads ingress partition {partition} and has no live replica"
                )

    def plan_at(self, epoch: int) -> Plan:
        found = None
        for number in sorted(self.plans):
            if self.plans[number].effective <= epoch:
                found = self.plans[number]
        assert found is not None
        return found

    # ------------------------------------------------------------ what is put out

    def worked(self, site: SimSite, work: Work, outcome: Outcome) -> None:
        """E2, E3, V2: each partition processes each epoch once and in order, under its plan, with the same result everywhere."""
        if not self._member(site) or outcome.error is not None or outcome.asked:
            return  # What a box is asked is no epoch yet: its record is.
        self.steps += 1
        hosted, epoch = work.hosted, work.tick.epoch
        segment = hosted.segment
        self._newest[site.index] = max(self._newest.get(site.index, 0), epoch)
        if work.splits:
            governs = self.plan_at(epoch)
            assert work.splits[0].plan == governs.number, (
                f"site {site.index}: epoch {epoch} of {segment.name} under plan {work.splits[0].plan}; it is of plan {governs.number}"
            )
        for partition in hosted.partitions:
            key = (site.index, segment.id, partition)
            before = self._done.get(key, epoch - 1)
            came = epoch > before and (work.cohort or key in self._left)  # By a copy: it may have been here before.
            slept = epoch > before and all(getattr(operator, "timeless", False) for operator in hosted.operators)  # On disk, without rows.
            # What is given up elsewhere with what fed it may begin again at the same site, from its base.
            again = work.born != self._born.get(key, 0) and epoch == self._bases.get(work.born, -1) + 1
            assert epoch == before + 1 or came or slept or again, (
                f"site {site.index}: epoch {epoch} of {segment.name} {partition} after {before}"
            )
            self._done[key], self._born[key] = epoch, work.born
        whose = (site.index, segment.id, work.cohort, work.born)  # What begins anew knows of no event time.
        if segment.kind != "ingress":  # There it is the least of the partitions that happen to live here.
            # What comes by a move may be behind what was here before.
            past, watermark = self._watermarks.get(whose, (0, NO_WATERMARK))
            assert epoch <= past or outcome.tick.watermark >= watermark, f"event time goes back at {site}"
        self._watermarks[whose] = epoch, outcome.tick.watermark
        self._compare(site, work, outcome)
        if outcome.released is not None:
            self._rows_of[segment.id, epoch] = max(self._rows_of.get((segment.id, epoch), 0), outcome.released.num_rows)

    def _compare(self, site: SimSite, work: Work, outcome: Outcome) -> None:
        segment, epoch = work.hosted.segment, work.tick.epoch
        digest, checked = outcome.digest, outcome.digest is not None
        if digest is None:
            digest = np.zeros(segment.partitions, np.uint64)
            for pieces in outcome.pieces:
                if pieces.rows is not None:
                    add_digests(pieces.rows, np.ascontiguousarray(pieces.producers_of(0, pieces.rows.num_rows)), digest)
        known, by = self.put_out.setdefault(
            (segment.id, epoch, checked), (np.zeros(segment.partitions, np.uint64), np.full(segment.partitions, -1, np.int64))
        )
        mine = list(work.hosted.partitions)
        wrong = [p for p in mine if by[p] >= 0 and known[p] != digest[p]]
        if wrong and self._nobody_asks(segment, epoch):
            return  # It begins again with nothing, and what it puts out first is of what its state had forgotten (B2).
        if wrong and self._reads_as_empty(site, work):
            return  # Whoever it was moved from had received what is lost since, and has told others what came of it (B4).
        wrong = [] if self._went_unheard(segment, [int(by[p]) for p in wrong]) else wrong
        assert not wrong, f"sites {by[wrong[0]]} and {site.index} differ in what {segment.name} {wrong[0]} puts out in epoch {epoch}"
        known[mine], by[mine] = digest[mine], site.index

    def _nobody_asks(self, segment: Segment, epoch: int) -> bool:
        """It has upstream backup, and all who are behind it have the epoch: live consumers for good, and the sink."""
        world, view = self.world, self.world.coordinator.view
        if view.plan.mode(segment.id) is not Mode.UPSTREAM:
            return False
        if segment.sink is not None and self._stored.get(segment.sink, 0) < epoch and self._accepted.get(segment.id, 0) < epoch:
            return False
        behind = [(stream, site) for stream in segment.outputs for site in view.present(world.layout.arcs[stream].consumer)]
        return all(world.sites[site].part.feeding.received(stream) >= epoch for stream, site in behind if world.sites[site].alive)

    def _went_unheard(self, segment: Segment, sites: list[int]) -> bool:
        """It lived at these sites alone, which are lost: it has begun anew behind what others had heard of it (B4), and `release_came` sees
        to it that no sink has heard more."""
        machine = self.world.coordinator
        return machine.plan.mode(segment.id) is Mode.AMNESIA and not set(sites) & set(machine.sites)

    def _reads_as_empty(self, site: SimSite, work: Work) -> bool:
        cohort = site.part.cohorts.get((work.hosted.segment.id, work.cohort))
        inboxes = () if cohort is None else cohort.inboxes.values()
        return any(last >= work.tick.epoch for inbox in inboxes for last in inbox.voids.values())

    # ------------------------------------------------------------ sites

    def before_handled(self, site: SimSite, event: Event) -> None:
        if isinstance(event, MembershipChanged):
            number, living = event.membership.number, set(event.membership.sites)
            before = {peer for n, membership in self.memberships.items() if n < number for peer in membership.sites}
            self._known_dead.setdefault(site.index, set()).update(before - living)

    def handled(self, site: SimSite, event: Event) -> None:
        part = site.part
        if isinstance(event, Heard) and event.peer in self._known_dead.get(site.index, ()):
            assert part.story.lines[-1][0].id == "V3", f"site {site.index} has accepted something from the dead site {event.peer}"
        if not self._member(site):
            return
        self.steps += 1
        if isinstance(event, WorkDone | SinkCommitted) and part.housing.live:
            self._through[site.index] = max(self._through.get(site.index, 0), part.finished)
        if isinstance(event, MembershipChanged | PlanCommitted):
            self._check_views(site)
        self._check_copies(site)
        if self.steps % 16 == 0:
            self._check_bounds(site)

    def _check_views(self, site: SimSite) -> None:
        """What a site believes is what the coordinator has said, at some time; no partition is twice at a site."""
        view = site.part.view
        assert self.memberships.get(view.membership.number) == view.membership, f"site {site.index} has a membership of its own"
        for plan in view.plans:
            assert self.plans.get(plan.number) == plan, f"site {site.index} has a plan of its own: {plan.number}"
        numbers = [plan.number for plan in view.plans]
        assert numbers == sorted(set(numbers)), f"site {site.index} has plans {numbers}"
        hosted: set[tuple[int, int]] = set()
        for cohort in site.part.cohorts.values():
            for partition in site.part.departing.staying(cohort):
                key = (cohort.hosted.segment.id, partition)
                assert key not in hosted, f"site {site.index} hosts {key} twice"
                hosted.add(key)

    def _check_copies(self, site: SimSite) -> None:
        """C3: a copy goes through its life in order, at the site that is its target."""
        for number, stage in site.part.arriving.stages().items():
            before = self._stages.get((site.index, number), Stage.TO_COME)
            assert may_follow(before, stage), f"copy {number} to site {site.index} is {stage.name} after {before.name}"
            self._stages[site.index, number] = stage

    def _check_bounds(self, site: SimSite) -> None:
        """A5: the window bounds what is under way, and so what anybody keeps."""
        part, window = site.part, self.world.options.window_epochs
        active = [self.world.sites[i] for i in self.world.coordinator.view.active()]
        # Whose death the coordinator has not noticed yet may have become live with its last word.
        # What it has granted holds, though a copy that has become live there, or its sink, is not so far.
        slowest = min([max(self._finished(other), self._through.get(other.index, 0)) for other in active if other.alive], default=FOR_EVER)
        granted = window if self._left else 0  # By those who counted before: a replica that has moved cannot take that back.
        if self._reviving:
            # What others have granted meanwhile holds, though what begins again where they are, or its sink, is not so far.
            self._granted = max([self._granted, *[other.part.credit._own[2] for other in active if other.alive]])
            if part.ingress.closed - slowest > window + SLACK + granted:
                return  # What begins again or anew may count before it is level: others wait for it then.
            self._reviving = bool(self.world.coordinator.membership.joining) or self._are_behind(active) or not self._have_heard(active)
        assert part.ingress.closed <= max(slowest + window + SLACK + granted, self._granted), (
            f"{part} has closed {part.ingress.closed}; the slowest is at {slowest}, and {self._granted} was granted before"
        )
        copied = {copy.target for copy in part.view.membership.joining}  # As far as it has heard: they may have been dropped since.
        for key, cohort in part.cohorts.items():
            for stream, retained in cohort.retained.items():
                # What its consumers hold in fact: their acknowledgements may be on a slow link.
                held = [
                    self.world.sites[i].part.feeding.received(stream)
                    for i in retained.acked
                    if self.world.sites[i].alive and i not in copied
                ]
                kept = retained.produced - max(retained.settled(), min(held, default=retained.produced))
                assert kept <= window + SLACK + self._lag(cohort.number), f"{part} keeps {kept} epochs of {stream} for {retained.acked}"
            for stream, inbox in cohort.inboxes.items():
                ahead = inbox.through - cohort.hosted.done
                assert ahead <= window + SLACK + self._lag(cohort.number), f"{part}: {ahead} epochs of {stream} wait for {key}"
                assert inbox.frame_bytes >= 0, f"{part} has lost count of what waits"
            for log in cohort.logs.values():
                # A follower may be the only one for whom records are kept.
                assert log.end - log.done <= window + SLACK + self._lag(cohort.number), f"{part}: log {log.end}, done {log.done}"
        for peer, granted in part.credit._granted.items():
            said = part.acknowledging.heard.get(peer)
            assert said is None or granted >= said.granted, (
                f"{part} has forgotten that site {peer} granted {said.granted}: it knows of {granted}"
            )
        for (segment, partition), role in part.leading.led():
            view = part.view
            due = {*view.membership.live(view.plan, segment, partition), *[copy.target for copy in view.membership.joining]}
            assert set(role.heard) <= due, f"{part} waits for {set(role.heard) - due}, which are neither live nor joining"
        targets = {copy.target for copy in part.view.membership.joining} - {site.index}
        told = part.acknowledging.credit.listeners
        assert not part.cohorts or targets <= {*told}, f"{part} tells {told} how far it is, and copies are to be level at {targets}"
        hold = part.ingress.hold_from
        assert hold is None or part.ingress.closed < hold or not part.ingress.queues, f"{part} has promised to wait at {hold}"

    def _finished(self, site: SimSite) -> int:
        """Last epoch that a site is through with. One whose first replica has just been declared live may not know yet."""
        if site.part.housing.live and site.part.finished:
            return site.part.finished
        return max([cohort.hosted.done for cohort in site.part.cohorts.values()], default=FOR_EVER)

    def _are_behind(self, sites: list[SimSite]) -> bool:
        """Some partition has no state yet, or is further behind than the window lets it be, also one that has not heard that it is live."""
        newest = max([site.part.ingress.closed for site in sites], default=0)
        cohorts = [cohort for site in sites if site.alive for cohort in site.part.cohorts.values()]
        done = [cohort.hosted.done for cohort in cohorts]
        return not all(cohort.ready for cohort in cohorts) or newest - min(done, default=newest) > self.world.options.window_epochs + SLACK

    def _have_heard(self, sites: list[SimSite]) -> bool:
        """Those that live know who counts."""
        number = self.world.coordinator.membership.number
        return all(site.part.view.membership.number >= number for site in sites if site.alive)

    def _lag(self, cohort: int) -> int:
        """A copy is behind by what has passed while its state was on its way; nobody waits for it. What begins again may count before it is
        level, and then has more to take in than the window."""
        return 10_000 if cohort or self._reviving or self.world.coordinator.membership.joining else 0

    # ------------------------------------------------------------ sinks

    def release_came(self, site: int, release: Release, accepted: bool) -> None:
        """O1: any replica's copy of an epoch is the same; epochs are taken once each, in order, and none with rows is left out."""
        if site not in self.world.driver.present:
            assert not accepted, f"an epoch of the dead site {site} was taken"
            return
        machine = self.world.coordinator
        live = machine.membership.live(machine.plan, release.segment, 0)
        moved = (site, release.segment) in self._former  # What it finished before it heard of that is as right as ever.
        assert site in live or moved or self.world.ended, (
            f"site {site} releases epoch {release.epoch}, and its replica is not live (C3): {live} are"
        )
        key = (release.segment, release.epoch)
        digest = np.zeros(1, np.uint64)
        if release.batch.num_rows:  # The order of the rows of an epoch is free, unless an operator cares.
            add_digests(release.batch, np.zeros(release.batch.num_rows, np.int32), digest)
        first = self._released.setdefault(key, (site, int(digest[0])))
        assert first[1] == int(digest[0]), f"sites {first[0]} and {site} release different rows for epoch {release.epoch}"
        if not accepted:
            return
        before = self._accepted.get(release.segment, 0)
        assert release.epoch > before, f"epoch {release.epoch} of segment {release.segment} was taken after {before}"
        lossy = self.world.coordinator.plan.mode(release.segment) is Mode.AMNESIA  # What it has not said is lost with its site.
        for epoch in range(before + 1, release.epoch if not lossy else 0):
            assert not self._rows_of.get((release.segment, epoch), 0), f"epoch {epoch} of segment {release.segment} was left out"
        self._accepted[release.segment] = release.epoch

    def committed(self, release: Release) -> None:
        before = self._stored.get(release.sink, 0)
        assert release.epoch > before, f"sink {release.sink} got epoch {release.epoch} after {before}"
        self._stored[release.sink] = release.epoch


def _hosting(plan: Plan) -> set[tuple[int, int, int]]:
    """(site, segment, partition) of all its replicas."""
    placed = [(segment, partition, sites) for segment, row in enumerate(plan.placement) for partition, sites in enumerate(row)]
    return {(site, segment, partition) for segment, partition, sites in placed for site in sites if site >= 0}
