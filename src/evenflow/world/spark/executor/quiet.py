"""Whether a site has anything to report: an idle dataflow costs what its reports do, and they would say the same again."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

QUIET_REPORTS: Final = 3
"""So many in a row are left out at most."""

Stands = tuple[int, ...]
"""How far a part is."""


class Quiet:
    """Told how far the parts are whenever a report is due."""

    def __init__(self) -> None:
        self._told: Sequence[Stands | None] | None = None
        self._left_out = 0

    def holds(self, stands: Sequence[Stands | None]) -> bool:
        """Whether this report may be left out. stands: of each part; None: something is under way there, so that the time alone is news."""
        if self._left_out < QUIET_REPORTS and None not in stands and stands == self._told:
            self._left_out += 1
            return True
        self._left_out, self._told = 0, stands
        return False
