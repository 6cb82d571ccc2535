"""Backing: the checkpoint units of this site, captured now and then and sent to the sites that back them up (availability.md, P1, P6).

    waits --due--> captured --consumers elsewhere have its epoch--> sent --ImagePasted--> waits
                                                                     |
                                                                     +--lost, refused, no answer--> waits, and is sent whole

A unit is captured between two epochs, which copies nothing; bytes are made of it, and brought to its backup, beside the loop. There is one
capture of a unit at a time, and the next one has what has changed since the last that was pasted. It is not sent before consumers at other
sites have received its epoch, and the sink has stored it: who begins again from it never makes that again. What consumers at this site may
ask for goes along (`own_frames`), since they are lost with it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from evenflow.availability.mode import Mode
from evenflow.plan.layout import Layout
from evenflow.plan.plan import Copy
from evenflow.site.bases import BackUp, ImagePasted, Unit
from evenflow.site.capturing import changing_of
from evenflow.site.cohort import Cohort
from evenflow.site.departing import Departing
from evenflow.site.events import Ship
from evenflow.site.ground import Ground
from evenflow.site.housing import Housing
from evenflow.site.own_frames import OwnFrames, packed, taken
from evenflow.site.releasing import Releasing
from evenflow.state.image import FRAMES, to_arrow_file
from evenflow.state.lineages import Lineages
from evenflow.state.storing import Kind, StateToStore
from evenflow.state.transfer import pack
from evenflow.stream.ids import CopyNumber

PATIENCE: Final = 8
"""After so many times `capture_max_ms` a capture that was sent is not waited for any more; after each such one, twice as many: it may be
large."""
PATIENCE_MAX_MS: Final = 3_600_000.0
"""Longer than that none is waited for, unless `PATIENCE` alone is longer."""
LOOKS: Final = 8
"""So often in `capture_max_ms` it is looked whether a unit is to be captured."""


class UnitCapture:
    """A unit as of the end of an epoch: see `state.transfer.Capture`, which it stands for on its way."""

    def __init__(self, facts: dict[str, Any], state: StateToStore, frames: Sequence[OwnFrames]) -> None:
        self.facts, self._state, self._frames = facts, state, frames

    def to_bytes(self, rest: Callable[[], None] = lambda: None) -> bytes:
        """All of it, in any thread, once. rest: is called now and then, to give way: nobody waits for this. Raises DiskError where state is
        on a disk that cannot be read."""
        states = [(at, step, made.data) for at, (step, made) in enumerate(self._state.objects(rest, to_arrow_file))]
        said, rows = packed(self._frames)
        self._frames = ()
        return pack({**self.facts, "frames": said}, [*states, *((at, FRAMES, data) for at, data in enumerate(rows))])


@dataclass(slots=True)
class Backed:
    """A unit of this site. pasted: as of which epoch its image is; -1: there is none. captured: of the capture that is under way; 0: none
    is. number: of it. since_us: when it was captured. ship: to be done when consumers have it; None when it is. lineages: of what was
    captured. due: it is to be captured at the end of an epoch. held: at the end of its last epoch it could not be. patience: see
    `PATIENCE`."""

    unit: Unit
    pasted: int = -1
    captured: int = 0
    number: int = 0
    since_us: int = 0
    ship: Ship | None = None
    lineages: tuple[Lineages, ...] = ()
    due: bool = True
    held: bool = False
    patience: int = PATIENCE

    def has_newer(self, epoch: int) -> bool:
        """An image as of that epoch is of a capture that was given up, and a whole one is on its way in its place."""
        return 0 <= epoch < self.captured and self.pasted < 0


class Backing:
    """units: of this site, by segment; at most one of each."""

    def __init__(self, part: Ground, layout: Layout, housing: Housing, departing: Departing, releasing: Releasing) -> None:
        self._part, self._layout, self._housing, self._departing, self._releasing = part, layout, housing, departing, releasing
        self.units: dict[int, Backed] = {}
        self._numbers, self._late_us = 0, int(part.options.capture_max_ms * 1000)
        self._patience_max = max(PATIENCE, int(PATIENCE_MAX_MS / part.options.capture_max_ms))

    # ------------------------------------------------------------ orders

    def take(self, order: BackUp) -> None:
        """Units that are new begin with a whole capture."""
        known = {backed.unit: backed for backed in self.units.values()}
        before = self.units
        self.units = {unit.segment: known.get(unit) or Backed(unit, since_us=self._part.now_us) for unit in order.units}
        if self.units and not before:
            self._tick()

    def look(self) -> None:
        """The timer has fired: what has not been captured for long enough is due."""
        for backed in self.units.values():
            waited_us = self._part.now_us - backed.since_us
            if backed.captured and backed.ship is None and waited_us > backed.patience * self._late_us:
                self._again(backed)
                backed.patience = min(2 * backed.patience, self._patience_max)
            backed.due = backed.due or (not backed.captured and waited_us >= self._late_us)
        if self.units:
            self._tick()

    def _tick(self) -> None:
        self._part.set_timer("capture", self._part.options.capture_max_ms / LOOKS)

    @property
    def at_work(self) -> bool:
        """Something is to be captured, or to be sent."""
        return any(backed.due or backed.ship is not None for backed in self.units.values())

    # ------------------------------------------------------------ captures

    def capture(self, cohort: Cohort) -> None:
        """Take what is due of this cohort, which is between two epochs."""
        backed = self.units.get(cohort.segment.id)
        if backed is None or not backed.due or cohort.number:
            return
        backed.held = not self._can(cohort, backed)
        if backed.held or not self._is_next(backed):
            return
        assert not cohort.hosted.busy, "state is captured between two epochs"
        self._numbers += 1
        backed.due, backed.captured, backed.number, backed.since_us = False, cohort.hosted.done, self._numbers, self._part.now_us
        state, backed.lineages = self._state(cohort, backed)
        partitions, epoch = backed.unit.partitions, cohort.hosted.done
        facts = {
            **cohort.facts(partitions),
            "partitions": list(partitions),
            "committed": epoch if cohort.segment.sink is not None else self._releasing.through(cohort.segment.id),
            "since": backed.pasted,
        }
        frames = [each for each in (self._frames(cohort, stream) for stream in cohort.segment.outputs) if each is not None]
        facts["own"] = [[self._layout.arcs[each.stream].consumer, list(each.consumers)] for each in frames]
        capture = UnitCapture(facts, state, frames)
        number = CopyNumber(-backed.unit.number)
        copy = Copy(number, cohort.segment.id, partitions, self._part.site, backed.unit.backup)
        backed.ship = Ship(copy, capture)

    def _can(self, cohort: Cohort, backed: Backed) -> bool:
        """What takes turns comes together at a rotation's end; where partitions have changed, the coordinator knows better by now, and
        says so."""
        if not cohort.ready or cohort.hosted.done <= max(backed.pasted, 0):
            return False
        rotates = cohort.turns is not None and cohort.turns.rotation is not None
        here = set(backed.unit.partitions)
        return not rotates and set(self._departing.staying(cohort)) == here and set(cohort.partitions) == here

    def _is_next(self, backed: Backed) -> bool:
        """One capture at a time, the oldest image first: together they would keep the loops of both sites waiting. One that has been under
        way for long holds nobody up."""
        others = [other for other in self.units.values() if other is not backed]
        under_way = any(other.captured and self._part.now_us - other.since_us < self._late_us for other in others)
        return not under_way and not any(other.due and not other.held and other.since_us < backed.since_us for other in others)

    def _state(self, cohort: Cohort, backed: Backed) -> tuple[StateToStore, tuple[Lineages, ...]]:
        partitions, epoch = backed.unit.partitions, cohort.hosted.done
        types = [None if tabled is None else tuple(tabled.object_types) for tabled in cohort.hosted.facts.shares]
        kinds = [Kind(step.box, of) for step, of in zip(cohort.hosted.segment.steps, types, strict=True)]
        changing = changing_of(cohort)
        others = cohort.capture(partitions, without=changing)
        whole = {(partition, step) for partition, step, _ in others}
        parts = {}
        for step, changes in changing.items():
            here = [partition for partition in partitions if (partition, step) not in whole]
            since = changes.lineages.since
            bases = {p for p in here if backed.pasted < 0 or p not in since or since[p].epoch != backed.pasted}
            parts[step] = changes.capture_changes(backed.number, epoch, here, bases)
        return StateToStore(cohort.segment.id, epoch, kinds, others, parts), tuple(each.lineages for each in changing.values())

    def _frames(self, cohort: Cohort, stream: int) -> OwnFrames | None:
        """What consumers at this site may still ask for, which begin again from a base as it does."""
        consumer = self._layout.arcs[stream].consumer
        own = self._housing.own(consumer)
        if own is None or self._part.view.plan.mode(consumer) is not Mode.PASSIVE:
            return None
        return taken(cohort, stream, max(self._part.stable[consumer], cohort.retained[stream].floor), own.partitions)

    def go_on(self) -> None:
        """Send what consumers elsewhere have received by now, and sinks have stored."""
        for backed in self.units.values():
            if backed.ship is not None and self._is_received(backed):
                ship, backed.ship = backed.ship, None
                self._part.act(ship)

    def _is_received(self, backed: Backed) -> bool:
        cohort = self._housing.own(backed.unit.segment)
        if cohort is None:
            return False
        if cohort.segment.sink is not None and self._releasing.through(cohort.segment.id) < backed.captured:
            return False
        if not all(self._lives(self._layout.arcs[stream].consumer) for stream in cohort.retained):
            return False
        return all(
            received >= backed.captured
            for retained in cohort.retained.values()
            for site, received in retained.acked.items()
            if site != self._part.site
        )

    def _lives(self, consumer: int) -> bool:
        """None of its partitions is lost: who begins again wants what the lost had received."""
        view = self._part.view
        return all(view.live(block) for block in view.blocks(consumer))

    # ------------------------------------------------------------ what has become of them

    def pasted(self, event: ImagePasted) -> None:
        """The image of a unit here is as of that epoch (P3): the next capture has what has changed since."""
        backed = next((each for each in self.units.values() if each.unit.number == event.unit), None)
        if backed is None:
            return
        if backed.has_newer(event.epoch):
            return
        if event.epoch == backed.captured and backed.ship is None:
            for lineages in backed.lineages:
                lineages.complete(backed.number)
            backed.pasted, backed.captured, backed.lineages, backed.patience = event.epoch, 0, (), PATIENCE
        else:
            self._again(backed)

    def lost(self, unit: int) -> None:
        """A capture has not come to its backup."""
        backed = next((each for each in self.units.values() if each.unit.number == unit), None)
        if backed is None:
            return
        if backed.captured and backed.ship is None:
            backed.captured, backed.due = 0, False  # What it had is still there: the next one has it again.
        elif not backed.captured and backed.pasted >= 0:
            self._again(backed)  # An earlier one of the same epoch, that was given up, has been taken for it.

    def _again(self, backed: Backed) -> None:
        """Nobody knows what its backup has: all of it is sent."""
        for lineages in backed.lineages:
            lineages.complete(0)
        backed.pasted, backed.captured, backed.ship, backed.lineages, backed.due = -1, 0, None, (), True
