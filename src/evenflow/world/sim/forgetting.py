"""What sources have lost while nobody read them: their first rows, as who keeps rows for a time only, or their last ones, as a file that
somebody has cut. It lasts over generations, and so may what somebody gives back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from evenflow.errors import SourceError

if TYPE_CHECKING:
    from evenflow.site.events import OpenSource


@dataclass(frozen=True, slots=True)
class Kept:
    """Positions of the rows that an ingress partition's source still has: from `first` on, up to `behind`, None: up to its end."""

    first: int = 0
    behind: int | None = None


def what_is_left(reader: Any, opening: OpenSource, source: str, kept: Mapping[tuple[int, int], Kept]) -> Any:
    """A reader of what the source still has of a partition. kept: by (segment, partition) of those that have lost some."""
    left = kept.get((opening.segment, opening.partition))
    return reader if left is None else PartialReader(reader, opening.rows, left, f"source {source!r}: partition {opening.partition}")


class PartialReader:
    """A reader of a source that has lost some rows. at: position of the next row."""

    def __init__(self, reader: Any, at: int, kept: Kept, named: str) -> None:
        self._reader, self._at, self._kept, self._named = reader, at, kept, named

    def __getattr__(self, name: str) -> Any:
        return getattr(self._reader, name)

    @property
    def ended(self) -> bool:
        behind = self._kept.behind
        return bool(self._reader.ended) or (behind is not None and self._at >= behind)

    @property
    def wake_us(self) -> int | None:
        """When it is worth asking; None where nothing more comes, whatever the source had."""
        wake_us: int | None = None if self.ended else self._reader.wake_us
        return wake_us

    def read(self, now_us: int, max_rows: int) -> pa.RecordBatch | None:
        """Raises SourceError, which names the partition and the positions."""
        if self._at < self._kept.first:
            raise SourceError(
                f"{self._named} goes on from position {self._at}, and the first row that its source has is {self._kept.first}"
            )
        room = max_rows if self._kept.behind is None else min(max_rows, self._kept.behind - self._at)
        batch: pa.RecordBatch | None = self._reader.read(now_us, room) if room > 0 else None
        self._at += 0 if batch is None else batch.num_rows
        return batch
