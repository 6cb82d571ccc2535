"""Capturing: the state that a checkpoint wants from this site, from the order until all of it is in the store (K1, K2, K4, K5).

Nobody promises and nothing is held: each cohort that is concerned goes on as always, and what is wanted of it is captured when it has
finished the checkpoint's epoch and has not begun the next, which copies nothing. It is made objects, and stored, beside the loop. When all
is there, and the sinks here have stored the epoch, the coordinator is told. A checkpoint that cannot be is given up, with the reason; the
next one replaces whatever is left of the one before, since there is one at a time. What was stored of one that did not become whole is
named by no journal, and so is garbage.

Of state that is rows only those are written that have changed since the last checkpoint that became whole, and all rows of partitions that
have no base there, or whose base is due to be written anew. What goes before is named again, so each checkpoint says all that it takes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from typing import Any, Protocol

from evenflow.availability.entries import Piece, StoredObject
from evenflow.errors import DiskError
from evenflow.operator.operator import Changes
from evenflow.site.bases import CheckpointCompleted
from evenflow.site.chains import Chain, Link, due, extended, in_bases, kept_of, newest
from evenflow.site.cohort import Cohort
from evenflow.site.departing import Departing
from evenflow.site.events import Checkpoint, StateRead, StoreState, WriteFailed, Written
from evenflow.site.facts import CheckpointLate, CheckpointStored, CheckpointUnable
from evenflow.site.ground import Acts
from evenflow.site.housing import Housing
from evenflow.site.releasing import Releasing
from evenflow.state.lineages import Lineages
from evenflow.state.storing import Kind, Part, StateToStore
from evenflow.stream.ids import SiteId

Obstacle = CheckpointLate | CheckpointUnable
Key = tuple[int, int]
"""(segment, step) of state that may be written in part."""


@dataclass(slots=True)
class Open:
    """A checkpoint that is not whole here. owed: partitions that are not captured yet, by segment. captured: (partitions, facts) of those
    that are. written: what is in the store. lineages: of what was captured of it."""

    number: int
    epoch: int
    folder: str
    owed: dict[int, tuple[int, ...]]
    captured: dict[int, tuple[tuple[int, ...], dict[str, Any]]] = field(default_factory=dict)
    written: dict[int, Written] = field(default_factory=dict)
    lineages: dict[Key, Lineages] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Stored:
    """Of a checkpoint that is stored here: in which objects its rows are, and since when the next one has to have their rows."""

    number: int = 0
    chains: Mapping[Key, Chain] = field(default_factory=dict)
    lineages: Mapping[Key, Lineages] = field(default_factory=dict)


class Capturing:
    """open: the checkpoint that is under way, as far as this site is concerned. site: this one's index.

    _last: the last one that became whole. _told: one that is stored here, and may be whole: who knows is the coordinator.
    """

    def __init__(self, site: SiteId, housing: Housing, departing: Departing, releasing: Releasing, acts: Acts) -> None:
        self._site, self._housing, self._departing, self._releasing, self._acts = site, housing, departing, releasing, acts
        self.open: Open | None = None
        self._last, self._told = Stored(), Stored()

    def restored(self, cohort: Cohort, event: StateRead) -> None:
        """The cohort has the state of the checkpoint with which the run has begun: the next one has what changes from there on."""
        chains, lineages = dict(self._last.chains), dict(self._last.lineages)
        for step, changes in changing_of(cohort).items():
            key = cohort.segment.id, step
            here = changes.restored(event.facts["epoch"], cohort.partitions)
            chains[key] = kept_of(event.links.get(step, ()), here)
            lineages[key] = changes.lineages
        self._last = Stored(self._last.number, chains, lineages)

    # ------------------------------------------------------------ the order

    def obstacle(self, order: Checkpoint) -> Obstacle | None:
        """Why it cannot be; None if it can, as far as is known before its epoch has ended here."""
        for segment, partitions in order.wanted:
            cohort = self._housing.own(segment)
            if cohort is None or not self._has(cohort, partitions):
                return CheckpointUnable(order.number, f"partitions of segment {segment} are not all here, or have not joined the others")
            if (begun := _begun(cohort)) > order.epoch:
                return CheckpointLate(order.number, begun)
        return None

    def _has(self, cohort: Cohort, partitions: Sequence[int]) -> bool:
        return cohort.ready and set(partitions) <= set(self._departing.staying(cohort))

    def begin(self, order: Checkpoint) -> None:
        """It can be."""
        self.open = Open(order.number, order.epoch, order.folder, dict(order.wanted))

    def give_up(self, why: Obstacle) -> None:
        self.open = None
        self._acts.tell(why)

    # ------------------------------------------------------------ the end of its epoch

    def capture(self, cohort: Cohort) -> None:
        """Take what is wanted from this cohort, if it is at that epoch's end. All of it must be here: what is being copied here is not
        live, and what has become live must have joined."""
        found = self.open
        if found is None or cohort.number or cohort.segment.id not in found.owed or cohort.hosted.done < found.epoch:
            return
        assert not cohort.hosted.busy, "state is captured between two epochs"
        segment = cohort.segment.id
        if cohort.hosted.done > found.epoch:
            self.give_up(CheckpointLate(found.number, cohort.hosted.done))
            return
        if not self._has(cohort, found.owed[segment]):
            self.give_up(CheckpointUnable(found.number, f"partitions of segment {segment} have left"))
            return
        partitions = found.owed.pop(segment)
        types = [None if tabled is None else tuple(tabled.object_types) for tabled in cohort.hosted.facts.shares]
        kinds = [Kind(step.box, of) for step, of in zip(cohort.hosted.segment.steps, types, strict=True)]
        others = cohort.capture(partitions, without=changing_of(cohort))
        parts = self._capture_changing(found, cohort, partitions, {(partition, step) for partition, step, _ in others})
        found.captured[segment] = partitions, cohort.facts(partitions) | _rows(cohort, partitions) | _fields(cohort)
        state = StateToStore(segment, found.epoch, kinds, others, parts)
        if state.empty:
            found.written[segment] = Written(found.number, segment, ())
        else:
            soon = any(self._lacks_base(cohort, step, partitions) for step in parts)
            self._acts.act(StoreState(found.number, found.folder, state, soon))

    def _lacks_base(self, cohort: Cohort, step: int, partitions: Sequence[int]) -> bool:
        """Most rows of this step are in no base yet."""
        held = sum(map(changing_of(cohort)[step].count_of, partitions))
        return held > 2 * in_bases(self._last.chains.get((cohort.segment.id, step), ()))

    def _capture_changing(
        self, found: Open, cohort: Cohort, partitions: Sequence[int], others: Set[tuple[int, int]]
    ) -> dict[int, Sequence[Part]]:
        """By step: what is to be written of the rows of these partitions. others: (partition, step) of those that take turns and have
        state: it is not among these rows. Of those that have none it is said here, as of all that are without rows, since objects of
        earlier checkpoints may have some of theirs."""
        parts = {}
        for step, changes in changing_of(cohort).items():
            key = cohort.segment.id, step
            here = [partition for partition in partitions if (partition, step) not in others]
            found.lineages[key] = changes.lineages
            parts[step] = self._capture_step(found, changes, self._last.chains.get(key, ()), here)
        return parts

    def _capture_step(self, found: Open, changes: Changes, chain: Chain, here: Sequence[int]) -> Sequence[Part]:
        known = newest(chain)
        held = {partition: changes.count_of(partition) for partition in here}
        if not any(held.values()) and not known:
            return []
        since = changes.lineages.since
        bases = {p for p in here if p not in known or p not in since or since[p].epoch != known[p]}
        bases |= due(chain, held, [partition for partition in here if partition not in bases])
        return changes.capture_changes(found.number, found.epoch, here, bases)

    # ------------------------------------------------------------ what is in the store

    def note_written(self, event: Written) -> None:
        if self.open is not None and self.open.number == event.number:
            self.open.written[event.segment] = event

    def note_failed(self, event: WriteFailed) -> None:
        if self.open is not None and self.open.number == event.number:
            self.give_up(CheckpointUnable(event.number, f"the store does not take its state: {event.why}"))

    def go_on(self) -> None:
        """Say that all is stored, as soon as it is and the sinks here have stored the epoch (K5)."""
        found = self.open
        if found is None:
            return
        gone = [segment for segment in found.owed if self._housing.own(segment) is None]
        if gone:
            self.give_up(CheckpointUnable(found.number, f"partitions of segment {gone[0]} have left"))
            return
        if found.owed or found.captured.keys() != found.written.keys():
            return
        for cohort in self._housing.live:
            if cohort.segment.sink is not None and self._releasing.through(cohort.segment.id) < found.epoch:
                return
        chains: dict[Key, Chain] = {}
        pieces = []
        for segment, (partitions, facts) in sorted(found.captured.items()):
            written = found.written[segment]
            objects = self._named(written, chains)
            rows = facts.get("rows", {}) | {str(step): count for step, count in written.rows.items()}
            pieces.append(Piece(segment, self._site, partitions, facts | ({"rows": rows} if rows else {}), objects))
        self.open, self._told = None, Stored(found.number, chains, found.lineages)
        self._acts.tell(CheckpointStored(found.number, tuple(pieces)))

    def _named(self, written: Written, chains: dict[Key, Chain]) -> tuple[StoredObject, ...]:
        """All objects that it takes to have this segment's state, those of a step from the oldest on. chains: of its steps, added."""
        before: list[StoredObject] = []
        for step in sorted({link.stored.step for link in written.links}):
            key, new = (written.segment, step), [link for link in written.links if link.stored.step == step]
            chains[key] = extended(self._last.chains.get(key, ()), new)
            before += [link.stored for link in chains[key][: -len(new)]]
        return (*before, *written.objects)

    def complete(self, event: CheckpointCompleted) -> None:
        """It is whole: the next one has what changes from there on, and what goes before it here is what it has."""
        whole = self._told if self._told.number == event.number else Stored(event.number)
        for key, lineages in self._last.lineages.items():
            if whole.lineages.get(key) is not lineages:
                lineages.complete(event.number)  # It was not in it: whatever is kept may lack its base from now on.
        for lineages in whole.lineages.values():
            lineages.complete(event.number)
        self._last, self._told = whole, Stored()


