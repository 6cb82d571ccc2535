"""What a site is about to say: one section per peer, filled during a tick and sent at its end (protocol E4)."""

from __future__ import annotations

from evenflow.exchange.section import Section
from evenflow.stream.ids import SiteId


class Outbox(dict[SiteId, Section]):
    """Sections by peer. Looking up a peer begins its section; an empty one still carries an acknowledgement."""

    def __missing__(self, peer: SiteId) -> Section:
        section = self[peer] = Section([], [], [], [], [], [], None)
        return section

    def begin(self, peer: SiteId) -> None:
        """See to it that `peer` hears from this site this tick."""
        self[peer]

    def again(self, peer: SiteId, replay: Section) -> None:
        """Frames that were kept go out once more."""
        section = self[peer]
        section.bundles.extend(replay.bundles)
        section.marks.extend(replay.marks)

    def take(self) -> list[tuple[SiteId, Section]]:
        """Everything, in the order in which the sections were begun; empty afterwards."""
        taken = list(self.items())
        self.clear()
        return taken
