"""How far back a dataflow's state reaches: who reads from there on comes to the results of those who read everything (race.md, W4).

Of each box it is known how far back in event time lies what its output depends on: a window's size, the bounds of a join, the delay of a
watermark. Along a path they add up. Totals that never close, sessions, and the user's code with state reach back for ever. Log times are
taken to go with event time, as watermarks do; where they do not, a region that has begun there does not come to agree, and stays silent.
"""

from __future__ import annotations

from evenflow.query.kinds import read
from evenflow.query.network import Network


def horizon_us(network: Network) -> int | None:
    """Of all outputs, microseconds; None: some output depends on all that ever came."""
    reaches: dict[str, int] = {}
    return None if endless(network, reaches) else max([0, *reaches.values()])


def endless(network: Network, reaches: dict[str, int]) -> str | None:
    """The first box whose state reaches back for ever; None if there is none. reaches: how far back the output of each box depends on what
    came, filled in as far as that is known."""
    for box in network:
        own = read(box.kind, box.params).reach_us
        if own is None:
            return box.name
        reaches[box.name] = own + max([reaches[up] for up, _ in box.inputs], default=0)
    return None
