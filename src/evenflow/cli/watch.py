"""`evenflow watch`: the live view of an engine that runs elsewhere on this machine, or what a recording tells, line by line."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Generator, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer
from rich.live import Live

from evenflow.cli.options import Json, Plain
from evenflow.cli.output import OK, Output, error_object, exit_code_of
from evenflow.errors import EngineUnreachable, EvenflowError, OperationRefused, RunFailed, StatisticsError
from evenflow.monitor.history import History
from evenflow.monitor.live import View
from evenflow.monitor.reading import Reading
from evenflow.monitor.recorded import lines_of, read
from evenflow.monitor.scene import Scene
from evenflow.monitor.summary import plain_line
from evenflow.monitor.timeline import Event, event_line
from evenflow.monitor.viewed import events_of, hosting_of, progress_of, told_of
from evenflow.statistics.progress import Progress

if TYPE_CHECKING:
    from evenflow.world.spark.driver.control_client import Address

SUFFIX: Final = ".jsonl"
LINE_US: Final = 1_000_000
ENDS_S: Final = 5.0
"""For so long an engine that closes its connections may have its file, until it has ended."""
LOOK_S: Final = 0.1


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

    Exit code 1: the run has failed. Exit code 3: the engine was not heard of any more while the run was active.

    Example: `evenflow watch`
    """
    output: Output = context.obj
    recorded = source is not None and source.endswith(SUFFIX)
    address = None if recorded else _found(source)
    told = _recorded(Path(source)) if address is None and source is not None else _watched(address)
    shown = Shown(run, output, plain=plain or recorded or output.as_json or not output.out.is_terminal)
    with contextlib.closing(told):
        found = shown.go_on(told)
    if found is None:
        raise OperationRefused("there is no run to watch" if run is None else f"no run is called {run!r}")
    wrong: EvenflowError | None = shown.failure
    if address is not None and shown.active:
        wrong = _lost(address, source, shown.run)
    if wrong is None:
        output.report(found)
        return OK
    output.error(wrong)
    output.report({"error": error_object(wrong), **found})
    return exit_code_of(wrong)


def _found(engine: str | None) -> Address:
    from evenflow.world.spark.driver.control_client import find

    return find(engine)


def _watched(address: Address | None) -> Generator[Scene | Reading, None, None]:
    from evenflow.world.spark.driver.control_client import watch as told_by

    assert address is not None, "else it is a recording"
    return told_by(address)


def _lost(address: Address, given: str | None, run: str | None) -> EngineUnreachable | None:
    """Why an engine says nothing any more of a run that was active; None: it has ended in order, and its runs with it, which may take it a
    moment."""
    from evenflow.world.spark.driver.control_client import ended, left_its_file

    until_s = time.monotonic() + ENDS_S
    while (why := ended(address, given)) is None and time.monotonic() < until_s:
        time.sleep(LOOK_S)
    if why is not None and not left_its_file(address, given):
        return None
    where = f"engine {address.engine} ({address.name}, process {address.pid}) says nothing any more"
    return EngineUnreachable(f"{why or where}; {run} was active when it was heard of last")


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
        self.active = False

    @property
    def run(self) -> str | None:
        """The one that is shown. active: when it was heard of last."""
        return self._run

    @property
    def failure(self) -> RunFailed | None:
        """Why the run has failed."""
        scene = self._history.scene
        run = None if scene is None or self._run is None else scene.run(self._run)
        return None if run is None or run.failure is None else RunFailed(f"{run.run} ({run.dataflow}) has failed: {run.failure}")

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
                self.active = progress.active
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
