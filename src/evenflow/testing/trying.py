"""A dataflow over a few rows, with a look at every arrow: what a preview shows. The simulator runs it, as a cluster would."""

from __future__ import annotations

import base64
import math
from collections.abc import Mapping, Sequence
from datetime import date, datetime, timedelta
from decimal import Decimal
from itertools import islice
from typing import Any, Final

import pyarrow as pa

from evenflow.errors import OptionError
from evenflow.query.builder import Dataflow
from evenflow.query.network import Box, Network, port_suffix
from evenflow.sinks.memory import MemorySink
from evenflow.stream.schema import ddl_of
from evenflow.testing.given import batch_of
from evenflow.testing.sample import sample_of
from evenflow.testing.simulation import simulate

SHOWN: Final = 100
ROWS: Final = 200
LONGEST: Final = 2_000
"""Characters of a text that is shown, and elements."""
EXACT: Final = 2**53
"""Whole numbers up to it are the same in a browser."""
Arrow = tuple[str, int]


def tried(
    network: Network, samples: Mapping[str, Any] | None = None, taps: Sequence[Arrow] | None = None, *, rows: int = ROWS, shown: int = SHOWN
) -> dict[str, Any]:
    """What passes the arrows when the sources give a few rows and end.

    samples: rows by source, as `testing.run` takes them; the others give what they make by themselves, or rows made up of their columns,
    so many. taps: (box, port) of each arrow to look at; None: of all. Returns sources: rows and where they are from, by name; taps:
    columns, count and the first rows that passed, in order. Raises OptionError for a sample or a tap that does not fit, and what the
    run ends with.
    """
    given = {name: _given(network.box(name), sample) for name, sample in (samples or {}).items()}
    told: dict[str, dict[str, Any]] = {name: {"from": "given", "rows": len(sample)} for name, sample in given.items()}
    for box in network.of_kind("source"):
        if box.name not in given:
            found, whence = sample_of(box.params["source"], rows)
            given[box.name], told[box.name] = found, {"from": whence, "rows": found.num_rows}
    arrows = _arrows(network) if taps is None else [_checked(network, tap) for tap in taps]
    tapped = Network(network.name, (*(box for box in network if box.kind != "sink"), *(_tap(network, arrow) for arrow in arrows)))
    loose = [(box.name, 0) for box in tapped.dangling()]
    whole = Network(network.name, (*tapped.boxes, *(_tap(network, arrow) for arrow in loose)))
    run = simulate(Dataflow.from_network(whole), given, sites=1, partitions=4).finish()
    return {"sources": told, "taps": [_seen(network.box(name), port, run.table(_name(name, port)), shown) for name, port in arrows]}


def _given(box: Box, sample: Any) -> pa.RecordBatch:
    if box.kind != "source":
        raise OptionError(f"box {box.name!r} is a {box.kind}, and rows are given to sources")
    return batch_of(sample, box.params["source"].schema, box.name)


def _arrows(network: Network) -> list[Arrow]:
    """Every output that is not put aside, and those that are, if somebody reads them."""
    read = {arrow for box in network for arrow in box.inputs}
    return [(box.name, port) for box in network for port in range(len(box.schemas)) if port == 0 or (box.name, port) in read]


def _checked(network: Network, tap: Arrow) -> Arrow:
    name, port = tap
    if name not in network or not 0 <= port < len(network.box(name).schemas):
        raise OptionError(f"there is no arrow from output {port!r} of {name!r}; look at one of {_arrows(network)}")
    return name, port


def _name(name: str, port: int) -> str:
    return f"tap of {name} {port}"


def _tap(network: Network, arrow: Arrow) -> Box:
    name = _name(*arrow)
    return Box(name, "sink", (arrow,), {"sink": MemorySink(name)}, ())


def _seen(box: Box, port: int, table: pa.Table, shown: int) -> dict[str, Any]:
    schema = box.schemas[port]
    first = table.slice(0, shown)
    columns = [column.to_pylist() for column in first.columns]
    rows = [[plain(value) for value in row] for row in zip(*columns, strict=True)]
    told = {"box": box.name, "port": port, "name": port_suffix(box, port).removeprefix(".")}
    return {**told, "columns": schema.names, "ddl": ddl_of(schema), "count": table.num_rows, "rows": rows}


def plain(value: Any) -> Any:
    """A value as JSON can have it: times as ISO texts, decimals and numbers that JSON or a browser has not as texts, bytes as Base64. What
    is longer than 2,000 characters or elements is cut."""
    if isinstance(value, str):
        return value if len(value) <= LONGEST else value[:LONGEST] + "\N{HORIZONTAL ELLIPSIS}"
    if isinstance(value, int) and abs(value) > EXACT:
        return str(value)
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if isinstance(value, datetime | date):
        return value.isoformat()
    if isinstance(value, timedelta | Decimal):
        return str(value)
    if isinstance(value, bytes):
        return plain(base64.b64encode(value[: LONGEST + 1]).decode())
    if isinstance(value, Mapping):
        return {str(name)[:LONGEST]: plain(each) for name, each in islice(value.items(), LONGEST)}
    if isinstance(value, list | tuple):
        return [plain(each) for each in value[:LONGEST]]
    return value


__all__ = ["ROWS", "SHOWN", "plain", "tried"]
