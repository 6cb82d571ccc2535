"""Engines and runs as notebooks show them: a small table of what `progress` says. Everything that comes from outside is escaped."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from html import escape
from typing import Any


class RunDisplay:
    """For a run: what has `id`, `is_active`, `exception` and `progress`."""

    def _repr_html_(self) -> str:
        run: Any = self
        return run_html(run.progress(), run.exception())


class EngineDisplay:
    """For an engine: it is shown without starting its sites."""

    def _repr_html_(self) -> str:
        engine: Any = self
        facts = f"{engine.sites} sites, {engine.spares} spares, {engine.replicas} replica{'' if engine.replicas == 1 else 's'}"
        there = f"{len(engine.sites_now)} of them are there"
        rows = ((run.id, "active" if run.is_active else "over") for run in engine.runs)
        return f"<p><b>Evenflow engine</b>: {escape(facts)}; {there}</p>{_table(('run', ''), rows)}"


def run_html(progress: Mapping[str, Any], failure: Exception | None) -> str:
    """A run in a few lines. progress: as `Run.progress` has it."""
    how = "active" if progress["active"] else "failed" if failure is not None else "over"
    p99 = "none yet" if progress["p99_ms"] is None else f"{progress['p99_ms']:.1f} ms"
    facts = (
        ("dataflow", progress["dataflow"]),
        ("epoch", f"{progress['epoch']:,}"),
        ("rows in", f"{progress['rows_in']:,} ({progress['rows_in_per_s']:,.0f}/s)"),
        ("rows out", f"{progress['rows_out']:,} ({progress['rows_out_per_s']:,.0f}/s)"),
        ("latency p99", p99),
        ("redundancy", f"{progress['redundancy']} of {progress['replicas']}"),
    )
    headings = ("site", "role", "executor", "host", "partitions", "state")
    sites = (
        (site["site"], site["role"], site["executor"], site["host"], f"{site['partitions']:,}", f"{site['state_bytes'] / 2**20:.1f} MiB")
        for site in progress["sites"]
    )
    wrong = "" if failure is None else f"<pre>{escape(str(failure))}</pre>"
    return f"<p><b>{escape(str(progress['run']))}</b>: {how}</p>{wrong}{_table((), facts)}{_table(headings, sites)}"


def _table(headings: Iterable[Any], rows: Iterable[Iterable[Any]]) -> str:
    head = "".join(f"<th>{escape(str(each))}</th>" for each in headings)
    body = "".join(f"<tr>{''.join(f'<td>{escape(str(cell))}</td>' for cell in row)}</tr>" for row in rows)
    return f"<table>{f'<tr>{head}</tr>' if head else ''}{body}</table>" if body else ""
