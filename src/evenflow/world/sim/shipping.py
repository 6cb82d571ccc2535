"""State on its way between simulated sites: of copies, and captures of units to the sites that back them up, where they are pasted."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random
from typing import Any, Protocol, assert_never

from evenflow.errors import DiskError, TransferCorrupt
from evenflow.plan.plan import Copy
from evenflow.site.events import Event, Ship, StateArrived, TransferFailed
from evenflow.site.images import CaptureArrived, Hasten, OpenImage, PasteCapture, opened, paste
from evenflow.world.sim.clock import VirtualClock
from evenflow.world.sim.model import LinkModel


class Sends(Protocol):
    """A simulated site, as far as it sends and gets state."""

    alive: bool

    @property
    def index(self) -> int: ...
    def deliver(self, event: Event) -> None: ...
    def beside(self, do: Callable[[], None]) -> None: ...


class Carries(Protocol):
    """A simulated world, as far as state travels in it."""

    copied_bytes: int
    clock: VirtualClock
    random: Random
    link: LinkModel

    @property
    def sites(self) -> Sequence[Sends]: ...
    def transfer_fate(self, copy: Copy) -> str: ...


class SimShipping:
    """What one site sends beside its loop, and pastes. What a site that hangs has to do waits; a dead one does nothing.

    _shipped_us: until when its link carries what was sent before, where all transfers share it. _pasted_us: until when it pastes.
    """

    def __init__(self, site: Sends, world: Carries) -> None:
        self._site, self._world = site, world
        self._shipped_us = self._pasted_us = 0

    def ask(self, action: Ship | PasteCapture | OpenImage | Hasten) -> None:
        """Carry it out, and answer with its event where that is due."""
        world, takes_us = self._world, self._world.random.randint(*self._world.link.pack_us)
        match action:
            case Ship(copy, capture):
                world.clock.after(takes_us, lambda: self._site.beside(lambda: self._ship(copy, capture)))
            case PasteCapture() | OpenImage():
                # One after the other: a thread does it.
                self._pasted_us = max(self._pasted_us, world.clock.now_us) + takes_us
                world.clock.at(self._pasted_us, lambda: self._site.beside(lambda: self._site.deliver(self._done(action))))
            case Hasten():
                pass  # Nothing rests here: what a paste takes is drawn.
            case _:
                assert_never(action)

    def _done(self, action: PasteCapture | OpenImage) -> Event:
        return paste(action) if isinstance(action, PasteCapture) else StateArrived(action.copy, opened(action))

    def _ship(self, copy: Copy, capture: Any) -> None:
        """It is made bytes a while after it was taken."""
        world = self._world
        try:
            state: bytes = capture.to_bytes()
        except DiskError as error:
            failed = TransferFailed(copy.number, str(error))
            # Of a copy the target says that it has failed; a capture is its own site's.
            told = world.sites[copy.target if copy.number > 0 else self._site.index]
            world.clock.after(world.link.draw_delay(world.random), lambda: told.deliver(failed))
            return
        world.copied_bytes += len(state)
        takes_us = int(len(state) / world.link.bytes_per_us)
        if world.link.shared:
            self._shipped_us = max(self._shipped_us, world.clock.now_us) + takes_us
            takes_us = self._shipped_us - world.clock.now_us
        delay_us = world.link.draw_delay(world.random) + takes_us
        fate = world.transfer_fate(copy)
        event = _arrived(copy, state)
        if fate == "corrupt":
            flipped = bytearray(state)
            flipped[world.random.randrange(len(flipped))] ^= 1 << world.random.randrange(8)
            event = _arrived(copy, bytes(flipped))
        elif fate == "lost":
            event = TransferFailed(copy.number, str(TransferCorrupt("the transfer ended too soon")))

        def arrive() -> None:
            target, alive = world.sites[copy.target], self._site.alive
            if copy.number < 0 and fate == "lost":
                target = world.sites[self._site.index]
            if not target.alive or (not alive and world.random.random() < 0.5):
                return  # It died in the middle of it; the coordinator forgets the copy.
            target.deliver(event)

        world.clock.after(delay_us, arrive)


def _arrived(copy: Copy, state: bytes) -> Event:
    return StateArrived(copy.number, state) if copy.number > 0 else CaptureArrived(-copy.number, state)
