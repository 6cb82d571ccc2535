"""The coordinator's machine for one run of a dataflow: `rules` say which effect an event has, `effects` what that is."""

from __future__ import annotations

from evenflow.coordinator.effects import RunEffects
from evenflow.coordinator.events import CoordinatorAction, CoordinatorEvent
from evenflow.coordinator.rules import RULES


class RunMachine(RunEffects):
    """Events in, actions out. For what it is made of see `RunEffects`."""

    @property
    def durable(self) -> int | None:
        """The last epoch that ends may take (J3), None if they need not wait."""
        return None if self.journal is None or not self.journal.precise else self.journal.durable

    @property
    def kept(self) -> int:
        """The last epoch that a restart would not cut otherwise; 0 if there is none."""
        return 0 if self.journal is None else self.journal.durable

    def remember(self, before: RunMachine) -> None:
        """What the generation before has met, in the same process."""
        self.deaths.remember(before.deaths)
        self.losses.remember(before.losses)

    def handle(self, event: CoordinatorEvent) -> list[CoordinatorAction]:
        """Take one event. Returns actions in the order in which they must be carried out."""
        RULES.apply(self, event, self.story)
        actions, self._actions = self._actions, []
        return actions
