"""Refreshed tables at a location: what was read of them, for who goes on there and makes the same results again.

    programs/DIGEST-tables.json       what they had when the dataflow of that digest was begun
    versions/GENERATION-NUMBER-....json   what they had in a version, as parameters of its boxes (see `versions`)

What is read here is believed when it has the digest that the dataflow's description has of it, and that is named by the journal. There is
nothing to execute in it: names, and rows as Arrow has them.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

import pyarrow as pa

from evenflow.errors import EvenflowError, LocationError
from evenflow.query.footprint import footprint
from evenflow.query.network import Network
from evenflow.query.refreshed import contents_in, refreshed_tables
from evenflow.query.saved_tables import table_from_text, table_to_text
from evenflow.query.structure import Structure
from evenflow.store.objects import Store
from evenflow.store.opening import explain
from evenflow.world.locations.programs import create_once, read_program

MOST_TABLES_BYTES: Final = 1 << 30
ALTERED: Final = "It was altered or cut off: give the file back, or start the dataflow at another location"
Contents = Mapping[str, pa.Table]
"""By name of a refreshed table, what was read of it."""
NOTHING: Final[Contents] = MappingProxyType({})


def tables_name(digest: str) -> str:
    """Of the object, below the location. digest: of the dataflow as it was begun."""
    return f"programs/{digest}-tables.json"


def keep_tables(store: Store, digest: str, network: Network) -> None:
    """Write down what refreshed tables have when the dataflow begins, before the journal names it. Raises LocationError."""
    contents = contents_in(network)
    if not contents:
        return
    data = json.dumps({name: table_to_text(content) for name, content in contents.items()}, separators=(",", ":")).encode()
    name = tables_name(digest)
    try:
        create_once(store, name, data)
    except OSError as error:
        raise LocationError(explain(f"write {name}, what refreshed tables have,", store.url, error)) from error


def tables_begun_with(store: Store, digest: str, network: Network) -> dict[str, pa.Table]:
    """What the refreshed tables of the network had when the dataflow of that digest was begun. Raises LocationError."""
    return fitting(_proven(store, digest, read_program(store, digest)), network)


def prove_tables(store: Store, digest: str, program: Structure) -> None:
    """Raise LocationError if what is written down of the refreshed tables of the dataflow of that digest is not what they had."""
    if _digests(program):
        _proven(store, digest, program)


def _proven(store: Store, digest: str, program: Structure) -> dict[str, pa.Table]:
    """If it is what the program says. Raises LocationError."""
    name = tables_name(digest)
    try:
        saved: Any = json.loads(store.get(name, MOST_TABLES_BYTES))
        given = {str(table): table_from_text(text) for table, text in saved.items()}
    except OSError as error:
        raise LocationError(explain(f"read {name}, what refreshed tables had,", store.url, error)) from error
    except (ValueError, RecursionError, AttributeError, EvenflowError) as error:
        raise LocationError(f"{store.url}: {name} cannot be read ({type(error).__name__}: {str(error)[:200]}). {ALTERED}") from error
    for table, said in _digests(program).items():
        if table not in given or footprint(given[table]) != said:
            raise LocationError(f"{store.url}: {name} does not have what table {table!r} had when the dataflow was begun. {ALTERED}")
    return given


def _digests(program: Structure) -> dict[str, Any]:
    """By refreshed table of the program, the footprint of what it had."""
    steps = (step["params"] for segment in program["segments"] for step in segment["steps"])
    return {str(params["refreshed"]): params["table"] for params in steps if "refreshed" in params}


def fitting(given: Contents, network: Network) -> dict[str, pa.Table]:
    """Those that the refreshed tables of the network can have: of another dataflow there may be others, which shows when it is compared."""
    wanted = {table.name: table.schema for table in refreshed_tables(network)}
    return {name: content for name, content in given.items() if name in wanted and content.schema.equals(wanted[name])}
