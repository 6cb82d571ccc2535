"""`evenflow watch`: the live view of an engine that runs elsewhere on this machine, or what a recording tells, line by line."""

from __future__ import annotations

import contextlib
from collections.abc import Generator, Iterable, Sequence
from pathlib import Path
from typing import Annotated, Any, Final

import typer
from rich.live import Live

from evenflow.cli.options import Json, Plain
from evenflow.cli.output import OK, Output
from evenflow.errors import OperationRefused, StatisticsError
from evenflow.monitor.history import History
from evenflow.monitor.live import View
from evenflow.monitor.reading import Reading
from evenflow.monitor.recorded import lines_of, read
from evenflow.monitor.scene import Scene
from evenflow.monitor.summary import plain_line
from evenflow.monitor.timeline import Event, event_line
from evenflow.monitor.viewed import events_of, hosting_of, progress_of, told_of
from evenflow.statistics.progress import Progress

SUFFIX: Final = ".jsonl"
LINE_US: Final = 1_000_000


def watch(
    context: typer.Context,
    source: Annotated[
        str | None,
        typer.Argument(metavar="ENGINE|FILE.jsonl", help="Id of an engine, its control file, or a recording; default the only one here."),
    ] = None,
    run: Annotated[str | None, typer.Option(metavar="ID", help="Run or dataflow; may be left out if only one is active.")] = None,
    plain: Plain = False,
    json: Json = False,
) -> int:
    """Watch a running engine, or read a recording of `evenflow run --record`. The engine does not wait for this, and goes on without it.

    Example: `evenflow watch`
    """
    output: Output = context.obj
    recorded = source is not None and source.endswith(SUFFIX)
    told = _recorded(Path(source)) if recorded and source is not None else _watched(source)
    shown = Shown(run, output, plain=plain or recorded or output.as_json or not output.out.is_terminal)
    with contextlib.closing(told):
        found = shown.go_on(told)
    if found is None:
        raise OperationRefused("there is no run to watch" if run is None else f"no run is called {run!r}")
    output.report(found)
    return OK


def _watched(engine: str | None) -> Generator[Scene | Reading, None, None]:
    from evenflow.world.spark.driver.control_client import find
    from evenflow.world.spark.driver.control_client import watch as told_by

    return told_by(find(engine))


def _recorded(path: Path) -> Generator[Scene | Reading, None, None]:
    try:
        with path.open("rb") as file:
            yield from read(lines_of(file))
    except OSError as error:
        raise StatisticsError(f"{path} cannot be read: {error.strerror}") from None


class Shown:
    """run: which one, by id or dataflow; None: the newest active one, or the newest."""

    def __init__(self, run: str | None, output: Output, *, plain: bool) -> None:
        self._wanted, self._output, self._plain = run, output, plain
        self._history = History()
        self._view: View | None = None
        self._run: str | None = None
        self._said_us = -LINE_US

    def go_on(self, told: Iterable[Scene | Reading]) -> dict[str, Any] | None:
        """Until there is nothing more, or the run is over. Returns how it went last, see `told_of`; None without such a run."""
        found: dict[str, Any] | None = None
        with contextlib.ExitStack() as stack:
            for each in told:
                self._history.add(each)
                if isinstance(each, Scene):
                    self._choose(each)
                    continue
                progress = None if self._run is None else progress_of(self._history, self._run)
                if progress is None or self._run is None:
                    continue
                found, news = told_of(progress, self._history), events_of(self._history, self._run)
                if self._plain:
                    self._say(progress, news)
                else:
                    self._draw(progress, news, stack)
                if not progress.active:
                    break
        return found

    def _choose(self, scene: Scene) -> None:
        fit = [run for run in scene.runs if self._wanted is None or self._wanted in (run.run, run.dataflow)]
        chosen = next((run for run in reversed(fit) if run.active), fit[-1] if fit else None)
        if chosen is not None and chosen.run != self._run:
            self._run = chosen.run
            self._said_us = -LINE_US
            if self._view is not None:
                self._view.begin_anew(chosen.dataflow)

    def _say(self, progress: Progress, news: Sequence[Event]) -> None:
        for event in news:
            self._output.say(event_line(event))
        now_us = progress.seconds * 1e6
        if now_us >= self._said_us + LINE_US or now_us < self._said_us or not progress.active:
            self._said_us = int(now_us)
            self._output.say(plain_line(progress))

    def _draw(self, progress: Progress, news: Sequence[Event], stack: contextlib.ExitStack) -> None:
        if self._view is None:
            assert self._history.scene is not None
            self._view = View(progress.dataflow, self._history.scene.name)
            self._view.note = "Ctrl-C ends this view; the run goes on"
            stack.enter_context(Live(self._view, console=self._output.out, refresh_per_second=4))
        self._view.update(progress, hosting_of(progress), news)
