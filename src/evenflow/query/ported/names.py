"""What the columns of a plan are called in the SQL that is made of it: each by a name that no other column of the whole plan has."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from evenflow.query.ported.tree import Attribute
from evenflow.query.script.relation import free_name


@dataclass
class Names:
    """What columns are called here. bounds: start and end of columns that are windows. sizes: in microseconds, of those that are over
    the event time of their rows, with the name of that time. first: the name that a column had before it was given another one."""

    columns: dict[int, str] = field(default_factory=dict)
    bounds: dict[int, tuple[str, str]] = field(default_factory=dict)
    sizes: dict[int, tuple[int, str]] = field(default_factory=dict)
    first: dict[str, str] = field(default_factory=dict)

    def of(self, column: Attribute) -> str:
        if column.id not in self.columns:
            self.columns[column.id] = self._free(column.name)
        return self.columns[column.id]

    def window(self, column: Attribute) -> tuple[str, str]:
        if column.id not in self.bounds:
            self.bounds[column.id] = (self._free(f"{column.name}_start"), self._free(f"{column.name}_end"))
        return self.bounds[column.id]

    def rename(self, old: str, new: str) -> None:
        """A projection gives a column another name."""
        self.first[new] = self.first.get(old, old)

    def size_of(self, windows: Sequence[int], times: Sequence[str | None]) -> int | None:
        """How long two equal windows are, by their ids, if they are over the event times of the two sides of a join; else None."""
        found = [self.sizes[window] for window in windows if window in self.sizes]
        over = {self.first.get(time, time) for _, time in found}
        if len(found) != 2 or None in times or over != {self.first.get(str(time), time) for time in times}:
            return None
        return min(size_us for size_us, _ in found)

    def _free(self, stem: str) -> str:
        return free_name(stem, [*self.columns.values(), *(bound for pair in self.bounds.values() for bound in pair)])


__all__ = ["Names"]
