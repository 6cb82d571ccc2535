"""How a run goes, of a history of scenes and readings: what the live view in a terminal shows of an engine elsewhere, or of a recording."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any, Final

from evenflow.coordinator.hosting import Hosting
from evenflow.monitor.history import OVER_US, History
from evenflow.monitor.reading import Column, Reading, RunAccount, RunReading
from evenflow.monitor.scene import Scene, SceneRun
from evenflow.statistics.histogram import percentile_ms
from evenflow.statistics.progress import BoxProgress, Progress, SiteProgress


def progress_of(history: History, run: str) -> Progress | None:
    """As `Run.numbers`, of the newest reading; rates and latencies are over the last ten seconds that the history has. None before the run
    is in it. What the reading does not say has a default, and is not in `told_of`."""
    newest = history.newest
    if newest is None or history.scene is None:
        return None
    scene = history.scene_of(newest)
    told, now = scene.run(run), newest.run(run)
    if told is None or now is None:
        return None
    rates = history.rates(run)
    earlier = _earlier(history, newest, run)
    latency = dict(now.latency)
    recent = dict(rates.latency) if rates is not None and rates.latency and told.active else latency
    seconds, account = now.elapsed_us / 1e6, now.account or NO_ACCOUNT
    return Progress(
        run=run,
        dataflow=told.dataflow,
        active=told.active,
        epoch=now.epoch,
        epochs_in_flight=now.epochs_in_flight,
        rows_in=now.rows_in,
        rows_out=now.rows_out,
        rows_in_per_s=round(rates.rows_in_per_s if rates is not None and told.active else now.rows_in / max(seconds, 1e-6), 1),
        rows_out_per_s=round(rates.rows_out_per_s if rates is not None and told.active else now.rows_out / max(seconds, 1e-6), 1),
        p50_ms=percentile_ms([recent], 0.50),
        p99_ms=percentile_ms([recent], 0.99),
        total_p50_ms=percentile_ms([latency], 0.50),
        total_p99_ms=percentile_ms([latency], 0.99),
        late_rows=now.late_rows,
        failed_rows=now.failed_rows,
        replicas=told.replicas,
        redundancy=told.redundancy,
        membership=told.membership,
        moved_whole=told.moved_whole or (),
        slow=now.slow,
        sites=tuple(_sites(scene, told, newest, now, earlier)),
        boxes=tuple(_boxes(told, newest, now, earlier)),
        seconds=round(seconds, 3),
        journal=now.journal,
        checkpoint=now.checkpoint,
        tables=account.tables,
        behind=account.behind,
        outputs=account.outputs,
        protected=account.protected,
        lost=account.lost,
    )


def told_of(progress: Progress, history: History) -> dict[str, Any]:
    """As `Run.progress`. Keys of which the newest reading says nothing, such as one of a recording that an older Evenflow has made, are not
    there. progress: what `progress_of` has made of it."""
    newest = history.newest
    assert newest is not None, "of which there is a Progress"
    told, now = history.scene_of(newest).run(progress.run), newest.run(progress.run)
    assert told is not None and now is not None, "of which there is a Progress"
    missing = set(NO_ACCOUNT.__slots__) if now.account is None else set[str]()
    if told.moved_whole is None:
        missing.add("moved_whole")
    columns = (newest.sites, "rss_bytes"), (newest.sites, "pss_bytes"), (newest.sites, "refused"), (now.sites, "messages")
    untold = {name for of, name in columns if getattr(of, name) is None}
    found = {name: value for name, value in progress.to_json().items() if name not in missing}
    found["sites"] = [{name: value for name, value in site.items() if name not in untold} for site in found["sites"]]
    return found


NO_ACCOUNT: Final = RunAccount(protected=0, lost=None, behind=(), outputs=(), tables=())
Earlier = tuple[Scene, Reading, RunReading]


def _earlier(history: History, newest: Reading, run: str) -> Earlier | None:
    """The oldest reading of the last ten seconds whose columns are the newest one's: counters are compared by place."""
    for reading in history.readings:
        found = reading.run(run)
        if reading is newest or reading.at_us < newest.at_us - OVER_US or found is None:
            continue
        if reading.scene == newest.scene:
            return history.scene_of(reading), reading, found
    return None


