"""Boxes whose answers are no function of their input: who asks a service, a clock or chance. What they have said cannot be made again."""

from __future__ import annotations

from evenflow.errors import QueryError
from evenflow.query.kinds import KINDS, read
from evenflow.query.network import Box, Network


def arbitrary(network: Network) -> tuple[Box, ...]:
    """The boxes of the network that may answer otherwise when they are asked again."""
    return tuple(box for box in network if not read(box.kind, box.params).repeats)


def check_runs_once(network: Network, replicas: int, location: str | None, *, regions: bool = False) -> None:
    """Raise QueryError for a box that would have to answer twice: at each of several regions, after a restart, or, where it has state that
    follows from its answers, at each replica."""
    for box in arbitrary(network):
        if regions:
            why = "each region of the group would ask by itself, and may get another answer; run it without a group"
        elif location is not None:
            why = "a restart at its location would ask again, and may get another answer; run it without a checkpoint location"
        elif replicas > 1 and KINDS[box.kind].stateful:
            why = (
                f"its state follows from what it was told, and each of the {replicas} replicas would ask by itself; start it with "
                "replicas=1, or ask before it, in .lookup(...) or .flat_map(..., deterministic=False)"
            )
        else:
            continue
        raise QueryError(f"box {box.name!r}: {why}, or say deterministic=True if an answer never changes")
