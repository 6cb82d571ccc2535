"""Boxes whose answers are no function of their input: who asks a service, a clock or chance. What they have said cannot be made again."""

from __future__ import annotations

from evenflow.errors import QueryError
from evenflow.query.kinds import read
from evenflow.query.network import Box, Network


def arbitrary(network: Network) -> tuple[Box, ...]:
    """The boxes of the network that may answer otherwise when they are asked again."""
    return tuple(box for box in network if not read(box.kind, box.params).repeats)


def check_runs_once(network: Network, location: str | None, *, regions: bool = False) -> None:
    """Raise QueryError for a box that cannot answer twice where a restart would have it do so, or each of several regions."""
    for box in arbitrary(network):
        if regions:
            why = "each region of the group would ask by itself, and may get another answer; run it without a group"
        elif location is not None:
            why = "a restart at its location would ask again, and may get another answer; run it without a checkpoint location"
        else:
            continue
        raise QueryError(f"box {box.name!r}: {why}, or say deterministic=True if an answer never changes")
