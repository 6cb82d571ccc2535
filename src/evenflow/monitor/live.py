"""The live view of a run in the terminal: rates, latency, sites, what happened to them, the newest results.

A `View` is told what `run.progress()` and `run.events()` say, four times a second, and draws itself. It keeps the last minute for the
sparklines and knows no run, no clock and no Spark, so that a test or a picture can feed it as well.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from rich.console import Group, RenderableType
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from evenflow.coordinator.hosting import Hosting
from evenflow.monitor.roster import DEAD, LEAVING, LEFT, Roster
from evenflow.monitor.summary import DASH, Progress, grouped, mebibytes, milliseconds, number
from evenflow.monitor.timeline import STYLES, Event, timeline

REFRESH_HZ: Final = 4
HISTORY: Final = 240
"""Samples kept for the sparklines: a minute."""

BLOCKS: Final = " ▁▂▃▄▅▆▇"
"""Without the full block, which would grow together with the line above."""

BAR_WIDTH: Final = 12
TOP: Final = 6
"""Rows of results shown."""
TOP_BELOW_EVENTS: Final = 3
"""Rows of results shown where there is a timeline above them."""
EVENTS_SHOWN: Final = 7
BOXES_SHOWN: Final = 8
ROLES: Final = {"live": "green", "joining": "yellow", "spare": "blue", "starting": "dim", DEAD: "red", LEAVING: "magenta", LEFT: "dim"}


def sparkline(values: Iterable[float | None], width: int) -> str:
    """The newest `width` values as bars from 0 to their maximum; a missing value is a gap. Always `width` characters."""
    newest = list(values)[-width:]
    top = max((v for v in newest if v is not None), default=0.0)
    drawn = "".join(" " if v is None else BLOCKS[1] if top <= 0 or v <= 0 else BLOCKS[max(1, round(v / top * 7))] for v in newest)
    return drawn.rjust(width)


def bar(share: float | None, width: int = BAR_WIDTH) -> Text:
    """CPU of a site as a bar, full at one core, green to red. share: CPU-seconds per second."""
    if share is None:
        return Text(DASH, style="dim")
    filled = max(0, min(width, round(share * width)))
    style = "green" if share < 0.6 else "yellow" if share < 0.85 else "red"
    return Text.assemble(("━" * filled, style), ("━" * (width - filled), "grey23"), f" {share * 100:4.0f}%")


@dataclass(slots=True)
class Results:
    """The newest result per key, in the order of their last change. keys: columns that make a result's identity."""

    keys: tuple[str, ...] = ()
    limit: int = 10_000
    rows: dict[tuple[Any, ...], Mapping[str, Any]] = field(default_factory=dict)

    def take(self, rows: Sequence[Mapping[str, Any]]) -> None:
        for row in rows:
            identity = tuple(row.get(key) for key in self.keys) if self.keys else (len(self.rows),)
            self.rows.pop(identity, None)
            self.rows[identity] = row
        while len(self.rows) > self.limit:
            self.rows.pop(next(iter(self.rows)))

    def newest(self, count: int) -> list[Mapping[str, Any]]:
        """The last `count` that changed, newest first. A copy, since results arrive in another thread."""
        return list(reversed(list(self.rows.values())[-count:]))


