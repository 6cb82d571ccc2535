"""The live view of a run in the terminal: rates, latency, sites, what happened to them, the newest results.

A `View` is told what `run.numbers()` and `run.events_since()` say, four times a second, and draws itself. It keeps the last minute for the
sparklines and knows no run, no clock and no Spark, so that a test or a picture can feed it as well.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from rich.console import Group, RenderableType
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from evenflow.coordinator.hosting import Hosting
from evenflow.monitor.roster import DEAD, LEAVING, LEFT, Roster, Row
from evenflow.monitor.summary import DASH, checkpoint_text, grouped, mebibytes, milliseconds
from evenflow.monitor.timeline import STYLES, Event, Timeline
from evenflow.statistics.progress import Progress, SiteProgress

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


def _per_second(value: float | None) -> str:
    return f"{grouped(value)}/s"


class Meter(NamedTuple):
    """A line with a sparkline. now: what is drawn. other, total: a count that stands beside it."""

    label: str
    show: Callable[[float | None], str]
    now: Callable[[Progress], float | None]
    style: str
    other: str
    total: Callable[[Progress], int]


METERS: Final = (
    Meter("rows in", _per_second, lambda p: p.rows_in_per_s, "green", "rows in", lambda p: p.rows_in),
    Meter("rows out", _per_second, lambda p: p.rows_out_per_s, "blue", "rows out", lambda p: p.rows_out),
    Meter("latency p50", milliseconds, lambda p: p.p50_ms, "magenta", "epochs done", lambda p: p.epoch),
    Meter("latency p99", milliseconds, lambda p: p.p99_ms, "red", "epochs in flight", lambda p: p.epochs_in_flight),
)


class View:
    """What the terminal shows. dataflow, master: for the header. results: rows to show at the bottom, or None.

    said: a sentence above the timeline, or None. note: below everything. page: before it, the page's address, or None. Whoever has that can
    operate the engine, so pictures are made of `drawn`, which has it not.
    """

    def __init__(self, dataflow: str, master: str, results: Results | None = None) -> None:
        self.master, self.results = master, results
        self.progress: Progress | None = None
        self.note = "Ctrl-C stops cleanly"
        self.page: str | None = None
        self.said: str | None = None
        self.begin_anew(dataflow)

    def begin_anew(self, dataflow: str) -> None:
        """What is told from now on is of another run, of that dataflow."""
        self.dataflow = dataflow
        self._happened, self._roster = Timeline(EVENTS_SHOWN), Roster()
        self._history: list[deque[float | None]] = [deque(maxlen=HISTORY) for _ in METERS]

    def update(self, progress: Progress, hosting: Mapping[int, Hosting] | None = None, news: Sequence[Event] = ()) -> None:
        """Take the newest numbers. hosting: of every site of the run, where known. news: events since the last time."""
        self.progress = progress
        self._happened.take(news)
        self._roster.update(progress, hosting or {}, news)
        for meter, values in zip(METERS, self._history, strict=True):
            values.append(meter.now(progress))

    def __rich__(self) -> RenderableType:
        return self.drawn(self.note if self.page is None else f"{self.page} · {self.note}")

    def drawn(self, note: str) -> RenderableType:
        """All of it, with `note` below."""
        parts: list[RenderableType] = [self._header(), Text(), self._numbers(), Text(), self._sites()]
        if self.progress is not None and self.progress.checkpoint is not None:
            failing = self.progress.checkpoint.failures > 0
            parts += [Text(), Text(checkpoint_text(self.progress.checkpoint), style="yellow" if failing else "dim")]
        for slow in () if self.progress is None else self.progress.slow:
            waits = f"box {slow.box} at site {slow.site} has not returned from epoch {slow.epoch} for {slow.seconds:.0f} s"
            parts += [Text(), Text(waits, style="bold yellow")]
        if self.said is not None:
            parts += [Text(), Text(self.said, style="bold")]
        if self._happened.entries:
            parts += [Text(), self._timeline()]
        if self.results is not None and self.results.rows:
            parts += [Text(), self._newest()]
        if self.results is None and not self._happened.entries and self.progress is not None and self.progress.boxes:
            parts += [Text(), self._boxes(self.progress)]
        title, subtitle = Text(f" evenflow · {self.dataflow} · {self.master} ", style="bold cyan"), Text(f" {note} ", style="dim")
        return Panel(Group(*parts), title=title, subtitle=subtitle, border_style="cyan", padding=(1, 2))

    def _header(self) -> RenderableType:
        progress = self.progress
        run, seconds, sites = (DASH, 0.0, 0) if progress is None else (progress.run, progress.seconds, len(progress.sites))
        elapsed = f"{int(seconds) // 60:02d}:{int(seconds) % 60:02d}"
        return Text.assemble(
            ("run ", "dim"), run, ("   elapsed ", "dim"), (elapsed, "bold"), ("   sites ", "dim"), str(sites), *self._redundancy()
        )

    def _redundancy(self) -> list[tuple[str, str]]:
        """How many replicas every partition has at least, of how many it shall have; nothing where it shall have one."""
        if self.progress is None or self.progress.replicas < 2:
            return []
        replicas, now = self.progress.replicas, self.progress.redundancy
        return [("   redundancy ", "dim"), (f"{now} of {replicas}", "bold green" if now >= replicas else "bold red")]

    def _numbers(self) -> RenderableType:
        grid = Table.grid(padding=(0, 2), expand=True)
        grid.add_column(style="dim", no_wrap=True)
        grid.add_column(justify="right", style="bold", no_wrap=True, min_width=12)
        grid.add_column(no_wrap=True, ratio=1)
        grid.add_column(style="dim", no_wrap=True)
        grid.add_column(justify="right", no_wrap=True, min_width=12)
        for meter, values in zip(METERS, self._history, strict=True):
            now, total = (None, None) if self.progress is None else (meter.now(self.progress), meter.total(self.progress))
            grid.add_row(meter.label, meter.show(now), Sparkline(values, meter.style), meter.other, grouped(total))
        return grid

    def _sites(self) -> RenderableType:
        rows = self._roster.rows
        with_roles = any(row.role is not None for row in rows)
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
        for row in rows:
            role, site = row.role, row.told
            index, executor = str(site.site), site.executor
            if role in (DEAD, LEFT):
                style = "not strike bold red" if role == DEAD else "not strike"
                cells: list[RenderableType] = [index, Text(role, style=style), hosted(row), executor]
                table.add_row(*cells, *[DASH] * 4, grouped(site.epoch), style="strike grey50")
                continue
            cells = [index]
            cells += [Text(role or DASH, style=ROLES.get(role or "", "")), hosted(row)] if with_roles else []
            cells += [executor] if with_roles else [executor, site.host]
            table.add_row(
                *cells, bar(site.cpu_share), grouped(site.rows_in_per_s), state(site), mebibytes(site.pss_bytes or site.rss_bytes),
                grouped(site.epoch),
            )  # fmt: skip
        return table

    def _boxes(self, progress: Progress) -> RenderableType:
        """Those that take the most time, in the query's order: shown where there is room."""
        table = Table(box=None, expand=True, padding=(0, 2, 0, 0), header_style="dim")
        table.add_column("box", no_wrap=True)
        table.add_column("segment", no_wrap=True, style="dim")
        for name in ("rows in", "cost per row", "rows out per row", "of a core"):
            table.add_column(name, justify="right", no_wrap=True)
        boxes = progress.boxes
        busiest = sorted(range(len(boxes)), key=lambda at: -boxes[at].busy_share)[:BOXES_SHOWN]
        for at in sorted(busiest):
            box = boxes[at]
            table.add_row(
                box.box, box.segment, _per_second(box.rows_in_per_s), DASH if box.cost_us is None else f"{box.cost_us:.2f} us",
                DASH if box.selectivity is None else f"{box.selectivity:.3g}", f"{box.busy_share * 100:.1f}%",
            )  # fmt: skip
        return table

    def _timeline(self) -> RenderableType:
        """The newest entries, oldest first."""
        table = Table(title="what happened", title_style="dim", title_justify="left", box=None, expand=True, padding=(0, 2, 0, 0))
        table.show_header = False
        table.add_column(justify="right", no_wrap=True, style="dim", width=8)
        table.add_column(ratio=1)
        for entry in self._happened.entries:
            table.add_row(f"{entry.at_s:.2f} s", Text(entry.text, style=STYLES.get(entry.kind, ""), no_wrap=True, overflow="ellipsis"))
        return table

    def _newest(self) -> RenderableType:
        assert self.results is not None
        rows = self.results.newest(TOP_BELOW_EVENTS if self._happened.entries else TOP)
        columns = list(rows[0])
        table = Table(title="newest results", title_style="dim", title_justify="left", box=None, expand=True, padding=(0, 2, 0, 0))
        table.header_style = "dim"
        for name in columns:
            table.add_column(name, no_wrap=True, justify="right" if isinstance(rows[0][name], int | float) else "left")
        for row in rows:
            table.add_row(*(shown(row.get(name)) for name in columns))
        return table


def hosted(row: Row) -> str:
    """Partitions of a site: those that count, and those that come."""
    return grouped(row.partitions) + (f" (+{row.coming:,})" if row.coming else "")


def state(site: SiteProgress) -> str:
    """State of a site in memory, and on its disk."""
    return mebibytes(site.state_bytes) + (f" (+{mebibytes(site.spilled_bytes)} on disk)" if site.spilled_bytes else "")


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
