"""Where a region begins that would rather be silent for a while than read everything: behind its horizon (race.md, W4)."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final

from evenflow.availability.group import Region, differs
from evenflow.availability.silence import near
from evenflow.errors import QueryError, RegionsUnreachable
from evenflow.plan.layout import Layout
from evenflow.query.horizon import endless
from evenflow.query.network import Network
from evenflow.sinks.stream import StreamSink
from evenflow.sources.cut import CutSource
from evenflow.stream.region_url import Place, place_of
from evenflow.world.spark.net.trust import Given, Trust
from evenflow.world.spark.regions.silent import Ear, Silent, Withholding
from evenflow.world.spark.regions.subscriber import Subscriber
from evenflow.world.spark.regions.words import secret_of

ASK_S: Final = 10.0
"""So long the other regions are asked how far they are. Where none answers there is nobody to agree with, and everything is read."""


def begun_near(network: Network, layout: Layout, region: Region) -> tuple[Layout, Region]:
    """The layout and the region as it begins: behind its horizon if a live region is there, else from the group's begin.

    Raises QueryError, naming the box or the source, where there is no horizon; GroupDiffers; OptionError for a secret that is missing.
    """
    back_us = _horizon_us(network, layout, region)
    made = _newest(layout, region)
    if made is None:
        return layout, region
    reading = near(made, -(-back_us // region.group.width_us))
    sources = {name: replace(source, after=reading.after) for name, source in layout.sources.items() if isinstance(source, CutSource)}
    return replace(layout, sources=sources), replace(region, after=reading.after)


def _horizon_us(network: Network, layout: Layout, region: Region) -> int:
    whose = f"group {region.group.name}: a region with peers begins behind its horizon, and"
    by_place = next((name for name, source in layout.sources.items() if getattr(source, "by", "") != "time"), None)
    if by_place is not None:
        raise QueryError(f"{whose} places of source {by_place!r} do not say how far back that is; leave peers out, or give cut_by='time'")
    reaches: dict[str, int] = {}
    if (box := endless(network, reaches)) is not None:
        raise QueryError(f"{whose} state of box {box!r} reaches back for ever; leave peers out, so that everything is read, or bound it")
    unordered = next((segment.sink for segment in layout.segments if segment.sink is not None and segment.unordered), None)
    if unordered is not None:
        raise QueryError(f"{whose} sink {unordered!r} takes rows as they come, which cannot be withheld; leave unordered or peers out")
    return max([0, *reaches.values()])


def _newest(layout: Layout, region: Region) -> int | None:
    """The last epoch with rows that a live region has, of all sinks that are compared; None if no region answers for one of them."""
    found, until_s = 0, time.monotonic() + ASK_S
    for sink, (places, trust) in _peers(layout, region).items():
        with Subscriber(places, region.group.name, sink, None, trust, race=False, patience_s=ASK_S) as asked:
            try:
                while asked.facts is None:
                    if time.monotonic() >= until_s:
                        return None
                    asked.take(0.05)
            except RegionsUnreachable:
                return None
            differs(region.group.facts(), asked.facts, ", ".join(f"{host}:{port}" for host, port, _ in places))
            found = max(found, asked.delivered)
    return found


def _peers(layout: Layout, region: Region) -> dict[str, tuple[Sequence[Place], Trust]]:
    tls = None if region.tls_ca is None else Given(region.tls_ca, "", "")

    def trust(sink: str) -> Trust:
        given = layout.sinks[sink]
        assert isinstance(given, StreamSink), "only stream sinks are compared"
        return Trust(secret_of(given.secret_file, f"stream sink {sink!r}"), tls)

    return {sink: ([place_of(url) for url in urls], trust(sink)) for sink, urls in region.peers.items()}


class Silenced:
    """The outlets of a run that is silent: one gate, and one ear. silent: of it."""

    def __init__(self, layout: Layout, region: Region) -> None:
        self.silent = Silent(region.after, tuple(region.peers))
        self._ear = Ear(self.silent, _peers(layout, region), region.group.facts())

    def withholding(self, opened: Any, sink: str) -> Withholding:
        return Withholding(opened, self.silent, sink, self._ear)


def silenced(layout: Layout, region: Region | None) -> Silenced | None:
    """Of a run that begins silent; None for any other."""
    return None if region is None or not region.after else Silenced(layout, region)


__all__ = ["Silenced", "begun_near", "silenced"]
