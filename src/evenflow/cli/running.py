"""Start a dataflow on a session of its own, show how it goes, end it in every way it can end, and leave nothing behind."""

from __future__ import annotations

import contextlib
import functools
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any, Final

import typer
from rich.text import Text

from evenflow.cli.output import INTERRUPTED, OK, Output
from evenflow.cli.recording import Recorder, Recording
from evenflow.cli.settings import Settings
from evenflow.cli.showing import Accessories, Screen
from evenflow.cli.standing_by import standing_by
from evenflow.coordinator.requests import KILL
from evenflow.errors import AvailabilityError, EngineUnreachable, EvenflowError, PolicyError, QueryError
from evenflow.monitor.kill import Kill, compared_sentence
from evenflow.monitor.live import REFRESH_HZ, Results, View
from evenflow.monitor.picture import picture
from evenflow.monitor.summary import plain_line, report, summary_table
from evenflow.monitor.timeline import event_line
from evenflow.monitor.viewed import hosting_of
from evenflow.statistics.progress import Progress

if TYPE_CHECKING:
    from evenflow.cli.striking import Strike
    from evenflow.world.grouping import InGroup
    from evenflow.world.spark.driver.ui_process import UiProcess

PLAIN_EVERY_S: Final = 1.0
PATIENCE_S: Final = 60.0
PLACE_TIMEOUT_S: Final = 120.0
STRIKE_PATIENCE_S: Final = 30.0
"""How long a run goes on beyond its time until redundancy is full again."""
COPIES_S: Final = 1.0
"""After so long people are told why the command does not end."""
HEALED_SHOWN_S: Final = 0.6
"""The picture is taken so long after all is whole again: the sites' numbers have come by then."""


Kills = Callable[[Any, Mapping[str, Any], Callable[[str], None]], dict[str, Any]]
"""(engine, arguments, say) -> what is answered."""


@dataclass(frozen=True, slots=True)
class Request:
    """What to run. build: makes the dataflow from the session. seconds: stop then; None: when the sources end. plain: no live view.

    patient: make the dataflow when its sites are there, and count the seconds from its first epoch with rows on, so that a slow machine
    shows as much as a fast one.

    picture: file into which the view is saved as it was at the end, or right after a kill's consequences were over. strike: the kill, if
    there is to be one. compare(rows in): compares what came out with what must; its result is reported, None if it cannot tell. recording:
    of the run's statistics. recorder: of scenes and readings. sites_only: see `embedded_session`. checkpoint_location, take_over,
    from_savepoint, drop_state, standby, availability, durability, allow_pickle: see `Engine.start`. earlier: makes those from the session.
    settings: of Spark and the engine, besides. ui: serve the engine's page; None: in a terminal. kills: what the page's button for a kill
    does; None: it has none.
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
    replicas: int = 1
    spares: int = 0
    balance: str = "none"
    availability: str = "pairs"
    strike: Strike | None = None
    compare: Callable[[float], Mapping[str, int] | None] | None = None
    recording: Recording | None = None
    recorder: Recorder | None = None
    sites_only: bool = False
    checkpoint_location: str | None = None
    durability: str | None = None
    take_over: bool = False
    group: InGroup | None = None
    from_savepoint: str | None = None
    drop_state: tuple[str, ...] = ()
    earlier: Callable[[Any], Sequence[Any]] = lambda spark: ()
    allow_pickle: bool = False
    standby: bool = False
    settings: Settings = field(default_factory=Settings)
    ui: bool | None = None
    kills: Kills | None = None


def master_for(sites: int, spares: int, settings: Settings | None = None) -> str:
    """A cluster on this machine with an executor for each site and spare, as many as there may be, two slots on each."""
    most = max(sites, *(settings.engine.get("autoscale") or (0, 0))) if settings is not None else sites
    return f"local-cluster[{most + spares},2,1024]"


def check_balance(policy: str) -> None:
    """Raise BadParameter for a policy that there is not, before Spark takes its time to start."""
    from evenflow.policy.catalogue import described

    try:
        described(policy)
    except PolicyError as error:
        raise typer.BadParameter(str(error), param_hint="--balance") from None


def check_availability(mode: str) -> None:
    """Raise BadParameter for a mode that there is not, before Spark takes its time to start."""
    from evenflow.availability.mode import mode_named

    try:
        mode_named(mode, "the dataflow")
    except AvailabilityError as error:
        raise typer.BadParameter(str(error), param_hint="--availability") from None


def check_durability(location: str | None, durability: str | None) -> None:
    """Wrong usage shows before Spark takes its time to start."""
    from evenflow.availability.durability import durability_named

    if durability is None:
        return
    if location is None:
        raise typer.BadParameter("it is about what a location has: give --checkpoint-location, too", param_hint="--durability")
    try:
        durability_named(durability, "the dataflow")
    except AvailabilityError as error:
        raise typer.BadParameter(str(error), param_hint="--durability") from None


def check_replicas(sites: int, replicas: int) -> None:
    """Wrong usage shows before Spark takes its time to start."""
    if replicas > sites:
        raise typer.BadParameter(f"{replicas} replicas need as many sites, not {sites}: two never share one", param_hint="--replicas")


def check_picture(picture: Path | None) -> None:
    """A place where none can be saved shows before Spark takes its time to start."""
    if picture is not None and not os.access(picture if picture.exists() else picture.parent, os.W_OK):
        raise typer.BadParameter(f"{picture} cannot be written", param_hint="--picture")


def check_file(file: Path, what: str) -> None:
    """A name that is misspelt shows before anything is loaded, or compiled, that would be needed to read it."""
    if not file.is_file():
        raise QueryError(f"there is no file {file}: give {what}")


def check_savepoint(location: str | None, savepoint: str | None, dropped: Sequence[str] | None) -> None:
    """Wrong usage shows before Spark takes its time to start."""
    if savepoint is not None and location is None:
        why = "what is taken over of it is kept at a location of its own: give --checkpoint-location, too"
        raise typer.BadParameter(why, param_hint="--from-savepoint")
    if dropped and savepoint is None:
        raise typer.BadParameter("it is about the state of a savepoint: give --from-savepoint, too", param_hint="--drop-state")


def region_of(
    name: str | None, begin: str | None, place: int, peers: Sequence[str] | None = None, ca: Path | None = None
) -> InGroup | None:
    """What --group and the options about it say. Raises OptionError."""
    given = {"group": name, "group_begin": begin, "group_place": place, "group_peers": peers, "group_ca": ca}
    if not any(given.values()):
        return None
    from evenflow.world.grouping import asked

    return asked(given, lambda option: "--group-peer" if option == "group_peers" else f"--{option.replace('_', '-')}")


@dataclass(frozen=True, slots=True)
class Cutting:
    """What --cut and the options about it say. Raises Typer's error for one of them without --cut."""

    cut: str | None
    width_ms: float | None = None
    cut_by: str | None = None
    width_rows: int | None = None
    cut_ahead_ms: float | None = None
    mirrored: bool = False

    def __post_init__(self) -> None:
        told = {
            "--width-ms": self.width_ms, "--cut-by": self.cut_by, "--width-rows": self.width_rows, "--cut-ahead-ms": self.cut_ahead_ms,
            "--mirrored": self.mirrored or None,
        }  # fmt: skip
        wrong = next((name for name, value in told.items() if value is not None and self.cut is None), None)
        if wrong is not None:
            raise typer.BadParameter("is about cuts by content: give --cut content, too", param_hint=wrong)

    def apply(self, flow: Any) -> Any:
        """The dataflow, with its sources cut so. Raises OptionError, QueryError."""
        if self.cut is None:
            return flow
        said = asdict(self)
        return flow.cut(said.pop("cut"), **said)


