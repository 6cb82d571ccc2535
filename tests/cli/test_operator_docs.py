"""The pages of docs/operators: each example runs, in the simulator, and gives the rows that the page shows."""

from __future__ import annotations

import re
from datetime import datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from evenflow.query.planner import layout
from evenflow.query.refreshed import refreshed_tables
from evenflow.query.tables import with_tables
from evenflow.world.sim.world import SimWorld

FOLDER = Path(__file__).resolve().parents[2] / "docs" / "operators"
PAGES = sorted(path for path in FOLDER.glob("*.md") if path.name != "README.md")
EXAMPLE = re.compile(r"```python\n(.*?)```\n+```text\n(.*?)```", re.DOTALL)
IN_ORDER = ("bsort", "complete", "sort")
"""Pages whose rows come in one order."""
SECTIONS = ("## Semantics", "## State and cost")


def shown(value: Any) -> str:
    if isinstance(value, datetime):
        return value.strftime("%H:%M:%S") + (f".{value.microsecond:06}".rstrip("0") if value.microsecond else "")
    return "null" if value is None else str(value)


def as_text(table: pa.Table, in_order: bool) -> str:
    """Columns under their names; rows as they came, or sorted where they come in any order."""
    found = [[shown(value) for value in row.values()] for row in table.to_pylist()]
    rows = [table.schema.names, *(found if in_order else sorted(found))]
    widths = [max(len(row[i]) for row in rows) for i in range(table.num_columns)]
    return "\n".join("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows) + "\n"


def results(code: str, page: Path) -> str:
    names: dict[str, Any] = {}
    exec(compile(code, str(page), "exec"), names)
    flow = names["flow"]
    tables = {table.name: table.checked(table.given()) for table in refreshed_tables(flow.network)}
    world = SimWorld(with_tables(layout(flow.network, sites=3, partitions=8), tables), sites=3, replicas=2)
    world.run_until_quiet()
    sinks = [box.name for box in flow.network.of_kind("sink")]
    if len(sinks) == 1:
        return as_text(world.output(sinks[0]), page.stem in IN_ORDER)
    return "\n".join(f"{name}:\n{as_text(world.output(name), False)}" for name in sinks)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_examples_give_what_the_page_shows(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    examples = EXAMPLE.findall(text)
    assert len(examples) == text.count("```python") >= 1
    for code, expected in examples:
        assert results(code, page) == expected


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_a_page_says_what_one_wants_to_know(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert [section for section in SECTIONS if f"\n{section}\n" not in text] == []
    assert f"({page.name})" in (FOLDER / "README.md").read_text(encoding="utf-8")
