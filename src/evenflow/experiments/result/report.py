"""A result for people: the paper's figure beside Evenflow's and what it must be, in the terminal and as Markdown."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from rich.table import Table

from evenflow.experiments.result.result import Bound, Result, plain
from evenflow.monitor.benchmark import cell

HEADINGS: Final = ("figure", "paper", "Evenflow", "must be", "holds")


def rows(result: Result) -> Iterator[tuple[str, str, str, str, str]]:
    """One row per figure of Evenflow or of the paper, under HEADINGS."""
    for name in [*result.measured, *(name for name in result.paper if name not in result.measured)]:
        bound = result.target.get(name)
        verdict = "" if bound is None else "no" if name in result.missed else "yes"
        yield name, written(result.paper.get(name)), written(result.measured.get(name)), wanted(bound), verdict


def result_table(result: Result) -> Table:
    """The table for a terminal."""
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
    for heading in HEADINGS:
        table.add_column(heading, justify="left" if heading == "figure" else "right")
    for row in rows(result):
        table.add_row(*row, style="red" if row[-1] == "no" else None)
    return table


def markdown(result: Result, title: str, notes: Sequence[str] = ()) -> str:
    """The page that stands beside the JSON object: table, notes and plot."""
    verdict = "holds" if result.holds else f"does not hold: {', '.join(result.missed)}"
    lines = [f"# {result.name}: {title}", "", f"{result.source}; world: {result.world}; **{verdict}**.", ""]
    lines += ["| " + " | ".join(HEADINGS) + " |", "| --- | ---: | ---: | ---: | --- |"]
    lines += ["| " + " | ".join((f"`{row[0]}`", *row[1:])) + " |" for row in rows(result)]
    lines += ["", *(f"- {note}" for note in notes)]
    if result.plot is not None:
        lines += ["", f"![{result.name}]({Path(result.plot).name})"]
    return "\n".join(lines).rstrip() + "\n"


def wanted(bound: Bound | None) -> str:
    if bound is None:
        return ""
    if bound.at_least is not None and bound.at_most is not None:
        return f"{written(bound.at_least)} to {written(bound.at_most)}"
    return f"≥ {written(bound.at_least)}" if bound.at_least is not None else f"≤ {written(bound.at_most)}"


def written(value: Any) -> str:
    return cell(plain(value), small=".4g")
