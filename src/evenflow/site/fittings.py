"""A part without what lives in it: its ground, and those who acknowledge, release, count, spill and wake, and its audience.

What lives in a part takes these, and knows no rule and no event but by what it is called for.
"""

from __future__ import annotations

from evenflow.site.acknowledging import Acknowledging
from evenflow.site.audience import Audience
from evenflow.site.counting import Counting
from evenflow.site.ground import Ground, Setup
from evenflow.site.journalling import Journalling
from evenflow.site.keeping import Keeping
from evenflow.site.portioning import Portioning
from evenflow.site.releasing import Releasing
from evenflow.site.spilling import Spilling
from evenflow.site.waking import GridWaking, Waking


class Fittings(Ground):
    """See the module, and `Ground`."""

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup)
        self.acknowledging = Acknowledging(self, self.credit)
        self.releasing = Releasing(self)
        self.feeding.portioned = Portioning(self, self.releasing).came
        self.spilling = Spilling(self)
        self.waking = GridWaking(self) if self.by_content else Waking(self)
        self.counting = Counting(self)
        self.journalling = Journalling(self)
        self.keeping = Keeping(self)
        self.audience = Audience(self.layout, self.view, self.credit, received=self.acknowledging.received, say_closed=self.say_closed)
        self.audience.all_read = self.by_content

    def waiting(self) -> tuple[tuple[int, int], ...]:
        """(stream, bytes of its frames that wait here for their epoch), ascending."""
        found: dict[int, int] = {}
        for cohort in self.cohorts.values():
            for stream, inbox in cohort.inboxes.items():
                found[stream] = found.get(stream, 0) + inbox.frame_bytes
        return tuple(sorted(found.items()))

    @property
    def buffered_bytes(self) -> int:
        """Frames that wait here for their epoch, for an acknowledgement or for a sink."""
        return sum([cohort.frame_bytes for cohort in self.cohorts.values()]) + self.releasing.frame_bytes
