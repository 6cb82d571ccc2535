"""The way to what the regions of a group have made, for the reader of a site (`sources.group`): a subscription like anybody's.

Each replica of the ingress partition has one of its own, in the thread of its reader.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from evenflow.kernels.digest import in_one_order
from evenflow.sources.group import Begin, GroupSource
from evenflow.stream.region_url import places_of
from evenflow.world.spark.net.trust import Given, Trust
from evenflow.world.spark.regions.subscriber import Subscriber
from evenflow.world.spark.regions.words import secret_of


class Subscribed:
    """See `sources.group.Upstream`."""

    def __init__(self, subscriber: Subscriber) -> None:
        self._subscriber = subscriber

    @property
    def facts(self) -> Mapping[str, Any] | None:
        return self._subscriber.facts

    @property
    def through(self) -> int:
        return self._subscriber.through

    @property
    def ended(self) -> bool:
        return self._subscriber.ended

    def take(self, wait_s: float) -> tuple[int, pa.RecordBatch] | None:
        found = self._subscriber.take(wait_s)
        return None if found is None else (found[0], in_one_order(found[1]))

    def close(self) -> None:
        self._subscriber.close()


def by_subscription(source: GroupSource, begin: Begin) -> Subscribed:
    """Raises OptionError where the site has no secret, or cannot read it."""
    tls = None if source.tls_ca is None else Given(source.tls_ca, "", "")
    trust = Trust(secret_of(source.secret_file, str(source)), tls)
    places = places_of(source.urls, source.tls_ca, str(source))
    made = Subscriber(places, source.group, source.sink, begin, trust, race=source.race, patience_s=source.patience_s, marks=True)
    return Subscribed(made)
