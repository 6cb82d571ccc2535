"""Depending: from which epoch on a segment's partitions would have to be fed again if they were lost now (availability.md, B2; HW 3.4.2).

With upstream backup nobody keeps a state. Its producers keep the rows that it follows from instead, and a lost partition begins again with
nothing at its **base**: it takes in again what came after that, and what it puts out then is right from the epoch on that somebody may
still ask for. So the base is the last epoch of which no row is in the state any more, as it was after the newest epoch that all consumers
hold for good, or the sink has stored.

Which rows are in a state follows from event time. An operator whose state closes says how far back it reaches (`Reaching`). The greatest
event time that any source has given goes along with every epoch (`Tick.newest`), so epochs up to the last one whose rows are all older than
that are not needed. Every so many epochs the reach is noted, and when what was put out up to then is safe, it is told.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from evenflow.availability.mode import Mode
from evenflow.operator.facts import Facts
from evenflow.plan.layout import Layout
from evenflow.site.cohort import Cohort
from evenflow.site.facts import Depends
from evenflow.site.ground import Acts
from evenflow.site.releasing import Releasing
from evenflow.site.view import View
from evenflow.stream.epoch import END_OF_STREAM, NO_WATERMARK, Tick

EVERY: Final = 16
"""Epochs from one look at how far states reach to the next. It may cost as much as there are open sessions."""
STEPS_MAX: Final = 4096
"""So many steps of event time are told apart; of more, every other one is forgotten, which makes the base older."""


@dataclass(slots=True)
class History:
    """Of the live partitions of a segment here, since there have been any without a break. last: the epoch that was added last. steps:
    (epoch, newest, watermark before it), where the greatest event time has grown. samples: (epoch, oldest event time that is in the state
    behind it, watermark), that have not been told. partitions: whose states were looked at."""

    last: int
    partitions: tuple[int, ...] = ()
    steps: deque[tuple[int, int, int]] = field(default_factory=deque)
    samples: deque[tuple[int, int, int]] = field(default_factory=deque)

    def add(self, tick: Tick) -> None:
        """An epoch was processed."""
        self.last = tick.epoch
        if not self.steps or tick.newest > self.steps[-1][1]:
            self.steps.append((tick.epoch, tick.newest, tick.before))
            if len(self.steps) > STEPS_MAX:
                # What is left out counts as of the step before it, with the greater time of its own.
                kept = list(self.steps)
                self.steps = deque((a[0], b[1], a[2]) for a, b in zip(kept[::2], kept[1::2] + kept[-1:], strict=False))

    def base(self, safe: int) -> tuple[int, int] | None:
        """(the base where all have what was put out up to epoch `safe`, the watermark there); None if it is not known, or as before."""
        due = None
        while self.samples and self.samples[0][0] <= safe:
            due = self.samples.popleft()
        if due is None:
            return None
        epoch, oldest, watermark = due
        needed = next((at for at, step in enumerate(self.steps) if step[0] <= epoch and step[1] >= oldest), None)
        passed = needed if needed is not None else sum(step[0] <= epoch for step in self.steps) - 1
        for _ in range(passed):
            self.steps.popleft()
        if needed is None:
            return epoch, watermark
        return (self.steps[0][0] - 1, self.steps[0][2]) if needed else None


class Depending:
    """See the module."""

    def __init__(self, layout: Layout, view: View, acts: Acts, releasing: Releasing) -> None:
        self._layout, self._view, self._acts, self._releasing = layout, view, acts, releasing
        self._ahead = _ahead(layout)
        self._of: dict[int, History] = {}

    def _follows(self, cohort: Cohort) -> bool:
        """It has upstream backup."""
        plan = self._view.plan
        if plan.modes and plan.mode(cohort.segment.id) is Mode.UPSTREAM:
            return True
        self._of.pop(cohort.segment.id, None)
        return False

    def _safe(self, cohort: Cohort) -> int:
        """The last epoch of which nobody asks for what the cohort has put out, whoever dies."""
        safe = [retained.released() for retained in cohort.retained.values()]
        if cohort.segment.sink is not None:
            safe.append(self._releasing.through(cohort.segment.id))
        return min(safe, default=cohort.hosted.done)

    def note(self, cohort: Cohort, tick: Tick, order: Sequence[Cohort]) -> bool:
        """A cohort has processed an epoch. order: all that are here. True if it has upstream backup: it may put out again, and otherwise,
        what nobody asks for any more, so its digests are compared with nothing."""
        if follows := self._follows(cohort):
            self._note(cohort, tick, order)
        return follows

    def _note(self, cohort: Cohort, tick: Tick, order: Sequence[Cohort]) -> None:
        segment = cohort.segment.id
        if cohort.number:
            return
        history = self._of.get(segment)
        if history is None or tick.epoch != history.last + 1:
            # What has come, or come back, has a state of before: of what it follows is not known here, and what was is no help.
            history = self._of[segment] = History(tick.epoch)
        history.add(tick)
        if any(other.number and other.segment.id == segment for other in order) or not _is_here(cohort):
            return
        if cohort.partitions != history.partitions:
            # Of those that have come since, what was looked at before says nothing.
            history.partitions = cohort.partitions
            history.samples.clear()
        if tick.epoch % EVERY == 0 or tick.last:
            history.samples.append((tick.epoch, oldest_needed(cohort.hosted.facts, tick, self._ahead[segment]), tick.watermark))
        if (found := history.base(self._safe(cohort))) is not None:
            self._acts.tell(Depends(self._view.plan.number, segment, *found))


def oldest_needed(facts: Facts, tick: Tick, ahead_us: int) -> int:
    """The least event time of a source's row that the state behind an epoch may follow from, and what is held back of what comes of it.

    ahead_us: see `_ahead`. Where rows were left out, what is lost has to be known as well as the rows are: a session may yet begin as long
    before the watermark as a row is not late, and is held back by rows as long before that.
    """
    if not facts.reaching or tick.watermark == END_OF_STREAM:
        return END_OF_STREAM
    if tick.watermark == NO_WATERMARK:
        return NO_WATERMARK
    reach = sum(max(0, tick.watermark - each.oldest_us(tick.watermark)) for each in facts.reaching)
    return tick.watermark - reach - ahead_us - (2 * facts.around_us if tick.lost else 0)


def _is_here(cohort: Cohort) -> bool:
    """How far all of its partitions' states reach can be seen: none takes turns, or it follows from the watermark alone."""
    turns = cohort.turns
    return turns is None or not turns.groups or all(each.by_watermark for each in cohort.hosted.facts.reaching)


def _ahead(layout: Layout) -> dict[int, int]:
    """By segment: how far the event time of its rows may be ahead of the newest row of any source. A window's result may bear its end."""
    found: dict[int, int] = {}
    for segment in layout.segments:
        before = [found[layout.arcs[arc].producer] for arc in segment.inputs]
        windows = [step.params.get("window") for step in segment.steps]
        sizes = [getattr(window, "size_us", 0) + getattr(window, "lateness_us", 0) for window in windows]
        found[segment.id] = max(before, default=0) + sum(sizes)
    return found
