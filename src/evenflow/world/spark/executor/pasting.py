"""A site's images: captures are pasted, and what is in an image is read, on a thread beside the event loop (availability.md, P2)."""

from __future__ import annotations

import logging
from typing import assert_never

from evenflow.site.events import Event, StateArrived, TransferFailed
from evenflow.site.images import CapturePasted, ImageOrder, OpenImage, PasteCapture, opened, paste
from evenflow.world.spark.executor.beside import Beside
from evenflow.world.spark.executor.resting import Rests

log = logging.getLogger("evenflow")


class Pasting(Beside[ImageOrder]):
    """One for each run that has images here."""

    def _done(self, order: ImageOrder) -> Event:
        try:
            match order:
                case PasteCapture():
                    return paste(order, Rests(self._closed.wait))
                case OpenImage():
                    return StateArrived(order.copy, opened(order))
                case _:
                    assert_never(order)
        except Exception as error:  # It costs the image, and not the site.
            log.exception("an image cannot be used")
            why = f"{type(error).__name__}: {error}"
            if isinstance(order, PasteCapture):
                order.image.forget()
                return CapturePasted(order.unit, -1, why=why)
            return TransferFailed(order.copy, why)
