"""What the columns of a plan are called in the SQL that is made of it: each by a name that no other column of the whole plan has."""

from __future__ import annotations

from dataclasses import dataclass, field

from evenflow.query.ported.tree import Attribute
from evenflow.query.script.relation import free_name


@dataclass
class Names:
    """What columns are called here. bounds: start and end of columns that are windows. sizes: in microseconds, of those that are over
    the event time of their rows."""

    columns: dict[int, str] = field(default_factory=dict)
    bounds: dict[int, tuple[str, str]] = field(default_factory=dict)
    sizes: dict[int, int] = field(default_factory=dict)

    def of(self, column: Attribute) -> str:
        if column.id not in self.columns:
            self.columns[column.id] = self._free(column.name)
        return self.columns[column.id]

    def window(self, column: Attribute) -> tuple[str, str]:
        if column.id not in self.bounds:
            self.bounds[column.id] = (self._free(f"{column.name}_start"), self._free(f"{column.name}_end"))
        return self.bounds[column.id]

    def _free(self, stem: str) -> str:
        return free_name(stem, [*self.columns.values(), *(bound for pair in self.bounds.values() for bound in pair)])


__all__ = ["Names"]
