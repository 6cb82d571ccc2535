"""`evenflow policy NAME FILE` for placements: where all would lie if it were placed anew. Nothing is started and nothing moves."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from evenflow.cli.document import network_of
from evenflow.cli.output import OK, Output

if TYPE_CHECKING:
    from evenflow.plan.layout import Layout
    from evenflow.policy.placing import Placed
    from evenflow.statistics.statistics import Statistics


def placed(output: Output, name: str, windows: Sequence[Statistics], dataflow: Path | None) -> int:
    """Ask a placement, and show what each site would have. dataflow: the file of what ran, if it is given."""
    from evenflow.policy.placing import PLACEMENTS, place
    from evenflow.statistics.statistics import Statistics

    whole = Statistics.of(window for each in windows for window in each.sites)
    found = place(name, windows, None if dataflow is None else _layout(dataflow, whole))
    output.report(
        {
            "policy": name,
            "replicas": _replicas(found),
            "sites": _sites(whole, found),
            "feasible": found.feasible,
            "apart": found.apart,
            "elsewhere": found.elsewhere,
        }
    )
    if not output.as_json:
        _print(output, f"{name}: {PLACEMENTS[name].title} ({PLACEMENTS[name].source})", whole, found)
    return OK


def _layout(file: Path, whole: Statistics) -> Layout:
    """As it was cut for so many sites, and so many partitions of what has keys."""
    from evenflow.query.planner import layout

    network, sites = network_of(file, None, []), max(1, len(whole.sites))
    inputs = {segment.id for segment in layout(network, sites=sites).segments if segment.kind == "ingress"}
    told = (segment for window in whole.sites for segment in window.segments if segment.segment not in inputs)
    return layout(network, sites=sites, partitions=1 + max((max(segment.partitions, default=0) for segment in told), default=0))


def _replicas(found: Placed) -> dict[str, list[list[int]]]:
    """In the form of a hosting file; a partition of which nothing is known is nowhere."""
    rows: dict[int, list[list[int]]] = defaultdict(list)
    for (segment, partition), site in sorted(found.replicas.items()):
        rows[segment] += [[] for _ in range(partition - len(rows[segment]))]
        rows[segment].append([site])
    return {str(segment): row for segment, row in rows.items()}


def _sites(whole: Statistics, found: Placed) -> list[dict[str, Any]]:
    return [
        {
            "site": window.site,
            "utilization": window.utilization,
            "placed_utilization": found.utilization[window.site],
            "partitions": sum(site == window.site for site in found.replicas.values()),
        }
        for window in whole.sites
    ]


def _print(output: Output, title: str, whole: Statistics, found: Placed) -> None:
    from rich import box
    from rich.table import Table

    output.out.print(title, highlight=False)
    table = Table(box=box.SIMPLE_HEAD)
    names = {segment.segment: segment.name for window in whole.sites for segment in window.segments}
    for heading in ("site", "U now", "U placed", *(f"{names[number]} ({number})" for number in sorted(names))):
        table.add_column(heading, justify="right")
    for each in _sites(whole, found):
        counts = (sum(at == each["site"] and of == number for (of, _), at in found.replicas.items()) for number in sorted(names))
        shown = (str(count or "") for count in counts)
        table.add_row(str(each["site"]), f"{each['utilization']:.1%}", f"{each['placed_utilization']:.1%}", *shown)
    output.out.print(table)
    apart = "" if found.apart is None else f"; {found.apart} links between sites"
    output.out.print(f"{found.feasible:.1%} of the rates that could be done at best{apart}", highlight=False)
    output.out.print(f"{found.elsewhere} of {len(found.replicas)} partitions would lie elsewhere than now", highlight=False)
