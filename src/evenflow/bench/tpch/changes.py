"""TPC-H's tables as changes, in tenths: rows that come, and of those that are there some that are changed and some that go.

The rows are those of tpchgen-cli (extra `tpch`). Which are changed or go is a function of their places, so every run has the same.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from evenflow.bench.tpch.queries import TABLES
from evenflow.errors import QueryError
from evenflow.stream.change import CHANGE

TENTHS: Final = 10
CHANGED: Final = 9
"""Every so many of the rows that came in the tenth before are changed."""
GONE: Final = 14
"""Every so many of them go."""
SMALL: Final = frozenset({"nation", "region"})
"""Tables whose rows all come in the first tenth, and stay."""
NUDGED: Final[Mapping[str, str]] = {
    "customer": "c_acctbal", "lineitem": "l_extendedprice", "orders": "o_totalprice", "part": "p_size", "partsupp": "ps_supplycost",
    "supplier": "s_acctbal",
}  # fmt: skip
"""By table, the column that is another one when a row is changed; of orders and lines a date moves, too."""
MOVED: Final[Mapping[str, str]] = {"lineitem": "l_shipdate", "orders": "o_orderdate"}


@dataclass(frozen=True, slots=True)
class Tenth:
    """changes: by table, what comes in it. left: by table, the rows that are there after it."""

    changes: Mapping[str, pa.Table]
    left: Mapping[str, pa.Table]


def generated(scale: float, directory: Path) -> dict[str, pa.Table]:
    """The tables, of tpchgen-cli. Raises QueryError where that is not installed."""
    command = shutil.which("tpchgen-cli", path=sysconfig.get_path("scripts")) or shutil.which("tpchgen-cli")
    if command is None:
        raise QueryError(f"TPC-H's tables are made by tpchgen-cli: {sys.executable} -m pip install 'evenflow[tpch]'")
    subprocess.run([command, "parquet", "-s", str(scale), "--output-dir", str(directory)], check=True, capture_output=True)
    return {name: _plain(pq.read_table(directory / f"{name}.parquet")) for name in TABLES}


def tenths(tables: Mapping[str, pa.Table]) -> list[Tenth]:
    """What comes, and what is left, one tenth after the other."""
    made = []
    parts = {name: _parts(name, table) for name, table in tables.items()}
    left: dict[str, list[pa.Table]] = {name: [] for name in tables}
    for number in range(TENTHS):
        changes = {}
        for name, of_table in parts.items():
            new = of_table[number]
            said = [_said(new, "insert")]
            if number and name not in SMALL:
                before = left[name].pop()
                places = np.arange(before.num_rows)
                gone, changed = places % GONE == GONE - 1, (places % CHANGED == 1) & (places % GONE != GONE - 1)
                old = before.filter(pa.array(changed))
                now = _changed(name, old)
                said += [_said(before.filter(pa.array(gone)), "delete"), _said(old, "update_before"), _said(now, "update_after")]
                left[name] += [before.filter(pa.array(~gone & ~changed)), now]
            left[name].append(new)
            changes[name] = pa.concat_tables(said)
        made.append(Tenth(changes, {name: pa.concat_tables(pieces) for name, pieces in left.items()}))
    return made


def _parts(name: str, table: pa.Table) -> list[pa.Table]:
    if name in SMALL:
        return [table, *[table.slice(0, 0)] * (TENTHS - 1)]
    bounds = [table.num_rows * number // TENTHS for number in range(TENTHS + 1)]
    return [table.slice(start, stop - start) for start, stop in pairwise(bounds)]


def _changed(name: str, rows: pa.Table) -> pa.Table:
    column = NUDGED[name]
    kind = rows.schema.field(column).type
    more = pc.add(rows[column].cast(pa.decimal128(20, 2)), pa.scalar(2, pa.int32()).cast(pa.decimal128(20, 2)))
    rows = rows.set_column(rows.schema.get_field_index(column), rows.schema.field(column), more.cast(kind))
    if (date := MOVED.get(name)) is not None:
        later = pc.add(rows[date].cast(pa.int32()), pa.scalar(31, pa.int32())).cast(pa.date32())
        rows = rows.set_column(rows.schema.get_field_index(date), rows.schema.field(date), later)
    return rows


def _said(rows: pa.Table, change: str) -> pa.Table:
    return rows.append_column(pa.field(CHANGE, pa.string()), pa.array([change] * rows.num_rows, pa.string()))


def _plain(table: pa.Table) -> pa.Table:
    fields = [pa.field(f.name, pa.string() if str(f.type).startswith(("string", "large_string")) else f.type) for f in table.schema]
    return table.cast(pa.schema(fields))