class View:
    """What the terminal shows. dataflow, master: for the header. results: rows to show at the bottom, or None.

    said: a sentence above the timeline, or None. note: below everything.
    """

    def __init__(self, dataflow: str, master: str, results: Results | None = None) -> None:
        self.dataflow, self.master, self.results = dataflow, master, results
        self.progress: Progress = {}
        self.note = "Ctrl-C stops cleanly"
        self.said: str | None = None
        self.events: Sequence[Event] = ()
        self._roster = Roster()
        self._history: dict[str, deque[float | None]] = {
            key: deque(maxlen=HISTORY) for key in ("rows_in_per_s", "rows_out_per_s", "p50_ms", "p99_ms")
        }

    def update(self, progress: Progress, hosting: Mapping[int, Hosting] | None = None, events: Sequence[Event] = ()) -> None:
        """Take the newest numbers. hosting: of every site of the run, where known. events: of the run, all of them."""
        self.progress, self.events = progress, events
        self._roster.update(progress, hosting or {}, events)
        for key, values in self._history.items():
            values.append(number(progress, key))

    def __rich__(self) -> RenderableType:
        parts: list[RenderableType] = [self._header(), Text(), self._numbers(), Text(), self._sites()]
        for slow in self.progress.get("slow") or ():
            waits = f"box {slow['box']} at site {slow['site']} has not returned from epoch {slow['epoch']} for {slow['seconds']:.0f} s"
            parts += [Text(), Text(waits, style="bold yellow")]
        if self.said is not None:
            parts += [Text(), Text(self.said, style="bold")]
        if self.events:
            parts += [Text(), self._timeline()]
        if self.results is not None and self.results.rows:
            parts += [Text(), self._newest()]
        if self.results is None and not self.events and self.progress.get("boxes"):
            parts += [Text(), self._boxes()]
        title, subtitle = Text(f" evenflow · {self.dataflow} · {self.master} ", style="bold cyan"), Text(f" {self.note} ", style="dim")
        return Panel(Group(*parts), title=title, subtitle=subtitle, border_style="cyan", padding=(1, 2))

    def _header(self) -> RenderableType:
        seconds = number(self.progress, "seconds") or 0.0
        sites = self.progress.get("sites") or ()
        elapsed = f"{int(seconds) // 60:02d}:{int(seconds) % 60:02d}"
        return Text.assemble(
            ("run ", "dim"), str(self.progress.get("run", DASH)), ("   elapsed ", "dim"), (elapsed, "bold"),
            ("   sites ", "dim"), str(len(sites)), *self._redundancy(),
        )  # fmt: skip

    def _redundancy(self) -> list[tuple[str, str]]:
        """How many replicas every partition has at least, of how many it shall have; nothing where it shall have one."""
        replicas, now = number(self.progress, "replicas"), number(self.progress, "redundancy")
        if replicas is None or now is None or replicas < 2:
            return []
        return [("   redundancy ", "dim"), (f"{now:.0f} of {replicas:.0f}", "bold green" if now >= replicas else "bold red")]

    def _numbers(self) -> RenderableType:
        grid = Table.grid(padding=(0, 2), expand=True)
        grid.add_column(style="dim", no_wrap=True)
        grid.add_column(justify="right", style="bold", no_wrap=True, min_width=12)
        grid.add_column(no_wrap=True, ratio=1)
        grid.add_column(style="dim", no_wrap=True)
        grid.add_column(justify="right", no_wrap=True, min_width=12)
        per_second, seconds = _per_second, milliseconds
        for label, show, key, style, other, total in (
            ("rows in", per_second, "rows_in_per_s", "green", "rows in", "rows_in"),
            ("rows out", per_second, "rows_out_per_s", "blue", "rows out", "rows_out"),
            ("latency p50", seconds, "p50_ms", "magenta", "epochs done", "epoch"),
            ("latency p99", seconds, "p99_ms", "red", "epochs in flight", "epochs_in_flight"),
        ):
            now, whole = number(self.progress, key), number(self.progress, total)
            grid.add_row(label, show(now), Sparkline(self._history[key], style), other, grouped(whole))
        return grid

    def _sites(self) -> RenderableType:
        rows = self._roster.rows
        with_roles = any(site["role"] is not None for site in rows)
        table = Table(box=None, expand=True, padding=(0, 2, 0, 0), header_style="dim")
        table.add_column("site", no_wrap=True)
        if with_roles:
            table.add_column("role", no_wrap=True, min_width=8)
            table.add_column("partitions", justify="right", no_wrap=True)
        for name in ("executor",) if with_roles else ("executor", "host"):
            table.add_column(name, no_wrap=True)
        table.add_column("CPU of a core", no_wrap=True)
        for name in ("rows/s", "state", "memory", "epoch"):
            table.add_column(name, justify="right", no_wrap=True)
        for site in rows:
            role = site["role"]
            index, executor = str(site.get("site", DASH)), str(site.get("executor", DASH))
            if role in (DEAD, LEFT):
                style = "not strike bold red" if role == DEAD else "not strike"
                cells: list[RenderableType] = [index, Text(role, style=style), hosted(site), executor]
                table.add_row(*cells, *[DASH] * 4, grouped(number(site, "epoch")), style="strike grey50")
                continue
            cells = [index]
            cells += [Text(role or DASH, style=ROLES.get(role or "", "")), hosted(site)] if with_roles else []
            cells += [executor] if with_roles else [executor, str(site.get("host", DASH))]
            table.add_row(
                *cells, bar(number(site, "cpu_share")), grouped(number(site, "rows_in_per_s")), state(site),
                mebibytes(_memory(site)), grouped(number(site, "epoch")),
            )  # fmt: skip
        return table

    def _boxes(self) -> RenderableType:
        """Those that take the most time, in the query's order: shown where there is room."""
        table = Table(box=None, expand=True, padding=(0, 2, 0, 0), header_style="dim")
        table.add_column("box", no_wrap=True)
        table.add_column("segment", no_wrap=True, style="dim")
        for name in ("rows in", "cost per row", "rows out per row", "of a core"):
            table.add_column(name, justify="right", no_wrap=True)
        boxes: Sequence[Progress] = self.progress["boxes"]
        busiest = sorted(range(len(boxes)), key=lambda at: -(number(boxes[at], "busy_share") or 0.0))[:BOXES_SHOWN]
        for at in sorted(busiest):
            box = boxes[at]
            cost, selectivity, share = number(box, "cost_us"), number(box, "selectivity"), number(box, "busy_share")
            table.add_row(
                str(box["box"]), str(box["segment"]), _per_second(number(box, "rows_in_per_s")),
                DASH if cost is None else f"{cost:.2f} us", DASH if selectivity is None else f"{selectivity:.3g}",
                DASH if share is None else f"{share * 100:.1f}%",
            )  # fmt: skip
        return table

    def _timeline(self) -> RenderableType:
        """The newest entries, oldest first."""
        table = Table(title="what happened", title_style="dim", title_justify="left", box=None, expand=True, padding=(0, 2, 0, 0))
        table.show_header = False
        table.add_column(justify="right", no_wrap=True, style="dim", width=8)
        table.add_column(ratio=1)
        for entry in timeline(self.events)[-EVENTS_SHOWN:]:
            table.add_row(f"{entry.at_s:.2f} s", Text(entry.text, style=STYLES.get(entry.kind, ""), no_wrap=True, overflow="ellipsis"))
        return table

    def _newest(self) -> RenderableType:
        assert self.results is not None
        rows = self.results.newest(TOP_BELOW_EVENTS if self.events else TOP)
        columns = list(rows[0])
        table = Table(title="newest results", title_style="dim", title_justify="left", box=None, expand=True, padding=(0, 2, 0, 0))
        table.header_style = "dim"
        for name in columns:
            table.add_column(name, no_wrap=True, justify="right" if isinstance(rows[0][name], int | float) else "left")
        for row in rows:
            table.add_row(*(shown(row.get(name)) for name in columns))
        return table