def check_standby(location: str | None, *, standby: bool, take_over: bool) -> None:
    """Wrong usage shows before Spark takes its time to start."""
    if standby and location is None:
        raise typer.BadParameter("it needs a location to watch: give --checkpoint-location, too", param_hint="--standby")
    if standby and take_over:
        raise typer.BadParameter("it waits until another driver is silent, and --take-over does not wait", param_hint="--standby")


def execute(request: Request, output: Output) -> int:
    """Run it to its end. Reports, prints the summary and returns the exit code; raises what the run raised."""
    progress, events, count, interrupted = _run(request, output)
    content = report(progress, master=request.master, interrupted=interrupted, events=events, forgotten=count - len(events))
    sentences = []
    strike = request.strike
    if strike is not None:
        sentences.append(strike.said or "")
    if request.compare is not None:
        compared = None if interrupted else request.compare(progress.rows_in)
        after = strike.after if strike is not None else None
        content |= {"kill": None if after is None else after.to_json(), "compared": compared}
        if not interrupted:
            sentences.append(compared_sentence(compared))
    output.report(content)

    def tell() -> None:
        if not output.as_json:
            output.out.print()
            output.out.print(summary_table(progress, interrupted=interrupted, events=events))
        if sentences:
            output.out.print()
            output.out.print(" ".join(sentences), highlight=False, soft_wrap=True)

    Accessories(output.say).call("standard output", tell)
    return INTERRUPTED if interrupted else OK


