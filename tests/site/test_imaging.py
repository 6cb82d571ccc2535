"""What a site has of the images of others' units, and how much memory it counts for them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from evenflow.site.bases import ReportImages, Revive
from evenflow.site.facts import Imaged, NoRoom, Pasted
from evenflow.site.images import CapturePasted, Hasten, OpenImage, PasteCapture
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


FACTS: dict[str, Any] = {"own": [], "partitions": [0], "digests": []}


def held(acts: Acts, *units: int) -> Imaging:
    """A site that has images of these units, as of the end of epoch 4."""
    imaging = Imaging(acts, None)  # type: ignore[arg-type]
    for unit in units:
        imaging.take(unit, bytes(10))
        imaging.images[unit].image.epoch = 4
        imaging.pasted(CapturePasted(unit, 4, image_bytes=70, facts=FACTS))
    return imaging


def hastened(acts: Acts) -> list[Any]:
    """What was done of images but to paste, in order."""
    return [action for action in acts.done if not isinstance(action, PasteCapture)]


def test_nobody_gives_way_from_the_question_until_the_last_image_is_read() -> None:
    """Goal: what is lost waits for no rest, of its own captures or of others'. Method: two units are lost; the second is read last."""
    acts = Acts()
    imaging = held(acts, 1, 2, 3)
    imaging.take(2, bytes(10))
    imaging.report(ReportImages((1, 2)))
    assert hastened(acts) == [Hasten(True)] and acts.told[-1] == Pasted(3, 4), "one is not pasted yet"
    imaging.pasted(CapturePasted(2, 4, image_bytes=70, facts=FACTS))
    assert acts.told[-1] == Imaged((Pasted(1, 4), Pasted(2, 4)))
    imaging.revive(Revive(7, 0, (0,), 4, (), 1))  # type: ignore[arg-type]
    assert [type(action) for action in hastened(acts)] == [Hasten, OpenImage]
    imaging.revive(Revive(8, 1, (0,), 4, (), 2))  # type: ignore[arg-type]
    assert [type(action) for action in hastened(acts)] == [Hasten, OpenImage, OpenImage, Hasten]
    assert acts.done[-1] == Hasten(False), "behind the last one"
    imaging.drop((1, 2, 3))
    assert acts.done[-1] == Hasten(False) and len(hastened(acts)) == 4


def test_nobody_waits_for_what_is_dropped_or_was_never_there() -> None:
    acts = Acts()
    imaging = held(acts, 1)
    imaging.report(ReportImages((5,)))
    assert acts.told[-1] == Imaged((Pasted(5, -1),)) and hastened(acts) == [Hasten(True), Hasten(False)]
    imaging.report(ReportImages((1,)))
    imaging.drop((1,))
    assert hastened(acts)[2:] == [Hasten(True), Hasten(False)]
