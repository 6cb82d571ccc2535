"""A snapshot: what every kind of state can be asked for once it has been captured."""

from __future__ import annotations

from typing import Protocol


class Snapshot(Protocol):
    """One partition's state as of the end of an epoch, frozen (protocol S1). Taking it copies nothing."""

    def to_bytes(self) -> bytes:
        """The state as bytes, equal bytes for equal states. May be called later, from another thread."""
