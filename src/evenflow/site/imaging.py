"""Imaging: the images that this site has of units of others, and what is pasted into them (availability.md, P2 to P5; HW 4.2.3).

Captures are pasted beside the loop, those of a unit in the order in which they come. The coordinator is told of which epoch an image is:
what its partitions received up to then is kept for them nowhere any more. When the site that had a unit is dead, what has come of it is
pasted, nothing more is taken, and the partitions begin again here. An image stays until the coordinator says that nobody needs it.

A paste gives way to the loop, since nobody waits for it: but for these. From the question until the image is read, or dropped, none does.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from evenflow.site.bases import ReportImages, Revive
from evenflow.site.facts import CopyFailed, Imaged, NoRoom, Pasted
from evenflow.site.ground import Acts
from evenflow.site.images import CapturePasted, Hasten, OpenImage, PasteCapture
from evenflow.state.image import Image
from evenflow.state.transfer import Facts


@dataclass(slots=True)
class Kept:
    """The image of a unit. waiting: captures that have come, oldest first, until they are pasted. busy: the oldest is being pasted, and
    nobody else touches the image. pasted_bytes: of what is pasted, and of frames. final: its site is dead. facts, frames: that go along."""

    image: Image = field(default_factory=Image)
    waiting: deque[bytes] = field(default_factory=deque)
    pasted_bytes: int = 0
    busy: bool = False
    final: bool = False
    facts: Facts | None = None
    frames: tuple[tuple[int, bytes], ...] = ()

    @property
    def memory_bytes(self) -> int:
        return self.pasted_bytes + sum(map(len, self.waiting))


class Imaging:
    """images: by unit. most_bytes: memory that they may take together; None: no bound.

    _asked: units of which the coordinator wants to know, as it has asked. _gone: units whose images were dropped. _waited: units whose
    partitions are lost, and begin again from images that are not read yet.
    """

    def __init__(self, acts: Acts, most_bytes: int | None) -> None:
        self._acts, self._most_bytes = acts, most_bytes
        self.images: dict[int, Kept] = {}
        self._asked: list[tuple[int, ...]] = []
        self._gone: set[int] = set()
        self._waited: set[int] = set()

    @property
    def image_bytes(self) -> int:
        """About how much memory all images take."""
        return sum(kept.memory_bytes for kept in self.images.values())

    def take(self, unit: int, capture: bytes) -> None:
        """A capture has come."""
        kept = self.images.get(unit)
        if unit in self._gone or (kept is not None and kept.final):
            return  # Its site is dead, or it has another backup: nobody begins again from what this would make.
        if self._most_bytes is not None and self.image_bytes + len(capture) > self._most_bytes:
            self._acts.tell(NoRoom(unit, len(capture) + (0 if kept is None else kept.memory_bytes)))
            return
        kept = self.images.setdefault(unit, Kept())
        kept.waiting.append(capture)
        self._go_on(unit, kept)

    def _go_on(self, unit: int, kept: Kept) -> None:
        if kept.waiting and not kept.busy:
            kept.busy = True
            self._acts.act(PasteCapture(unit, kept.image, kept.waiting[0]))
        self._answer()

    def pasted(self, event: CapturePasted) -> None:
        """One is, or does not fit. Which epoch the image has is told in both cases."""
        kept = self.images.get(event.unit)
        if kept is None:
            return  # It was dropped meanwhile.
        kept.busy = False
        kept.waiting.popleft()
        if not event.why:
            kept.facts, kept.frames = event.facts, event.frames
            kept.pasted_bytes = event.image_bytes + sum(len(data) for _, data in event.frames)
        elif event.epoch < 0:
            kept.pasted_bytes = 0
        self._acts.tell(_said(event.unit, kept))
        self._go_on(event.unit, kept)

    def report(self, order: ReportImages) -> None:
        """The site of these units is dead (P4)."""
        for unit in order.units:
            self.images.setdefault(unit, Kept()).final = True
        self._wait_for(self._waited.union(order.units))
        self._asked.append(order.units)
        self._answer()

    def _answer(self) -> None:
        """Say what was asked for, as soon as nothing is pending."""
        for units in list(self._asked):
            kept = [self.images.get(unit) for unit in units]
            if not any(each is not None and (each.busy or each.waiting) for each in kept):
                self._asked.remove(units)
                said = tuple(_said(unit, each) for unit, each in zip(units, kept, strict=True))
                self._acts.tell(Imaged(said))
                self._wait_for(self._waited.difference(each.unit for each in said if each.epoch < 0))  # Nobody begins with nothing here.

    def revive(self, order: Revive) -> None:
        """A copy to here begins with what is in an image (B1)."""
        kept = self.images.get(order.unit)
        if kept is None or kept.busy or kept.facts is None or kept.image.epoch != order.epoch:
            self._acts.tell(CopyFailed(order.copy, f"there is no image of unit {order.unit} as of epoch {order.epoch}"))
        else:
            self._acts.act(OpenImage(order.copy, kept.image, order.partitions, kept.facts, kept.frames))
            self._wait_for(self._waited - {order.unit})

    def drop(self, units: tuple[int, ...]) -> None:
        """Nobody needs these (P5)."""
        for unit in units:
            self.images.pop(unit, None)
            self._gone.add(unit)
        self._answer()
        self._wait_for(self._waited.difference(units))

    def _wait_for(self, units: set[int]) -> None:
        """Images of these are waited for now."""
        before, self._waited = self._waited, units
        if bool(before) != bool(units):
            self._acts.act(Hasten(bool(units)))


def _said(unit: int, kept: Kept | None) -> Pasted:
    """What there is of a unit, for the coordinator."""
    if kept is None or kept.facts is None or kept.image.epoch < 0:
        return Pasted(unit, -1)
    own = tuple((int(segment), tuple(partitions)) for segment, partitions in kept.facts["own"])
    return Pasted(unit, kept.image.epoch, kept.image.image_bytes, own)
