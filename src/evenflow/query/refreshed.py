"""Which refreshed tables a network is joined with."""

from __future__ import annotations

from evenflow.query.network import Network
from evenflow.query.tables import RefreshedTable


def refreshed_tables(network: Network) -> tuple[RefreshedTable, ...]:
    """The refreshed tables that boxes of the network are joined with, each once."""
    found = [box.params["table"] for box in network.of_kind("table_join")]
    return tuple({table.name: table for table in found if isinstance(table, RefreshedTable)}.values())