def _sites(scene: Scene, run: SceneRun, reading: Reading, now: RunReading, earlier: Earlier | None) -> list[SiteProgress]:
    counted, coming = Counter[int](), Counter[int]()
    for number, state in zip(run.replicas_of.site, run.replicas_of.state):
        (coming if state == "joining" else counted)[number] += state != "lost"
    found = []
    for at, site in enumerate(scene.sites):
        if site.state in ("dead", "left"):
            continue
        busy, cpu_share, rows_per_s = None, 0.0, 0.0
        if earlier is not None:
            _, then, before = earlier
            seconds = max((reading.at_us - then.at_us) / 1e6, 1e-6)
            measured_us = now.sites.measured_us[at] - before.sites.measured_us[at]
            busy = round((now.sites.busy_us[at] - before.sites.busy_us[at]) / measured_us, 4) if measured_us > 0 else None
            if then.sites.heard_us[at] is not None:  # Else it has used nothing only because it had said nothing.
                cpu_share = round((reading.sites.cpu_us[at] - then.sites.cpu_us[at]) / 1e6 / seconds, 4)
            rows_per_s = round((now.sites.rows_in[at] - before.sites.rows_in[at]) / seconds, 1)
        role = run.roles[at]
        found.append(
            SiteProgress(
                site=site.site, executor=site.executor, host=site.host, pid=site.pid,
                rss_bytes=_at(reading.sites.rss_bytes, at, reading.sites.memory_bytes[at]),
                pss_bytes=_at(reading.sites.pss_bytes, at, reading.sites.memory_bytes[at]),
                refused=_at(reading.sites.refused, at), leaving=site.state == "leaving",
                role="live" if role == "live" else "joining" if role == "joining" else "spare", partitions=counted[site.site],
                coming=coming[site.site], cpu_share=cpu_share, rows_in_per_s=rows_per_s, state_bytes=now.sites.state_bytes[at],
                spilled_bytes=now.sites.spilled_bytes[at], buffered_bytes=now.sites.waiting_bytes[at], messages=_at(now.sites.messages, at),
                epoch=now.sites.epoch[at], utilization=busy,
            )
        )  # fmt: skip
    return found


def _at(column: Column | None, place: int, unknown: int = 0) -> int:
    return unknown if column is None else column[place]


def _boxes(run: SceneRun, reading: Reading, now: RunReading, earlier: Earlier | None) -> list[BoxProgress]:
    """Those that have steps; all of a box together, wherever its steps run."""
    if earlier is None:
        return []
    _, then, before = earlier
    seconds = max((reading.at_us - then.at_us) / 1e6, 1e-6)
    found = []
    for at, box in enumerate(run.boxes):
        if not box.steps:
            continue
        rows, out, busy_us = (
            getattr(now.boxes, column)[at] - getattr(before.boxes, column)[at] for column in ("rows_in", "rows_out", "busy_us")
        )
        found.append(
            BoxProgress(
                segment=run.segments[box.segments[-1]].name, box=box.name, rows_in_per_s=round(rows / seconds, 1),
                cost_us=round(busy_us / rows, 4) if rows else None, selectivity=round(out / rows, 4) if rows else None,
                busy_share=round(busy_us / 1e6 / seconds, 4),
            )
        )  # fmt: skip
    return found


def hosting_of(progress: Progress) -> dict[int, Hosting]:
    """Who hosts what, for the view."""
    return {site.site: Hosting(site.partitions, site.coming) for site in progress.sites}


def events_of(history: History, run: str, before: Sequence[dict[str, Any]] = ()) -> list[dict[str, Any]]:
    """As `Run.events`: those of before, and what the newest reading brings."""
    newest = None if history.newest is None else history.newest.run(run)
    events = [] if newest is None else newest.events
    return [
        *before,
        *({"at_s": each.at_us / 1e6, "kind": each.kind, "site": each.site, "text": each.text, **each.details} for each in events),
    ]
