"""Which refreshed tables a network is joined with, and what was read of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pyarrow as pa

from evenflow.query.network import Box, Network
from evenflow.query.tables import RefreshedTable


def refreshed_tables(network: Network) -> tuple[RefreshedTable, ...]:
    """The refreshed tables that boxes of the network are joined with, each once."""
    found = [box.params["table"] for box in network.of_kind("table_join")]
    return tuple({table.name: table for table in found if isinstance(table, RefreshedTable)}.values())


def with_contents(network: Network, contents: Mapping[str, pa.Table]) -> Network:
    """The network with what was read of its refreshed tables, by name, in their place. Those of which nothing was stay."""
    return Network(network.name, tuple(_read(box, contents) for box in network)) if contents else network


def contents_in(network: Network) -> dict[str, pa.Table]:
    """What was read of the refreshed tables, by name, of those of which something was."""
    return {table.name: table.given for table in refreshed_tables(network) if isinstance(table.given, pa.Table)}


def _read(box: Box, contents: Mapping[str, pa.Table]) -> Box:
    table = box.params.get("table")
    if not isinstance(table, RefreshedTable) or table.name not in contents:
        return box
    return replace(box, params={**box.params, "table": replace(table, given=contents[table.name])})
