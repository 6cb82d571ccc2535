"""`evenflow policy NAME FILE`: what a policy proposes for recorded statistics. Nothing is started and nothing moves."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from evenflow.cli.options import Json
from evenflow.cli.output import OK, Output
from evenflow.cli.placing import placed
from evenflow.cli.shedding import NAME as SHEDDING
from evenflow.cli.shedding import shed
from evenflow.errors import PolicyError, StatisticsError

if TYPE_CHECKING:
    from evenflow.policy.hosting import Hosting
    from evenflow.policy.proposal import Proposal
    from evenflow.statistics.statistics import Statistics


def policy(
    context: typer.Context,
    name: Annotated[
        str,
        typer.Argument(
            metavar="NAME", help="A policy (evenflow, utilization, memory, hybrid, none), a placement (start, resilient, ...), or shedding."
        ),
    ],
    file: Annotated[
        Path, typer.Argument(metavar="FILE", help="Statistics: one JSON object, or one per line of the same run. Of shedding: an overload.")
    ],
    hosting: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Who hosts what and what is pinned; default: as the statistics show it.")
    ] = None,
    th_imb: Annotated[float | None, typer.Option(help="Least ratio of two utilizations that is acted on.")] = None,
    th_util: Annotated[float | None, typer.Option(help="Utilization above which a site gets nothing.")] = None,
    delta_min_ms: Annotated[float | None, typer.Option(help="Shortest time for which statistics are collected.")] = None,
    segment: Annotated[list[int] | None, typer.Option(help="Balance this segment; may be given several times. Without it, all.")] = None,
    dataflow: Annotated[
        Path | None, typer.Option(metavar="FLOW", help="Of placements: what ran, a Python file or one saved as JSON.")
    ] = None,
    json: Json = False,
) -> int:
    """Run one round of a policy on recorded statistics and print the moves that it proposes.

    Parameters that are not given have the policy's own defaults.

    A placement (start, resilient, correlation, largest, connected, random) proposes no moves, but where all would lie, placed anew.

    `shedding` proposes no moves, but what to leave out under an overload: `evenflow policy shedding examples/overload.json`.

    Example: `evenflow policy evenflow examples/statistics.json`
    """
    from evenflow.policy.catalogue import POLICIES, described
    from evenflow.policy.hosting import Hosting
    from evenflow.policy.placing import PLACEMENTS
    from evenflow.policy.proposal import Memory
    from evenflow.policy.serial import hosting_from_json, proposal_to_json

    output: Output = context.obj
    placement, known = name in PLACEMENTS, (*POLICIES, *PLACEMENTS, SHEDDING)
    if name not in known:
        raise PolicyError(f"there is no policy or placement {name!r}; there are {', '.join(known)}")
    found = None if name == SHEDDING or placement else described(name)
    given = {
        "th_imb": th_imb,
        "th_util": th_util,
        "delta_min_us": None if delta_min_ms is None else round(delta_min_ms * 1000),
        "segments": tuple(segment) if segment else None,
    }
    changed: dict[str, Any] = {key: value for key, value in given.items() if value is not None}
    if placement:
        if changed or hosting is not None:
            raise PolicyError(f"{name} places all anew, without a hosting and without thresholds; leave these options out")
        return placed(output, name, _windows(file), dataflow)
    if dataflow is not None:
        raise PolicyError(f"--dataflow is for placements ({', '.join(PLACEMENTS)}), and {name} is none; leave it out")
    if found is None:
        if changed or hosting is not None:
            raise PolicyError("shedding is of an overload, which has no hosting and no thresholds; leave these options out")
        return shed(output, file, _text(file, "FILE"))
    parameters = replace(found.parameters, **changed)
    statistics = _statistics(file)
    hosted = Hosting.of(statistics) if hosting is None else hosting_from_json(_text(hosting, "--hosting"))
    proposal = found.policy(statistics, hosted, parameters, Memory())
    output.report(
        {"policy": name, "parameters": asdict(parameters), **proposal_to_json(proposal), "sites": _sites(statistics, hosted, proposal)}
    )
    if not output.as_json:
        _print(output, f"{name}: {found.title} ({found.source})", proposal, _sites(statistics, hosted, proposal))
    return OK


def _text(path: Path, what: str) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise PolicyError(f"{what}: cannot read {path} ({error}); name a JSON file, such as examples/statistics.json") from None


def _windows(path: Path) -> list[Statistics]:
    """One, or those of all lines."""
    from evenflow.statistics.statistics import Statistics, read_lines

    text = _text(path, "FILE")
    lines = text.splitlines()
    several = sum(line.startswith("{") for line in lines) > 1
    try:
        if not several:
            return [Statistics.from_json(text)]
        read_lines(lines)  # It names the line that is wrong.
        return [Statistics.from_json(line) for line in lines if line.strip()]
    except StatisticsError as error:
        raise StatisticsError(f"{path}: {error}") from None


def _statistics(path: Path) -> Statistics:
    from evenflow.statistics.statistics import Statistics

    return Statistics.of(window for each in _windows(path) for window in each.sites)


def _sites(statistics: Statistics, hosting: Hosting, proposal: Proposal) -> list[dict[str, Any]]:
    """What each site looks like, and how many partitions it gives away and gets."""
    gives: Counter[int] = Counter()
    gets: Counter[int] = Counter()
    for move in proposal.moves:
        gives[move.source] += len(move.partitions)
        gets[move.target] += len(move.partitions)
    return [
        {
            "site": window.site,
            "utilization": window.utilization,
            "rows": window.rows,
            "state_bytes": window.state_bytes,
            "free_bytes": window.free_bytes,
            "spilled_bytes": window.spilled_bytes,
            "replicas": sum(window.site in sites for sites in hosting.replicas.values()),
            "gives": gives[window.site],
            "gets": gets[window.site],
        }
        for window in statistics.sites
    ]


def _print(output: Output, title: str, proposal: Proposal, sites: list[dict[str, Any]]) -> None:
    from rich import box
    from rich.table import Table

    output.out.print(title, highlight=False)
    table = Table(box=box.SIMPLE_HEAD)
    for heading in ("site", "U", "rows", "state MB", "free MB", "disk MB", "parts", "gives", "gets"):
        table.add_column(heading, justify="right")
    for each in sites:
        free = "" if each["free_bytes"] is None else f"{each['free_bytes'] / 1e6:,.1f}"
        sizes = f"{each['state_bytes'] / 1e6:,.1f}", free, f"{each['spilled_bytes'] / 1e6:,.1f}"
        counts = (str(each[key] or "") for key in ("replicas", "gives", "gets"))
        table.add_row(str(each["site"]), f"{each['utilization']:.1%}", f"{each['rows']:,}", *sizes, *counts)
    output.out.print(table)
    for move in proposal.moves:
        partitions = ", ".join(map(str, move.partitions))
        output.out.print(f"segment {move.segment}: site {move.source} to {move.target}: {partitions}\n  {move.reason}", highlight=False)
    if not proposal.moves:
        output.out.print(proposal.text, highlight=False)
    output.out.print(f"next: statistics of {proposal.next_delta_us / 1000:g} ms, or as long as the moves took", highlight=False)
