"""What a site has of the images of others' units, and how much memory it counts for them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from evenflow.site.facts import NoRoom, Pasted
from evenflow.site.images import CapturePasted, PasteCapture
from evenflow.site.imaging import Imaging


@dataclass
class Acts:
    """done, told: what the site does, and what it says to the coordinator."""

    done: list[Any] = field(default_factory=list)
    told: list[Any] = field(default_factory=list)

    def act(self, action: Any) -> None:
        self.done.append(action)

    def tell(self, fact: Any) -> None:
        self.told.append(fact)


def test_memory_is_counted_of_what_is_pasted_and_of_what_waits() -> None:
    """Goal: `image_memory_mb` holds while captures come faster than they are pasted, and nothing counts that is gone."""
    acts = Acts()
    imaging = Imaging(acts, 1_000)  # type: ignore[arg-type]
    imaging.take(1, bytes(400))
    imaging.take(1, bytes(400))
    assert imaging.image_bytes == 800 and len(acts.done) == 1, "one is pasted at a time"
    imaging.pasted(CapturePasted(1, -1, image_bytes=250, frames=((0, bytes(50)),)))
    assert imaging.image_bytes == 700, "what is pasted, and the other one"
    imaging.take(2, bytes(301))
    assert acts.told[-1] == NoRoom(2, 301) and 2 not in imaging.images
    imaging.take(2, bytes(300))
    assert imaging.image_bytes == 1_000
    imaging.take(1, bytes(1))
    assert acts.told[-1] == NoRoom(1, 701)
    imaging.pasted(CapturePasted(1, -1, why="torn"))
    assert imaging.image_bytes == 300 and acts.told[-1] == Pasted(1, -1), "it is of no use any more"
    imaging.drop((2,))
    assert imaging.image_bytes == 0
    imaging.pasted(CapturePasted(2, 4))
    assert [type(action) for action in acts.done] == [PasteCapture] * 3 and 2 not in imaging.images


def test_a_capture_that_does_not_fit_leaves_what_is_there() -> None:
    acts = Acts()
    imaging = Imaging(acts, None)  # type: ignore[arg-type]
    imaging.take(1, bytes(10))
    imaging.pasted(CapturePasted(1, 5, image_bytes=70))
    imaging.take(1, bytes(20))
    imaging.pasted(CapturePasted(1, 5, why="of another time"))
    assert imaging.image_bytes == 70