def hosted(site: Mapping[str, Any]) -> str:
    """Partitions of a site: those that count, and those that come."""
    coming = site.get("coming")
    return grouped(number(site, "partitions")) + (f" (+{coming:,})" if coming else "")


def state(site: Mapping[str, Any]) -> str:
    """State of a site in memory, and on its disk."""
    spilled = number(site, "spilled_bytes")
    return mebibytes(number(site, "state_bytes")) + (f" (+{mebibytes(spilled)} on disk)" if spilled else "")


def _memory(site: Mapping[str, Any]) -> float | None:
    """What the site's process takes of the machine: pages that it shares count in part, where the system tells."""
    pss = number(site, "pss_bytes")
    return number(site, "rss_bytes") if pss is None else pss


def _per_second(value: float | None) -> str:
    return f"{grouped(value)}/s"


class Sparkline:
    """A sparkline as wide as the room it is given."""

    def __init__(self, values: Iterable[float | None], style: str) -> None:
        self.values, self.style = values, style

    def __rich_console__(self, console: Any, options: Any) -> Iterable[Text]:
        yield Text(sparkline(self.values, min(options.max_width, HISTORY)), style=self.style, no_wrap=True)

    def __rich_measure__(self, console: Any, options: Any) -> Any:
        from rich.measure import Measurement

        return Measurement(8, options.max_width)


def shown(value: Any) -> str:
    """A result's cell."""
    if value is None:
        return "null"
    if isinstance(value, float):
        return f"{value:,.3f}"
    if hasattr(value, "isoformat"):
        text: str = value.isoformat(sep=" ", timespec="milliseconds") if hasattr(value, "hour") else value.isoformat()
        return text
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)
