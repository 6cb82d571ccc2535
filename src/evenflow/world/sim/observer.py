"""Who watches a simulated run: checkers, the story of a failing seed, measurements. They only look; what is wrong they raise."""

from __future__ import annotations

from typing import TYPE_CHECKING

from evenflow.coordinator.events import CoordinatorAction, CoordinatorEvent
from evenflow.site.events import Event, Release
from evenflow.site.hosted import Work
from evenflow.site.outcome import Outcome

if TYPE_CHECKING:
    from evenflow.world.sim.driver import SimDriver
    from evenflow.world.sim.site import SimSite


class Observer:
    """Each method is called when the thing has just happened, unless it says otherwise. The default looks away."""

    def before_handled(self, site: SimSite, event: Event) -> None:
        """A site's part is about to handle an event."""

    def handled(self, site: SimSite, event: Event) -> None:
        """A site's part has handled an event."""

    def worked(self, site: SimSite, work: Work, outcome: Outcome) -> None:
        """A site has processed an epoch of one of its cohorts; its part does not know yet."""

    def coordinated(self, driver: SimDriver, event: CoordinatorEvent, actions: list[CoordinatorAction]) -> None:
        """The coordinator's machine has handled an event."""

    def release_came(self, site: int, release: Release, accepted: bool) -> None:
        """A site's release has reached the driver, which may have had that epoch already."""

    def portion_came(self, site: int, release: Release, fresh: tuple[int, ...]) -> None:
        """A site's release of a portion of an epoch has reached the driver, who takes the rows of these partitions."""

    def portion_stored(self, release: Release, stored: tuple[int, ...]) -> None:
        """A sink has been given a portion of an epoch, and has stored the rows of these partitions: it had those of the others."""

    def committed(self, release: Release) -> None:
        """A sink has stored an epoch."""

    def fault(self, text: str) -> None:
        """A fault begins or ends."""
