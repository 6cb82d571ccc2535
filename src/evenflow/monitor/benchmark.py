"""The result of a benchmark as a table."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.table import Table

from evenflow.monitor.summary import DASH


def benchmark_table(result: Mapping[str, Any]) -> Table:
    """`workloads`, `queries` or `loads` as one row each, or the objects that `systems` names; else a row per value that is a number or a
    text."""
    listed = [result[key] for key in ("workloads", "queries", "loads") if isinstance(result.get(key), list)]
    workloads = next(filter(None, listed), None) or [{"name": name, **result[name]} for name in result.get("systems", ()) if result[name]]
    if workloads:
        columns = [key for key, value in workloads[0].items() if not isinstance(value, list | dict)]
        table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
        for name in columns:
            table.add_column(name, justify="left" if name == "name" else "right")
        for workload in workloads:
            table.add_row(*(cell(workload.get(name)) for name in columns))
        return table
    table = Table(box=None, padding=(0, 2, 0, 0), show_header=False)
    table.add_column(style="dim")
    table.add_column(justify="right", style="bold")
    for key, value in result.items():
        if not isinstance(value, list | dict):
            table.add_row(key, cell(value))
    return table


def cell(value: Any, small: str = ",.2f") -> str:
    """A figure for people. small: the format of numbers below 1,000; greater ones are whole."""
    if value is None:
        return DASH
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int | float):
        return format(value, ",.0f" if abs(value) >= 1000 else small)
    return str(value)
