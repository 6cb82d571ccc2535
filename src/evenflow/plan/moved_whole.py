"""A segment whose keys can only be moved whole: partitions can go from site to site, a key of it cannot be split. See query/whole.py."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class MovedWhole:
    """A segment whose keys can only be moved whole. box: the one that keeps them from being combined. reason: in words."""

    segment: int
    box: str
    keys: tuple[str, ...]
    reason: str

    def to_json(self) -> dict[str, Any]:
        return {"segment": self.segment, "box": self.box, "keys": list(self.keys), "reason": self.reason}

    def __str__(self) -> str:
        return f"{self.box} by {', '.join(self.keys)}: {self.reason}"