def changing_of(cohort: Cohort) -> dict[int, Changes]:
    """By step: state of which what has changed is enough."""
    return {step: own.changes for step, own in enumerate(cohort.hosted.facts.changing) if own is not None}


def _rows(cohort: Cohort, partitions: Sequence[int]) -> dict[str, Any]:
    """How many rows there are by step, for people: objects that are added to each other do not say. Of some operators who reads the rows
    knows better. Not where some are on disk."""
    changing = {} if cohort.turns is not None else changing_of(cohort)
    rows = {str(step): sum(map(own.count_of, partitions)) for step, own in changing.items()}
    return {"rows": rows} if rows else {}


def _fields(cohort: Cohort) -> dict[str, Any]:
    """What the user's code has declared of its state, by box, for people who look at it."""
    shares = zip(cohort.hosted.segment.steps, cohort.hosted.facts.shares, strict=True)
    fields = {step.box: list(own.declared) for step, own in shares if own is not None and own.declared}
    return {"fields": fields} if fields else {}


def _begun(cohort: Cohort) -> int:
    """The last epoch that any of its partitions has begun, or must before all of them are equally far again."""
    rotation = cohort.turns.rotation if cohort.turns is not None else None
    if rotation is not None:
        return rotation.first + len(rotation.given) - 1
    return cohort.hosted.done + cohort.hosted.busy


