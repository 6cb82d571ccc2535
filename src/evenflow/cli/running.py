"""Start a dataflow on a session of its own, show how it goes, end it in every way it can end, and leave nothing behind."""

from __future__ import annotations

import contextlib
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any, Final

from rich.live import Live

from evenflow.cli.output import INTERRUPTED, OK, Output
from evenflow.monitor.live import REFRESH_HZ, Results, View
from evenflow.monitor.picture import picture
from evenflow.monitor.summary import plain_line, report, summary_table

MASTER: Final = "local-cluster[4,2,1024]"
PLAIN_EVERY_S: Final = 1.0
PATIENCE_S: Final = 60.0
PLACE_TIMEOUT_S: Final = 120.0


@dataclass(frozen=True, slots=True)
class Request:
    """What to run. build: makes the dataflow from the session. seconds: stop then; None: when the sources end. plain: no live view.

    patient: count the seconds from the first epoch on, so that a slow machine shows as much as a fast one.

    picture: file into which the view is saved as it was at the end.
    """

    app_name: str
    master: str
    sites: int
    build: Callable[[Any], Any]
    seconds: float | None = None
    plain: bool = False
    results: Results | None = None
    picture: Path | None = None
    patient: bool = False


def execute(request: Request, output: Output) -> int:
    """Run it to its end. Reports, prints the summary and returns the exit code; raises what the run raised."""
    progress, interrupted = _run(request, output)
    output.report(report(progress, master=request.master, interrupted=interrupted))
    if not output.as_json:
        output.out.print()
        output.out.print(summary_table(progress, interrupted=interrupted))
    return INTERRUPTED if interrupted else OK


def _run(request: Request, output: Output) -> tuple[Mapping[str, Any], bool]:
    from evenflow.world.spark.engine import Engine

    with embedded(request, output) as spark:
        flow = request.build(spark)
        with _waiting(output, f"placing {request.sites} sites on executors"):
            engine = Engine(spark, sites=request.sites, place_timeout_s=PLACE_TIMEOUT_S)
            engine.__enter__()
        try:
            run = engine.start(flow)
            with _until_interrupted() as interrupt:
                view = View(flow.name, request.master, request.results)
                _watch(run, view, request, output, interrupt)
                if request.picture is not None:
                    request.picture.write_text(picture(view, request.app_name), encoding="utf-8")
                stopped = interrupt.is_set()
                if run.is_active:
                    run.stop()
            _raise_failure(run)
            return run.progress(), stopped
        finally:
            engine.__exit__(None, None, None)


@contextlib.contextmanager
def embedded(request: Request, output: Output) -> Iterator[Any]:
    from evenflow.world.spark.session import embedded_session, stop_session

    with _waiting(output, f"starting Spark on {request.master}"):
        spark = embedded_session(request.master, request.app_name)
    try:
        yield spark
    finally:
        stop_session(spark)


def _watch(run: Any, view: View, request: Request, output: Output, interrupt: threading.Event) -> None:
    """Show the run until it ends, its time is over, or somebody presses Ctrl-C."""
    began = time.monotonic()
    waits_until = began + PATIENCE_S if request.patient else began
    deadline = None if request.seconds is None else waits_until + request.seconds
    plain = request.plain or output.as_json or not output.out.is_terminal
    shown = contextlib.nullcontext() if plain else Live(view, console=output.out, refresh_per_second=REFRESH_HZ, transient=False)
    next_line = time.monotonic() + PLAIN_EVERY_S
    with shown:
        while run.is_active and not interrupt.is_set() and (deadline is None or time.monotonic() < deadline):
            interrupt.wait(1 / REFRESH_HZ)
            view.update(run.progress())
            if deadline is not None and time.monotonic() < waits_until and view.progress.get("epoch"):
                waits_until, deadline = began, time.monotonic() + (request.seconds or 0.0)
            if plain and time.monotonic() >= next_line:
                next_line += PLAIN_EVERY_S
                output.say(plain_line(view.progress))
        if not plain:
            view.note = "stopping" if run.is_active else "the sources have ended"


def _raise_failure(run: Any) -> None:
    error = run.exception()
    if error is not None:
        raise error


@contextlib.contextmanager
def _waiting(output: Output, what: str) -> Iterator[None]:
    """Something that takes seconds, shown as such."""
    if output.err.is_terminal:
        with output.err.status(f"{what} …"):
            yield
    else:
        output.say(what)
        yield


@contextlib.contextmanager
def _until_interrupted() -> Iterator[threading.Event]:
    """Ctrl-C and SIGTERM set the event instead of raising, so that they never fall into a call to the JVM. A third one raises."""
    event = threading.Event()
    count = 0

    def note(number: int, frame: FrameType | None) -> None:
        nonlocal count
        count += 1
        event.set()
        if count >= 3:
            raise KeyboardInterrupt

    before = {number: signal.signal(number, note) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield event
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