def _run(request: Request, output: Output) -> tuple[Progress, list[dict[str, Any]], int, bool]:
    """The final progress, the events that are kept, how many there have been, and whether somebody pressed Ctrl-C."""
    from evenflow.world.spark.driver.engine import Engine
    from evenflow.world.spark.driver.watching import watcher_of

    with embedded(request, output) as spark:
        flow = None if request.patient else request.build(spark)
        with contextlib.ExitStack() as held:
            with _waiting(output, f"placing {request.sites + request.spares} sites on executors"):
                options: dict[str, Any] = {"balance": request.balance, "place_timeout_s": PLACE_TIMEOUT_S, **request.settings.engine}
                engine = Engine(spark, sites=request.sites, spares=request.spares, replicas=request.replicas, **options)
                held.enter_context(engine)
            flow = request.build(spark) if flow is None else flow
            page = _open_control(engine, output, ui=output.out.is_terminal if request.ui is None else request.ui, kills=request.kills)
            with standing_by(output, request.standby) as watch:
                run = engine.start(
                    flow, checkpoint_location=request.checkpoint_location, take_over=request.take_over, group=request.group,
                    from_savepoint=request.from_savepoint, drop_state=request.drop_state, standby=request.standby,
                    earlier=request.earlier(spark), allow_pickle=request.allow_pickle,
                    availability=request.availability, durability=request.durability, watch=watch,
                )  # fmt: skip
            if not run.is_active:
                output.say(f"run {run.id} has ended before: there is nothing to go on with at {request.checkpoint_location}")
            if request.recorder is not None:
                request.recorder.begin(watcher_of(engine).news)
            with until_interrupted() as interrupt:
                view = View(flow.name, request.master, request.results)
                if page is not None:
                    page.when_there(lambda url: _show_page(view, url, output), output.say)
                accessories = Accessories(output.say)
                Watch(run, view, request, output, interrupt, accessories).go_on()
                if run.is_active:
                    run.stop()
                unclosed = _await_sinks(run, interrupt)
                _await_copies(engine, interrupt, output)
                stopped = interrupt.is_set()
            if request.recording is not None:
                accessories.call("--statistics", functools.partial(request.recording.write, run))
            if request.recorder is not None:
                accessories.call("--record", request.recorder.step)
            _raise_failure(run, None if stopped else unclosed)
            if request.strike is not None:
                request.strike.finish()
            return run.numbers(), *run.events_since(), stopped


def _open_control(engine: Any, output: Output, *, ui: bool = False, kills: Kills | None = None) -> UiProcess | None:
    """Let `evenflow sites`, `drain` and so on find this engine, and open its page. A run goes on where there is no place for the file that
    they need, and without a page. kills: see `Request`."""
    page: UiProcess | None = None
    try:
        file = engine.open_control()
    except EngineUnreachable as error:
        output.say(f"nobody can operate this engine from outside: {error}")
    else:
        output.say(f"to operate it: evenflow sites --engine {file.stem}")
        if kills is not None:
            engine._control.allow(KILL.name, kills)
        page = engine.open_ui() if ui else None
    return page


def _show_page(view: View, url: str, output: Output) -> None:
    """Where people look: below the view, or as a line of its own."""
    if output.out.is_terminal and not output.as_json:
        view.page = url
    else:
        output.say(f"its page: {url}")


@contextlib.contextmanager
def embedded(request: Request, output: Output) -> Iterator[Any]:
    from evenflow.world.spark.cluster.session import embedded_session, stop_session

    with _waiting(output, f"starting Spark on {request.master}"):
        spark = embedded_session(request.master, request.app_name, request.settings.conf, sites_only=request.sites_only)
    try:
        yield spark
    finally:
        stop_session(spark)