class CheckpointOrders(Protocol):
    """A part that captures."""

    @property
    def capturing(self) -> Capturing: ...
    @property
    def failed(self) -> bool: ...


# ---------------------------------------------------------------- beside the loop


def object_name(folder: str, segment: int, step: int, site: SiteId, part: int = 0) -> str:
    """Below the location; never used twice, since each generation and checkpoint has a folder of its own. part: of the step's objects."""
    more = f"-{part:04d}" if part else ""
    return f"{folder}/{segment:03d}-{step:02d}-{site:04d}{more}.parquet"


def write(
    order: StoreState, site: SiteId, put: Callable[[str, bytes], None], rest: Callable[[], None] = lambda: None
) -> Written | WriteFailed:
    """Carry out `StoreState`, in any thread. put: brings an object into the store, or raises OSError. rest: is called now and then."""
    stored: list[StoredObject] = []
    links: list[Link] = []
    rows: dict[int, int] = {}
    try:
        for step, made in order.state.objects(rest):
            name = object_name(order.folder, order.segment, step, site, sum(each.step == step for each in stored))
            put(name, made.data)
            stored.append(StoredObject(name, step, made.rows, len(made.data), made.digest))
            if made.held is not None:
                rows[step] = rows.get(step, 0) + made.held
            if made.of:
                links.append(Link(stored[-1], order.state.epoch, made.of, made.since))
    except (OSError, DiskError) as error:
        return WriteFailed(order.number, order.segment, f"{type(error).__name__}: {error}")
    return Written(order.number, order.segment, tuple(stored), tuple(links), rows)
