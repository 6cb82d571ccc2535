"""A run in words and numbers: one line while it runs, a table and a JSON object at its end.

A value that a run does not have (no latency before the first result) is None in JSON and a dash for people.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from rich.table import Table

from evenflow.statistics.moves import DROPPED, in_all, moves_of
from evenflow.statistics.plain import plain
from evenflow.statistics.progress import CheckpointProgress, JournalProgress, Progress, SiteProgress

DASH: Final = "–"


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
    return (
        f"{progress.seconds:6.1f} s  in {grouped(progress.rows_in)} ({grouped(progress.rows_in_per_s)}/s)  "
        f"out {grouped(progress.rows_out)} ({grouped(progress.rows_out_per_s)}/s)  "
        f"p50 {milliseconds(progress.p50_ms)}  p99 {milliseconds(progress.p99_ms)}  "
        f"epoch {grouped(progress.epoch)} ({grouped(progress.epochs_in_flight)} in flight)"
        + (f"  delivered {delivered_text(progress)}" if any(output.dropped for output in progress.outputs) else "")
        + (f"  redundancy {progress.redundancy}/{progress.replicas}" if progress.replicas > 1 else "")
        + ("" if progress.journal is None else f"  {_journal(progress.journal)}")
        + ("" if progress.checkpoint is None or progress.checkpoint.number is None else f"  {checkpoint_text(progress.checkpoint)}")
    )


def delivered_text(progress: Progress) -> str:
    """The share of what its sources gave that came into each output, of those that have missed something: it is never all of it."""
    return ", ".join(f"{min(output.delivered_share, 0.99):.0%} to {output.output}" for output in progress.outputs if output.dropped)


def _journal(journal: JournalProgress) -> str:
    """How far sinks may go, what an append takes, or for how long one has been waiting, and whether the clock is behind."""
    waits = f"waits for {journal.age_s:.1f} s" if journal.age_s >= 1 else milliseconds(journal.append_ms)
    clock = f", clock {journal.clock_behind_s:.0f} s behind" if journal.clock_behind_s >= 1 else ""
    return f"journal {grouped(journal.durable)} ({waits}{clock})"


def checkpoint_text(checkpoint: CheckpointProgress) -> str:
    """Which is the newest, how old, and how many have been dropped since."""
    if checkpoint.number is None:
        text = "no checkpoint yet"
    else:
        age = "" if checkpoint.age_s is None else f" ({checkpoint.age_s:.0f} s ago)"
        text = f"checkpoint {checkpoint.number}{age}"
    return f"{text}, {checkpoint.failures} dropped since" if checkpoint.failures else text


def report(
    progress: Progress, *, master: str, interrupted: bool, events: Sequence[Mapping[str, Any]] = (), forgotten: int = 0
) -> dict[str, Any]:
    """The JSON object of a run. Its keys are described in docs/cli.md and stay. forgotten: events before those."""
    return {
        "dataflow": progress.dataflow,
        "run": progress.run,
        "master": master,
        "rows_in": progress.rows_in,
        "rows_out": progress.rows_out,
        "late_rows": progress.late_rows,
        "failed_rows": progress.failed_rows,
        "rows_in_per_s": progress.rows_in_per_s,
        "rows_out_per_s": progress.rows_out_per_s,
        "epoch": progress.epoch,
        "p50_ms": progress.p50_ms,
        "p99_ms": progress.p99_ms,
        "sites": len(progress.sites),
        "replicas": progress.replicas,
        "redundancy": progress.redundancy,
        "moved_whole": [found.to_json() for found in progress.moved_whole],
        "events": [dict(event) for event in events],
        "events_forgotten": forgotten,
        "moves": moves_of(events),
        "journal": None if progress.journal is None else plain(progress.journal),
        "checkpoint": None if progress.checkpoint is None else plain(progress.checkpoint),
        "outputs": [plain(output) for output in progress.outputs],
        "protected": progress.protected,
        "lost": None if progress.lost is None else plain(progress.lost),
        "behind": [plain(each) for each in progress.behind],
        "tables": [plain(table) for table in progress.tables],
        "seconds": round(progress.seconds, 3),
        "interrupted": interrupted,
        "per_site": [_of_site(site) for site in progress.sites],
    }


def _of_site(site: SiteProgress) -> dict[str, Any]:
    return {
        "site": site.site,
        "executor": site.executor,
        "host": site.host,
        "pid": site.pid,
        "cpu_share": site.cpu_share,
        "utilization": site.utilization,
        "rows_in_per_s": site.rows_in_per_s,
        "state_bytes": site.state_bytes,
        "spilled_bytes": site.spilled_bytes,
        "rss_bytes": site.rss_bytes,
        "pss_bytes": site.pss_bytes,
        "epoch": site.epoch,
    }


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
    seconds = progress.seconds
    title = f"{progress.dataflow}: {'interrupted' if interrupted else 'done'}"
    table = Table(title=title, title_style="bold", title_justify="left", show_header=False, box=None, padding=(0, 2, 0, 0))
    table.add_column(style="dim")
    table.add_column(justify="right", style="bold")
    table.add_column(style="dim")
    table.add_row("rows in", grouped(progress.rows_in), _per_second(progress.rows_in, seconds))
    table.add_row("rows out", grouped(progress.rows_out), _per_second(progress.rows_out, seconds))
    if progress.late_rows:
        table.add_row("late rows", grouped(progress.late_rows), "came after the watermark")
    if progress.failed_rows:
        table.add_row("failed rows", grouped(progress.failed_rows), "left out: a box raised on them")
    for output in progress.outputs:
        if output.dropped:
            table.add_row(
                f"left out for {output.output}", grouped(output.dropped), f"{min(output.delivered_share, 0.999):.1%} was delivered"
            )
    table.add_row("latency p50", milliseconds(progress.p50_ms), "from an epoch's first row to its sink")
    table.add_row("latency p99", milliseconds(progress.p99_ms), "")
    if progress.journal is not None:
        journal = progress.journal
        table.add_row("appends", grouped(journal.appends), f"to {journal.location}, {milliseconds(journal.append_mean_ms)} each lately")
    if progress.checkpoint is not None and progress.checkpoint.number is not None:
        newest = progress.checkpoint
        took = "" if newest.seconds is None else f", made in {newest.seconds:.1f} s"
        dropped = f", {newest.failures} dropped since" if newest.failures else ""
        table.add_row("checkpoint", grouped(newest.number), f"epoch {grouped(newest.epoch)}, {mebibytes(newest.bytes)}{took}{dropped}")
    table.add_row("epochs", grouped(progress.epoch), _per_second(progress.epoch, seconds))
    table.add_row("sites", str(len(progress.sites)), "one Spark task each, on executors of their own")
    if progress.replicas > 1 or progress.redundancy != progress.replicas:
        table.add_row("redundancy", f"{progress.redundancy} of {progress.replicas}", "live replicas of every partition, at least")
    if progress.sites:
        table.add_row("state", mebibytes(sum(site.state_bytes for site in progress.sites)), "in all sites together")
        memory = max(site.pss_bytes or site.rss_bytes for site in progress.sites)
        table.add_row("memory", mebibytes(memory), "of the largest site's Python process")
    moved = in_all(moves_of(events))
    if moved["moves"]:
        text = f"{moved['partitions']:,} replicas, {mebibytes(moved['bytes'])}, longest stall {milliseconds(moved['stall_ms'])} at most"
        table.add_row("moves", grouped(moved["moves"]), text)
    for found in progress.moved_whole:
        table.add_row("hot keys", found.box, f"can only be moved whole: {found.reason}")
    table.add_row("seconds", f"{seconds:.1f}", "")
    return table


def _per_second(count: float, seconds: float) -> str:
    return f"{count / seconds:,.0f}/s" if seconds else ""
