"""State that is rows held together: what operators that keep rows in runs have in common."""

from __future__ import annotations

from evenflow.operator.operator import Changing
from evenflow.state.held_changes import HeldChanges


class Holding(Changing):
    """Mixin: `_changes` knows which of the rows a checkpoint has had. Who installs rows says so to it, and who drops a partition."""

    _changes: HeldChanges

    @property
    def changes(self) -> HeldChanges:
        return self._changes
