"""What must hold of a run's journal at every step: what is outside follows from what is in the store. Checkers only look, at the store too.

Each raises AssertionError with one sentence, or what the fold of the journal raises where entries contradict each other.
"""

from __future__ import annotations

from evenflow.availability.content import Content
from evenflow.availability.entries import Begun, Cut, Entry, Key, Logged, entry_name, from_bytes
from evenflow.availability.standing import Standing
from evenflow.coordinator.events import CoordinatorAction, CoordinatorEvent, Tell
from evenflow.errors import EvenflowError, Fenced
from evenflow.plan.plan import Plan
from evenflow.site.events import PlanCommitted, Release
from evenflow.site.hosted import Work
from evenflow.site.outcome import Outcome
from evenflow.swarm.collection_checkers import CollectionCheckers
from evenflow.world.sim.driver import SimDriver
from evenflow.world.sim.observer import Observer
from evenflow.world.sim.site import SimSite
from evenflow.world.sim.world import SimWorld


class JournalCheckers(Observer):
    """standing: what the entries that are in the store add up to, up to this driver's last. fenced: there is one of another driver behind
    them.

    given: last epoch that a sink, or a step that publishes, has begun to take.
    """

    def __init__(self, world: SimWorld) -> None:
        self.world = world
        self.standing = Standing()
        self.fenced = False
        self.given = 0
        self._plans: dict[int, Plan] = {plan.number: plan for plan in world.coordinator.view.plans}
        self._begun = False
        self._found: list[bytes] = []
        self._cuts: dict[tuple[Key, int], Cut] = {}
        self._journalled: dict[tuple[Key, int], Cut] = {}
        if world.store is not None:
            world.observers = (*world.observers, self)
            self._own, self._generations = world.store.standing().nonce, world.store.generations
            self.collection = CollectionCheckers(world.store)
            self._read()

    def _read(self) -> None:
        """Whatever is in the store by now: entries come one after the other, stay as they are, and agree with what was done."""
        store = self.world.store
        assert store is not None
        last = len(self._found)
        there = store.objects.get(entry_name(last), self._found[-1]) if last else None
        assert not last or there == self._found[-1], f"entry {last} of the journal is another one than before"
        assert not store.refilled, f"{store.refilled[0]} is another one than before: it was collected, and made again"
        while (data := store.written.get(entry_name(len(self._found) + 1))) is not None:
            self._found.append(data)
            entry = from_bytes(data, len(self._found))
            self._begun = self._begun or entry.nonce == self._own
            if self._begun and entry.nonce != self._own:
                self.fenced = True
                continue
            assert not self.fenced, f"entry {entry.number} was written behind one of another driver"
            self._take(entry)
            assert self.standing.precise or not (isinstance(entry.matter, Logged) and entry.matter.cuts), (
                f"entry {entry.number} has cuts, and nobody waits for them"
            )

    def _take(self, entry: Entry) -> None:
        before = self.standing.durable
        self.standing.add(entry)
        if isinstance(entry.matter, Begun):  # Of what was in for some partitions only nothing was given out: it is cut anew.
            self._journalled = {at: cut for at, cut in self._journalled.items() if at[1] <= before}
        if isinstance(entry.matter, Logged):
            for key, cuts in entry.matter.cuts.items():
                stamps = [cut.stamp for cut in self.standing.cuts[key][-len(cuts) - 1 :]]
                assert stamps == sorted(stamps), f"time goes back at ingress partition {key}: {stamps}"
                for cut in cuts:
                    self._journalled[key, cut.epoch] = cut
                    self._compare(key, cut.epoch)
        first = before + 1 if self.standing.precise else max(before + 1, self.standing.durable)  # What was before a checkpoint is gone.
        for epoch in range(first, self.standing.durable + 1) if self._begun else ():
            self._check_content(epoch)

    def _compare(self, key: Key, epoch: int) -> None:
        done, journalled = self._cuts.get((key, epoch)), self._journalled.get((key, epoch))
        if done is not None and journalled is not None and not self._kept(key):
            done = done._replace(rows=journalled.rows)  # Those that are replayed are lost.
        assert done is None or journalled is None or done == journalled, (
            f"epoch {epoch} of ingress partition {key} was cut as {done}, and the journal has {journalled}"
        )

    def _kept(self, key: Key) -> bool:
        layout = self.world.layout
        return bool(layout.sources[layout.segments[key[0]].source or ""].kept)

    def _check_content(self, epoch: int) -> None:
        """A restart would process it under the same ranges, weights and version."""
        acting = [plan for _, plan in sorted(self._plans.items()) if plan.effective <= epoch][-1]
        journalled = [content for content in self.standing.contents if content.effective <= epoch][-1]
        assert journalled.same(Content.of(acting)), f"epoch {epoch} is durable, and its plan {acting.number} is not in the journal"

    # ------------------------------------------------------------ what is done

    def coordinated(self, driver: SimDriver, event: CoordinatorEvent, actions: list[CoordinatorAction]) -> None:
        for action in actions:
            if isinstance(action, Tell) and isinstance(action.message, PlanCommitted):
                self._plans[action.message.plan.number] = action.message.plan

    def worked(self, site: SimSite, work: Work, outcome: Outcome) -> None:
        """I1: there is one cut of an epoch. J3: what publishes does not go ahead of the journal."""
        segment, epoch = work.hosted.segment, work.tick.epoch
        if segment.publishes:
            self._demand(epoch, f"{segment.name} at site {site.index}")
        if segment.kind == "ingress" and site.index in self.world.coordinator.sites:
            for partition in work.hosted.partitions:
                key = segment.id, partition
                cut = Cut.of(site.part.leading.logs[key].record(epoch)) if key in site.part.leading.logs else None
                if cut is not None:
                    self._cuts.setdefault((key, epoch), cut)
                    self._compare(key, epoch)

    def portion_stored(self, release: Release, stored: tuple[int, ...]) -> None:
        self._demand(release.epoch, f"sink {release.sink}")

    def committed(self, release: Release) -> None:
        self._demand(release.epoch, f"sink {release.sink}")

    def _demand(self, epoch: int, who: str) -> None:
        self.given = max(self.given, epoch)
        if not self.standing.precise:
            return  # Nothing waits for the journal: what it does not have comes again, if all is lost.
        if epoch > self.standing.durable:
            self._read()
        assert epoch <= self.standing.durable, f"{who} has epoch {epoch}, and {self.standing.durable} is the last that is durable"

    # ------------------------------------------------------------ the end

    def judge(self, error: EvenflowError | None, *, stopped: bool) -> str | None:
        """What is wrong with the journal of a run that has ended, or None. stopped: before its sources had ended."""
        if self.world.store is None:
            return None
        self._read()
        others = self.world.store.generations > self._generations
        if isinstance(error, Fenced):
            return None if others else f"there is no other driver, and the run ends with {error}"
        if others and error is None and not (stopped or self.standing.stopped):
            return "another driver has taken over, and the run goes on to its end"
        ended = self.standing.ended
        if error is None and not stopped:
            if ended is None:
                said = self.standing.stopped  # It was drained before anything was taken in.
                return None if said and not self._cuts else "the run is over, and its journal does not say so"
            if not self.standing.precise:
                last = self.standing.durable
                return None if ended.epoch == last else f"the journal ends with epoch {ended.epoch}, and its newest checkpoint is of {last}"
            newest = max([epoch for _, epoch in self._cuts], default=0)
            if not self.given <= ended.epoch == self.standing.durable or newest > ended.epoch:
                return f"the journal ends with epoch {ended.epoch}; {newest} is the last that was processed, {self.given} was given out"
        elif ended is not None and error is not None:
            return f"the journal says that the run is over, and it ends with {error}"
        return None
