"""A run in words and numbers: one line while it runs, a table and a JSON object at its end.

Everything here reads the mapping that `run.progress()` returns. A value that a run does not have (no latency before the first result)
is None in JSON and a dash for people.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Final

from rich.table import Table

from evenflow.statistics.moves import DROPPED, in_all, moves_of

Progress = Mapping[str, Any]

DASH: Final = "–"
NUMBERS: Final = ("rows_in", "rows_out", "late_rows", "failed_rows", "rows_in_per_s", "rows_out_per_s", "epoch", "p50_ms", "p99_ms")
SITE_KEYS: Final = (
    "site", "executor", "host", "pid", "cpu_share", "utilization", "rows_in_per_s", "state_bytes", "spilled_bytes", "rss_bytes",
    "pss_bytes", "epoch",
)  # fmt: skip


def number(progress: Progress, key: str) -> float | None:
    """A value that can be shown and written as JSON: None if it is missing or not finite."""
    value = progress.get(key)
    if value is None or isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return None
    return value


def grouped(value: float | None) -> str:
    """20012.4 as 20,012."""
    return DASH if value is None else f"{value:,.0f}"


def milliseconds(value: float | None) -> str:
    """Two digits that matter: 0.84 ms, 4.1 ms, 131 ms."""
    if value is None:
        return DASH
    return f"{value:.2f} ms" if value < 1 else f"{value:.1f} ms" if value < 100 else f"{value:,.0f} ms"


def mebibytes(value: float | None) -> str:
    return DASH if value is None else f"{value / 2**20:,.1f} MiB" if value < 100 * 2**20 else f"{value / 2**20:,.0f} MiB"


def plain_line(progress: Progress) -> str:
    """One line about a run for a log or a pipe."""
    seconds = number(progress, "seconds") or 0.0
    return (
        f"{seconds:6.1f} s  in {grouped(number(progress, 'rows_in'))} ({grouped(number(progress, 'rows_in_per_s'))}/s)  "
        f"out {grouped(number(progress, 'rows_out'))} ({grouped(number(progress, 'rows_out_per_s'))}/s)  "
        f"p50 {milliseconds(number(progress, 'p50_ms'))}  p99 {milliseconds(number(progress, 'p99_ms'))}  "
        f"epoch {grouped(number(progress, 'epoch'))} ({grouped(number(progress, 'epochs_in_flight'))} in flight)"
        + (f"  redundancy {progress.get('redundancy', DASH)}/{progress['replicas']}" if (progress.get("replicas") or 1) > 1 else "")
    )


def report(progress: Progress, *, master: str, interrupted: bool, events: Sequence[Mapping[str, Any]] = ()) -> dict[str, Any]:
    """The JSON object of a run. Its keys are described in docs/cli.md and stay."""
    sites: Sequence[Mapping[str, Any]] = progress.get("sites") or ()
    seconds = number(progress, "seconds")
    return {
        "dataflow": progress.get("dataflow"),
        "run": progress.get("run"),
        "master": master,
        **{key: number(progress, key) for key in NUMBERS},
        "sites": len(sites),
        "replicas": progress.get("replicas"),
        "redundancy": progress.get("redundancy"),
        "moved_whole": [dict(found) for found in progress.get("moved_whole") or ()],
        "events": [dict(event) for event in events],
        "moves": moves_of(events),
        "seconds": None if seconds is None else round(seconds, 3),
        "interrupted": interrupted,
        "per_site": [{key: _site_value(site, key) for key in SITE_KEYS} for site in sites],
    }


def _site_value(site: Mapping[str, Any], key: str) -> Any:
    value = site.get(key)
    return number(site, key) if isinstance(value, float) else value


def moves_table(moves: Sequence[Mapping[str, Any]]) -> Table:
    """Moves (see `moves_of`), one row each, for people."""
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
    for heading in ("at", "segment", "partitions", "from", "to", "bytes", "took", "stall", "why"):
        table.add_column(heading, justify="left" if heading in ("segment", "why") else "right", no_wrap=heading != "why")
    for move in moves:
        took = move["state"] if move["seconds"] is None else f"{move['seconds']:.2f} s"
        stall = DASH if move["stall_ms"] is None else f"< {milliseconds(move['stall_ms'])}"
        table.add_row(
            f"{move['at_s']:.1f} s", move["segment"], f"{move['partitions']:,}", str(move["source"]), str(move["target"]),
            mebibytes(move["bytes"]), took, stall, move["reason"], style="yellow" if move["state"] == DROPPED else "",
        )  # fmt: skip
    return table


def summary_table(progress: Progress, *, interrupted: bool = False, events: Sequence[Mapping[str, Any]] = ()) -> Table:
    """What a run did, for people."""
    sites: Sequence[Mapping[str, Any]] = progress.get("sites") or ()
    seconds = number(progress, "seconds")
    title = f"{progress.get('dataflow', 'dataflow')}: {'interrupted' if interrupted else 'done'}"
    table = Table(title=title, title_style="bold", title_justify="left", show_header=False, box=None, padding=(0, 2, 0, 0))
    table.add_column(style="dim")
    table.add_column(justify="right", style="bold")
    table.add_column(style="dim")
    rows_in, rows_out = number(progress, "rows_in"), number(progress, "rows_out")
    table.add_row("rows in", grouped(rows_in), _per_second(rows_in, seconds))
    table.add_row("rows out", grouped(rows_out), _per_second(rows_out, seconds))
    if late := number(progress, "late_rows"):
        table.add_row("late rows", grouped(late), "came after the watermark")
    if failed := number(progress, "failed_rows"):
        table.add_row("failed rows", grouped(failed), "left out: a box raised on them")
    table.add_row("latency p50", milliseconds(number(progress, "p50_ms")), "from an epoch's first row to its sink")
    table.add_row("latency p99", milliseconds(number(progress, "p99_ms")), "")
    table.add_row("epochs", grouped(number(progress, "epoch")), _per_second(number(progress, "epoch"), seconds))
    table.add_row("sites", str(len(sites)), "one Spark task each, on executors of their own")
    replicas, redundancy = progress.get("replicas"), progress.get("redundancy")
    if replicas is not None and (replicas > 1 or redundancy != replicas):
        table.add_row("redundancy", f"{redundancy} of {replicas}", "live replicas of every partition, at least")
    state = [value for site in sites if (value := number(site, "state_bytes")) is not None]
    if state:
        table.add_row("state", mebibytes(sum(state)), "in all sites together")
    memory = [value for site in sites if (value := number(site, "pss_bytes") or number(site, "rss_bytes")) is not None]
    if memory:
        table.add_row("memory", mebibytes(max(memory)), "of the largest site's Python process")
    moved = in_all(moves_of(events))
    if moved["moves"]:
        text = f"{moved['partitions']:,} replicas, {mebibytes(moved['bytes'])}, longest stall {milliseconds(moved['stall_ms'])} at most"
        table.add_row("moves", grouped(moved["moves"]), text)
    for found in progress.get("moved_whole") or ():
        table.add_row("hot keys", str(found["box"]), f"can only be moved whole: {found['reason']}")
    table.add_row("seconds", DASH if seconds is None else f"{seconds:.1f}", "")
    return table


def _per_second(count: float | None, seconds: float | None) -> str:
    return f"{count / seconds:,.0f}/s" if count is not None and seconds else ""
