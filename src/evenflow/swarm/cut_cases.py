"""Runs whose sources are cut by content: the same cases, read by every replica for itself (protocol E9 to E11, I4, A6)."""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import Final

from evenflow.query.network import Network
from evenflow.sources.cut import CutSource
from evenflow.swarm.shed_cases import BEGIN_US

CUT: Final = 0.15
"""So many of the seeds whose sources can be."""


def is_cut(seed: int) -> bool:
    """Its sources are cut by content, if they can be."""
    return Random(f"cuts of seed {seed}").random() < CUT


def by_content(network: Network, random: Random) -> Network | None:
    """The network with all its sources cut by their places, epochs of as many rows; None if one of them cannot be."""
    if any(box.params["source"].not_cut("place", trusted=False, mirrored=False) for box in network.of_kind("source")):
        return None
    rows = random.choice([1, 2, 5, 20, 100])

    def cut(source: object) -> CutSource:
        return CutSource(source, "place", rows=rows, begin_us=BEGIN_US)  # type: ignore[arg-type]

    boxes = [
        replace(box, params={**box.params, "source": cut(box.params["source"])}) if box.kind == "source" else box for box in network
    ]
    return Network(network.name, tuple(boxes))
