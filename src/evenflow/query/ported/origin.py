"""Who has what a plan names: a Spark session. The lowering asks for rows, for tables, and for functions, and knows no session."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from evenflow.query.ported.tree import Plan

if TYPE_CHECKING:
    from evenflow.processor import Processor
    from evenflow.sources.source import Source


class Origin(Protocol):
    """Who has the plan's rows: a Spark session."""

    def stream(self, plan: Plan, names: Sequence[str], kept: Sequence[str], above: Sequence[Plan], time: int | None) -> Source:
        """The rows of a part of the plan that Spark runs. names: of its columns; kept: those that are wanted. above: a chain to put on top
        of it, from below. time: id of a column that the chain loses, to be put behind the last one's; and behind that, for each condition
        of the chain, whether it holds."""

    def processor(self, plan: Plan, arguments: Mapping[str, str], given: Mapping[str, str], time: str | None) -> Processor:
        """The function of applyInPandasWithState. arguments, given: what the columns of its frames and of its results are called here, by
        what it calls them. time: event time of the rows."""

    def table(self, plan: Plan, names: Sequence[str], kept: Sequence[str]) -> Any:
        """The same of a batch DataFrame, as a DataFrame."""


__all__ = ["Origin"]
