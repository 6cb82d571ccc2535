"""Captures on their way into images at other sites, as values: what a part asks its world for, and is told (availability.md, P2)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from evenflow.errors import TransferCorrupt
from evenflow.site.bases import OfBases
from evenflow.state.image import FRAMES, Image
from evenflow.state.transfer import Facts, open_capture, pack
from evenflow.stream.ids import CopyNumber


@dataclass(frozen=True, slots=True)
class CaptureArrived:
    """A capture of another site's unit is here, as bytes."""

    unit: int
    capture: bytes


@dataclass(frozen=True, slots=True)
class CapturePasted:
    """What `PasteCapture` asked for is done. epoch: of the image now; -1 if it is of no use any more. facts, frames: that go along. why: it
    could not be pasted; nothing if it was."""

    unit: int
    epoch: int
    image_bytes: int = 0
    facts: Facts | None = None
    frames: tuple[tuple[int, bytes], ...] = ()
    why: str = ""


BaseEvent = OfBases | CaptureArrived | CapturePasted
"""Whatever is said to a part of bases, by the coordinator, by other sites, and by who pastes."""


@dataclass(frozen=True, slots=True)
class PasteCapture:
    """Paste a capture into an image, beside the event loop, then say `CapturePasted`. Nobody else touches the image meanwhile."""

    unit: int
    image: Image
    capture: bytes


@dataclass(frozen=True, slots=True)
class OpenImage:
    """Bring what is in an image, beside the event loop, as `StateArrived` of this copy. partitions: those that are wanted. facts, frames:
    that go along."""

    copy: CopyNumber
    image: Image
    partitions: tuple[int, ...]
    facts: Facts
    frames: Sequence[tuple[int, bytes]]


@dataclass(frozen=True, slots=True)
class Hasten:
    """on: partitions wait for an image here, so no paste gives way, whichever is under way. Else nobody waits any more, behind what was
    asked for before."""

    on: bool


ImageOrder = PasteCapture | OpenImage | Hasten
"""Of these only a paste and a reading are answered."""


def paste(order: PasteCapture, rest: Callable[[], None] = lambda: None) -> CapturePasted:
    """Carry it out, in any thread. rest: is called now and then, to give way."""
    try:
        facts, states = open_capture(order.capture)
        objects = [data for (_, step), data in sorted(states.items()) if step > FRAMES]
        order.image.paste(facts["epoch"], facts["since"], objects, rest)
    except (TransferCorrupt, KeyError) as error:
        return CapturePasted(order.unit, order.image.epoch, why=str(error))
    frames = tuple((at, bytes(data)) for (at, step), data in sorted(states.items()) if step == FRAMES)
    return CapturePasted(order.unit, order.image.epoch, order.image.image_bytes, facts, frames)


def opened(order: OpenImage) -> bytes:
    """The state of the partitions that are wanted, as a copy's comes."""
    wanted = set(order.partitions)
    states = [each for each in order.image.states() if each[0] in wanted]
    which = {partition: at for at, partition in enumerate(order.facts["partitions"])}
    digests = order.facts["digests"]
    facts = {
        **order.facts,
        "partitions": list(order.partitions),
        "digests": [digests[which[partition]] for partition in order.partitions] if digests else [],
    }
    return pack(facts, [*states, *((at, FRAMES, data) for at, data in order.frames)])