class Watch:
    """Show the run until it ends, its time is over, or somebody presses Ctrl-C. A kill's consequences are awaited for a while."""

    def __init__(
        self, run: Any, view: View, request: Request, output: Output, interrupt: threading.Event, accessories: Accessories
    ) -> None:
        self._run, self._view, self._request, self._output, self._interrupt = run, view, request, output, interrupt
        self._accessories = accessories
        self._plain = request.plain or output.as_json or not output.out.is_terminal
        self._began_s = time.monotonic()
        self._first_s: float | None = None if request.patient else self._began_s
        self._next_line_s = self._began_s + PLAIN_EVERY_S
        self._told = 0
        self._kill_told = False
        self._healed_s: float | None = None
        self._pictured = False

    def go_on(self) -> None:
        screen = None if self._plain else Screen(self._view, self._output.out)
        try:
            self._show(screen, Screen.begin)
            while self._run.is_active and not self._interrupt.is_set() and not self._is_over():
                self._interrupt.wait(1 / REFRESH_HZ)
                self._look()
                self._show(screen, Screen.draw)
        finally:
            self._view.page, self._view.note = None, "stopping" if self._run.is_active else "the sources have ended"
            self._show(screen, Screen.end)
        if not self._pictured:
            self._save()

    def _show(self, screen: Screen | None, what: Callable[[Screen], None]) -> None:
        """Where that cannot be, lines are said from now on."""
        if screen is not None and not self._plain and not self._accessories.call("the live view", functools.partial(what, screen)):
            screen.leave()
            self._plain, self._next_line_s = True, time.monotonic()

    def _is_over(self) -> bool:
        """The time is over. A patient run's begins with its first epoch, or when patience ends."""
        if self._request.seconds is None:
            return False
        now_s, strike = time.monotonic(), self._request.strike
        if self._first_s is None:
            return now_s >= self._began_s + PATIENCE_S + self._request.seconds
        over_s = self._first_s + self._request.seconds
        if strike is not None and (strike.pending or self._healed_s is not None and now_s < self._healed_s + 2 * HEALED_SHOWN_S):
            over_s += STRIKE_PATIENCE_S
        return now_s >= over_s

    def _look(self) -> None:
        progress, strike = self._run.numbers(), self._request.strike
        news, self._told = self._run.events_since(self._told)
        hosted = hosting_of(progress)
        now_s = time.monotonic()
        if self._first_s is None and progress.epoch and progress.rows_in:
            self._first_s = now_s
        if strike is not None:
            if self._first_s is not None:
                strike.step(self._run, progress, hosted, now_s - self._first_s)
            self._view.said = strike.said
            if strike.kill is not None and not self._kill_told:
                self._kill_told = True
                news.append(kill_event(strike.kill))
            if strike.healed and self._healed_s is None:
                self._healed_s = now_s
        if self._request.recording is not None:
            self._accessories.call("--statistics", functools.partial(self._request.recording.step, self._run, now_s))
        if self._request.recorder is not None:
            self._accessories.call("--record", self._request.recorder.step)
        self._accessories.call("the view", functools.partial(self._view.update, progress, hosted, news))
        self._say(progress, news, now_s)
        if self._healed_s is not None and now_s >= self._healed_s + HEALED_SHOWN_S and not self._pictured:
            self._save()

    def _say(self, progress: Progress, news: list[dict[str, Any]], now_s: float) -> None:
        if not self._plain:
            return
        for event in news:
            self._output.say(event_line(event))
        if now_s >= self._next_line_s:
            self._next_line_s += PLAIN_EVERY_S
            self._output.say(plain_line(progress))

    def _save(self) -> None:
        self._pictured = True
        if self._request.picture is not None:
            self._accessories.call(f"--picture {self._request.picture}", self._save_picture)

    def _save_picture(self) -> None:
        assert self._request.picture is not None
        self._request.picture.write_text(picture(self._view.drawn(self._view.note), self._request.app_name), encoding="utf-8")


def kill_event(kill: Kill) -> dict[str, Any]:
    """The kill, which the run knows nothing of, as an event of it."""
    text = f"kill -9 of executor {kill.executor} (site {kill.site})"
    return {"at_s": kill.at_s, "kind": "kill", "site": kill.site, "text": text}


def _await_sinks(run: Any, interrupt: threading.Event) -> EvenflowError | None:
    """Until the sinks of a run that is over are closed, or somebody presses Ctrl-C, which stops it. Returns the run's failure, or, of one
    that was stopped, what is to be said of sinks that are given up."""
    try:
        while not run.await_termination(1 / REFRESH_HZ):
            if interrupt.is_set():
                run.stop()
                break
    except EvenflowError as error:
        return error
    return None


def _await_copies(engine: Any, interrupt: threading.Event, output: Output) -> None:
    """A savepoint that another process has asked for is copied by a thread of this one, which needs the run no more: until it is whole, or
    somebody presses Ctrl-C."""
    port = engine._control
    if port is None or interrupt.is_set() or port.await_copies(COPIES_S):
        return
    output.say("a savepoint is still being copied; Ctrl-C gives it up")
    while not interrupt.is_set() and not port.await_copies(1 / REFRESH_HZ):
        pass


def _raise_failure(run: Any, unclosed: EvenflowError | None) -> None:
    """unclosed: of sinks that are given up, whose run has not failed."""
    error = run.exception() or unclosed
    if error is not None:
        raise error


@contextlib.contextmanager
def _waiting(output: Output, what: str) -> Iterator[None]:
    """Something that takes seconds, shown as such."""
    if output.err.is_terminal:
        with output.err.status(Text(f"{what} …")):
            yield
    else:
        output.say(what)
        yield


@contextlib.contextmanager
def until_interrupted() -> Iterator[threading.Event]:
    """Ctrl-C, SIGTERM and SIGHUP set the event instead of raising, so that they never fall into a call to the JVM. A third one raises."""
    from evenflow.world.spark.cluster.interrupts import ENDING

    event = threading.Event()
    count = 0

    def note(number: int, frame: FrameType | None) -> None:
        nonlocal count
        count += 1
        event.set()
        if count >= 3:
            raise KeyboardInterrupt

    heeded = [number for number in ENDING if callable(signal.getsignal(number))]
    before = {number: signal.signal(number, note) for number in heeded}
    try:
        yield event
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
