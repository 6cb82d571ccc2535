"""Whether a whole checkpoint has the state that replicas had, and whether the store keeps what retained ones name (K3, K5, K8).

What replicas have at the end of a checkpoint's epoch is asked of their operators, one by one, and not of what captures it. When the
checkpoint is whole, its objects are read from the store, folded as a restart does it, and compared bit by bit.
"""

from __future__ import annotations

from evenflow.coordinator.events import CoordinatorAction, CoordinatorEvent, Tell
from evenflow.errors import CheckpointCorrupt
from evenflow.site.bases import CheckpointCompleted
from evenflow.site.events import Checkpoint, Event, Release
from evenflow.site.hosted import Hosted, Work
from evenflow.site.outcome import Outcome
from evenflow.site.restoring import states_in
from evenflow.stream.digest import digest_of
from evenflow.world.sim.driver import SimDriver
from evenflow.world.sim.observer import Observer
from evenflow.world.sim.site import SimSite
from evenflow.world.sim.world import SimWorld


class StateCheckers(Observer):
    """live: digest of a partition's state of each step by (segment, partition, epoch), at the ends of epochs that checkpoints are of.
    compared: how many states were. sound: nobody damages what is in the store, so all of it must be right."""

    def __init__(self, world: SimWorld, *, sound: bool = True) -> None:
        self.world, self.sound = world, sound
        self.live: dict[tuple[int, int, int], dict[int, str]] = {}
        self.compared = 0
        self._unstored: dict[int, set[int]] = {}
        if world.store is not None:
            world.observers = (*world.observers, self)

    # ------------------------------------------------------------ what replicas have

    def before_handled(self, site: SimSite, event: Event) -> None:
        if isinstance(event, Checkpoint) and site.index in self.world.coordinator.sites:
            for cohort in site.part.cohorts.values():
                if not cohort.number and cohort.ready and not cohort.hosted.busy and cohort.hosted.done == event.epoch:
                    self._remember(cohort.hosted, event.epoch)

    def worked(self, site: SimSite, work: Work, outcome: Outcome) -> None:
        order, member = site.part.capturing.open, site.index in self.world.coordinator.sites
        if order is not None and member and order.epoch == work.tick.epoch and work.cohort == 0 and outcome.error is None and not work.asks:
            self._remember(work.hosted, work.tick.epoch)

    def _remember(self, hosted: Hosted, epoch: int) -> None:
        found: dict[int, dict[int, str]] = {partition: {} for partition in hosted.partitions}
        for partition, step, snapshot in hosted.capture(hosted.partitions):
            found[partition][step] = digest_of(snapshot.to_bytes())
        for partition, digests in found.items():
            self.live.setdefault((hosted.segment.id, partition, epoch), digests)

    # ------------------------------------------------------------ what sinks have

    def release_came(self, site: int, release: Release, accepted: bool) -> None:
        if accepted and release.portion is None and release.batch.num_rows:
            self._unstored.setdefault(release.segment, set()).add(release.epoch)

    def committed(self, release: Release) -> None:
        waiting = self._unstored.get(release.segment, set())
        waiting -= {epoch for epoch in waiting if epoch <= release.epoch}

    def _check_sinks(self) -> None:
        """Nobody makes again what came before it."""
        made = self.world.coordinator.checkpointing.retained[-1]
        for segment, waiting in self._unstored.items():
            lacking = [epoch for epoch in waiting if epoch <= made.epoch]
            sink = self.world.layout.segments[segment].sink
            assert not lacking, f"checkpoint {made.number} of epoch {made.epoch} is whole, and sink {sink} has not stored {sorted(lacking)}"

    # ------------------------------------------------------------ what is in the store

    def coordinated(self, driver: SimDriver, event: CoordinatorEvent, actions: list[CoordinatorAction]) -> None:
        if not any(isinstance(action, Tell) and isinstance(action.message, CheckpointCompleted) for action in actions):
            return
        self._check_sinks()
        if self.sound:
            self._compare()

    def _compare(self) -> None:
        """The newest one is what replicas had, and of the retained ones of this generation everything is there."""
        store, journal = self.world.store, self.world.coordinator.journal
        assert store is not None and journal is not None
        retained = [each for each in self.world.coordinator.checkpointing.retained if each.generation == journal.generation]
        for each in retained:
            for stored in each.objects:
                assert stored.name in store.objects, f"checkpoint {each.number} is retained, and {stored.name} is gone"
        made, found = retained[-1], dict[tuple[int, int], dict[int, str]]()
        for piece in made.pieces:
            found |= {(piece.segment, partition): {} for partition in piece.partitions}
            try:
                for partition, step, state in states_in(piece, made.epoch, piece.partitions, {}, store.objects.__getitem__):
                    found[piece.segment, partition][step] = digest_of(state)
            except CheckpointCorrupt as error:
                raise AssertionError(f"checkpoint {made.number} is whole, and cannot be read: {error}") from error
        for (segment, partition, epoch), digests in self.live.items():
            if epoch == made.epoch:
                self.compared += 1
                assert found.get((segment, partition)) == digests, (
                    f"checkpoint {made.number} has of partition {partition} of segment {segment} something else than replicas had at the "
                    f"end of epoch {epoch}"
                )
        self.live = {key: digests for key, digests in self.live.items() if key[2] > made.epoch}
