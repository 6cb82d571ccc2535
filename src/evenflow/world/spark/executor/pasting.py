"""A site's images: captures are pasted, and what is in an image is read, on a thread beside the event loop (availability.md, P2).

A paste gives way to the loop three times as long as it takes, and where an executor's JVM starts meanwhile it takes long. So that ends at
once when what is lost waits for an image: for its own captures, and for those of others that stand before them.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import assert_never

from evenflow.site.events import Event, StateArrived, TransferFailed
from evenflow.site.images import CapturePasted, Hasten, ImageOrder, OpenImage, PasteCapture, opened, paste
from evenflow.world.spark.executor.beside import Beside
from evenflow.world.spark.executor.resting import Rests
from evenflow.world.spark.net.reactor import Reactor

log = logging.getLogger("evenflow")


class Pasting(Beside[ImageOrder]):
    """One for each run that has images here. _hastened: nothing rests. _turns: how often it was asked to hasten and has not been asked, or
    has not come, to the end of that."""

    def __init__(self, name: str, reactor: Reactor, answer: Callable[[Event], None]) -> None:
        self._hastened, self._turns, self._guard = threading.Event(), 0, threading.Lock()
        super().__init__(name, reactor, answer)

    def ask(self, order: ImageOrder) -> None:
        """As `Beside.ask`; but whoever rests hears at once that it is waited for."""
        if isinstance(order, Hasten) and order.on:
            self._turn(1)
        else:
            super().ask(order)

    def close(self) -> None:
        """As `Beside.close`, and nobody rests."""
        self._turn(1)
        super().close()

    def _turn(self, by: int) -> None:
        with self._guard:
            self._turns += by
            (self._hastened.set if self._turns else self._hastened.clear)()

    def _done(self, order: ImageOrder) -> Event | None:
        try:
            match order:
                case PasteCapture():
                    return paste(order, Rests(self._hastened.wait))
                case OpenImage():
                    return StateArrived(order.copy, opened(order))
                case Hasten():
                    self._turn(-1)
                    return None
                case _:
                    assert_never(order)
        except Exception as error:  # It costs the image, and not the site.
            log.exception("an image cannot be used")
            why = f"{type(error).__name__}: {error}"
            if isinstance(order, PasteCapture):
                order.image.forget()
                return CapturePasted(order.unit, -1, why=why)
            assert isinstance(order, OpenImage)
            return TransferFailed(order.copy, why)
