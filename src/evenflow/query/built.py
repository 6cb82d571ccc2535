"""Processors that are no code of the user's: descriptions of boxes that the engine has an operator for.

They are drawn as `process` is, so that they are planned, saved as JSON, moved and shown as any processor. What runs is the operator.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from evenflow.processor import BatchProcessor


class Built(BatchProcessor):
    """operator: "module:Class" below `evenflow.operator`, built of the input's schema, the keys and this description. lag_us: how far the
    event time of what it puts out may be behind the watermark of what comes in."""

    operator: ClassVar[str]

    @property
    def lag_us(self) -> int:
        return 0

    def event_time(self, time: str | None) -> str | None:
        """The column of what it puts out that is the event time; None: there is none. time: that of what comes in."""
        return time

    def process(self, rows: Any, groups: Any, state: Any) -> Any:  # type: ignore[override]
        raise AssertionError(f"{type(self).__name__} describes {self.operator}, which is run in its place")


def params_of(keys: Sequence[str], described: Built) -> dict[str, Any]:
    """Those of the box: what a built operator gives depends on no order in which rows come."""
    return {"keys": tuple(keys), "processor": described, "order": "arrival", "tie_break": None, "verify": None}
