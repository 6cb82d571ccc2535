"""`evenflow run` goes on when nobody can be told how it goes, and says who has ended it. Sites, files and journal are real."""

from __future__ import annotations

import contextlib
import io
import json
import os
import select
import signal
import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import typer
from rich.console import Console
from tests.drawn import one_in

import evenflow as ef
from evenflow.bench.bare import BareEngine
from evenflow.cli import running
from evenflow.cli.output import Output
from evenflow.cli.recording import Recorder, Recording
from evenflow.errors import EngineUnreachable, OperationRefused, SinkError
from evenflow.monitor.live import Results
from evenflow.sinks.callback import CallbackWriter
from evenflow.store.journal import read_journal
from evenflow.store.opening import open_store
from evenflow.world.locations.savepoints import Savepoint
from evenflow.world.spark.driver import engine, in_place
from evenflow.world.spark.driver.control_client import ask, find
from evenflow.world.spark.driver.keeping import Keeping

pytestmark = [pytest.mark.timeout(120)]
ROWS = 3_000


def flow(rows: int | None) -> ef.Dataflow:
    made = ef.Dataflow("watched")
    made.source(ef.sources.generator(rate=3_000, keys=4, rows=rows, partitions=1), name="rows").to(ef.sinks.discard(), name="out")
    return made


@pytest.fixture
def bare(monkeypatch: pytest.MonkeyPatch) -> None:
    def made(spark: Any, sites: int, spares: int, replicas: int, **options: Any) -> BareEngine:
        there = BareEngine(sites, replicas, partitions=4, **{name: value for name, value in options.items() if name != "place_timeout_s"})
        named: Any = SimpleNamespace(sparkContext=SimpleNamespace(appName="test"))
        there.spark = named
        return there

    monkeypatch.setattr(running, "embedded", lambda request, output: contextlib.nullcontext())
    monkeypatch.setattr(engine, "Engine", made)


def request(location: Path, rows: int | None = ROWS, **more: Any) -> running.Request:
    return running.Request("test", "none", 1, lambda spark: flow(rows), plain=True, checkpoint_location=str(location), ui=False, **more)


class Asking(threading.Thread):
    """Another process asks the engine for something, as soon as there are one and a run."""

    def __init__(self, what: str, **given: Any) -> None:
        super().__init__(daemon=True)
        self._what, self._given, self.answers = what, given, list[Any]()
        self.start()

    def run(self) -> None:
        for _ in range(600):
            try:
                self.answers.append(ask(find(), self._what, **self._given))
                return
            except (EngineUnreachable, OperationRefused):
                threading.Event().wait(0.1)


def stopped(location: Path) -> bool:
    return read_journal(open_store(str(location))).stopped


@pytest.mark.conformance
def test_a_file_beside_the_run_that_is_full_ends_no_run(bare: None, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    full = Path("/dev/full")
    with Output(as_json=True) as output:
        asked = request(tmp_path / "there", recorder=Recorder(full, output.say), recording=Recording(full, output.say))
        assert running.execute(asked, output) == 0
    said = capfd.readouterr()
    assert json.loads(said.out)["rows_in"] == ROWS
    words = " ".join(said.err.split())
    assert words.count("--record: /dev/full") == 1 and words.count("--statistics: /dev/full") == 1, "each is said once"
    assert "No space left on device" in words


@pytest.mark.conformance
def test_a_picture_has_not_the_page_s_token(bare: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is taken while the terminal shows the address, when a kill's consequences are over."""

    def page(engine: Any, output: Output, **more: Any) -> Any:
        return SimpleNamespace(when_there=lambda show, say: show("http://127.0.0.1:4141/#token=secret"))

    monkeypatch.setattr(running, "_open_control", page)
    over: Any = SimpleNamespace(said=None, kill=None, healed=True, pending=False, step=lambda *given: None, finish=lambda: None)
    with Output(as_json=False) as output:
        output.out = Console(force_terminal=True, file=io.StringIO(), width=120)
        asked = request(tmp_path / "there", None, seconds=1.0, picture=tmp_path / "view.svg", strike=over)
        assert running.execute(asked, output) == 0
    svg = (tmp_path / "view.svg").read_text()
    assert "watched" in svg and "Ctrl-C" in svg and "secret" not in svg and "4141" not in svg


@pytest.mark.conformance
def test_the_end_of_a_sink_is_awaited(bare: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Goal: no exit code 0 before the rows are where they should be. Method: the sink has a second's work at its end, and fails."""

    def close(writer: CallbackWriter) -> None:
        threading.Event().wait(1.0)
        raise OSError("no space left")

    def watched(spark: Any) -> ef.Dataflow:
        made = ef.Dataflow("watched")
        rows = made.source(ef.sources.generator(rate=3_000, keys=4, rows=ROWS, partitions=1), name="rows")
        rows.to(ef.sinks.callback(lambda epoch, batch: None), name="out")
        return made

    monkeypatch.setattr(CallbackWriter, "close", close)
    asked = replace(request(tmp_path / "there"), build=watched)
    with Output(as_json=True) as output, pytest.raises(SinkError, match="'out' cannot be closed: OSError: no space left"):
        running.execute(asked, output)


@pytest.mark.parametrize("by", ["another process", "its time", "Ctrl-C"])
def test_a_run_that_is_stopped_while_its_sink_hangs_has_not_gone_well(
    bare: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, by: str
) -> None:
    """Goal: no exit code 0 where what came last may be lost. Method: the run's sink cannot be closed."""
    monkeypatch.setenv("EVENFLOW_CONTROL_DIR", str(tmp_path / "control"))
    monkeypatch.setattr(in_place, "SINKS_S", 0.2)
    goes, go_on = threading.Event(), running.Watch.go_on

    def press(watch: running.Watch) -> None:
        """When it is heard as Ctrl-C of the command, and not of all tests."""
        if by == "Ctrl-C":
            signal.raise_signal(signal.SIGINT)
        go_on(watch)

    def watched(spark: Any) -> ef.Dataflow:
        made = ef.Dataflow("watched")
        rows = made.source(ef.sources.generator(rate=3_000, keys=4, partitions=1), name="rows")
        rows.to(ef.sinks.callback(lambda epoch, batch: None), name="out")
        return made

    monkeypatch.setattr(CallbackWriter, "close", lambda writer: goes.wait(60))
    monkeypatch.setattr(running.Watch, "go_on", press)
    asked = replace(request(tmp_path / "there", None, seconds=0.5 if by == "its time" else None), build=watched)
    asking = Asking("stop", timeout_s=60.0) if by == "another process" else None
    lost = pytest.raises(SinkError, match="was stopped, and sink 'out' has not been closed")
    try:
        with Output(as_json=True) as output, contextlib.nullcontext() if by == "Ctrl-C" else lost:
            assert running.execute(asked, output) == 130
    finally:
        goes.set()
    if asking is not None:
        asking.join(20)
        assert asking.answers[0]["error"] is None


class Broken(Recorder):
    def step(self) -> None:
        raise RuntimeError("who watches is broken")


def said_of(capfd: pytest.CaptureFixture[str]) -> tuple[Any, str]:
    """The object, and what was said besides."""
    said = capfd.readouterr()
    return json.loads(said.out), " ".join(said.err.split())


def test_who_watches_may_be_broken(bare: None, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    with Output(as_json=True) as output:
        assert running.execute(request(tmp_path / "there", recorder=Broken(tmp_path / "record", output.say)), output) == 0
    told, words = said_of(capfd)
    assert told["rows_in"] == ROWS and words.count("--record: RuntimeError: who watches is broken; the run does without it") == 1


@pytest.mark.conformance
def test_a_picture_that_cannot_be_saved_is_said_and_the_result_stands(
    bare: None, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "missing" / "view.svg"
    with Output(as_json=True) as output:
        assert running.execute(request(tmp_path / "there", picture=file), output) == 0
    told, words = said_of(capfd)
    assert told["rows_in"] == ROWS and words.count(f"--picture {file}: No such file or directory") == 1


def test_a_place_for_a_picture_is_looked_at_before_anything_starts(tmp_path: Path) -> None:
    running.check_picture(None)
    running.check_picture(tmp_path / "view.svg")
    with pytest.raises(typer.BadParameter, match="cannot be written"):
        running.check_picture(tmp_path / "missing" / "view.svg")
    assert not list(tmp_path.iterdir())


class Terminal:
    """A real one, on which standard output is. What it shows is read until it is closed, as a window is, or until `last` has been shown."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, last: bytes | None = None) -> None:
        self._last = last
        self._inside, outside = os.openpty()
        self.shown = b""
        monkeypatch.setenv("TERM", "xterm")
        monkeypatch.setattr(sys, "stdout", os.fdopen(outside, "w", buffering=1))
        self._closing = threading.Event()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        while not self._closing.is_set() and (self._last is None or self._last not in self.shown):
            if select.select([self._inside], [], [], 0.05)[0]:
                self.shown += os.read(self._inside, 1 << 16)
        os.close(self._inside)

    def close(self) -> None:
        self._closing.set()
        self._reader.join()


def test_the_live_view_stands_at_the_end(bare: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal(monkeypatch)
    with Output(as_json=False) as output:
        assert running.execute(replace(request(tmp_path / "there"), plain=False), output) == 0
        terminal.close()
    assert b"what happened" not in terminal.shown and b"the sources have ended" in terminal.shown and b"watched: done" in terminal.shown


@pytest.mark.conformance
def test_a_terminal_that_is_closed_ends_no_run(
    bare: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """It was started with nohup, or disowned."""
    terminal = Terminal(monkeypatch, b"elapsed")
    with Output(as_json=False) as output:
        assert running.execute(replace(request(tmp_path / "there", 6_000), plain=False), output) == 0
        terminal.close()
    words = " ".join(capfd.readouterr().err.split())
    assert words.count("the live view: the terminal is gone; the run does without it") == 1
    assert words.count("standard output: Input/output error") == 1 and " in flight)" in words, "lines are said instead"


class Unspeakable:
    def __str__(self) -> str:
        raise ValueError("no words")


@pytest.mark.conformance
def test_a_view_that_cannot_be_drawn_ends_no_run(
    bare: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    results = Results()
    results.take([{"row": Unspeakable()}])
    terminal = Terminal(monkeypatch)
    with Output(as_json=False) as output:
        assert running.execute(replace(request(tmp_path / "there", results=results), plain=False), output) == 0
        terminal.close()
    words = " ".join(capfd.readouterr().err.split())
    assert words.count("the live view: ValueError: no words; the run does without it") == 1
    assert b"watched: done" in terminal.shown and terminal.shown.count(b"\x1b[?25h") == 1, "the cursor is there again"


@pytest.mark.parametrize("where", one_in(2, ["a pipe that nobody reads", "a full disk"]))
def test_standard_output_that_takes_nothing_does_not_change_how_a_run_has_ended(where: str, tmp_path: Path) -> None:
    """In a process of its own: what takes nothing is left behind for good."""
    reader, gone = os.pipe()
    os.close(reader)
    if where == "a full disk":
        os.close(gone)
        gone = os.open("/dev/full", os.O_WRONLY)
    done = subprocess.run([sys.executable, "-c", ENDED, str(tmp_path)], stdout=gone, stderr=subprocess.PIPE, text=True, check=False)
    os.close(gone)
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("standard output: ") == 1 and "Traceback" not in done.stderr


ENDED = """
import sys
from tests.statistics.numbers import progress
from evenflow.cli import running
from evenflow.cli.output import Output
running._run = lambda request, output: (progress(), [], 0, False)
with Output(as_json=False) as output:
    code = running.execute(running.Request("test", "none", 1, None), output)
sys.exit(code)
"""


def test_an_error_of_the_command_is_no_person_that_stops(bare: None, tmp_path: Path) -> None:
    """So that who stands by goes on."""

    def step(*_: Any) -> None:
        raise RuntimeError("who strikes is broken")

    location = tmp_path / "there"
    strike: Any = SimpleNamespace(step=step, kill=None, healed=False, said=None, pending=False)
    with Output(as_json=True) as output, pytest.raises(RuntimeError, match="who strikes is broken"):
        running.execute(request(location, None, strike=strike), output)
    assert not stopped(location)


@pytest.mark.conformance
def test_a_run_whose_time_is_over_is_stopped(bare: None, tmp_path: Path) -> None:
    with Output(as_json=True) as output:
        assert running.execute(request(tmp_path / "there", None, seconds=0.5), output) == 0
    assert stopped(tmp_path / "there")


def test_a_savepoint_that_somebody_has_asked_for_is_whole_when_the_command_ends(
    bare: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Method: the run is stopped before the first object is copied, and that happens only when there is nothing else left to do."""
    monkeypatch.setenv("EVENFLOW_CONTROL_DIR", str(tmp_path / "control"))
    monkeypatch.setattr(running, "COPIES_S", 0.1)
    saved, export, waits = str(tmp_path / "saved"), Keeping.export, threading.Event()

    def slow(keeping: Keeping, name: str, target: str, say: Any = None) -> Savepoint:
        ask(find(), "stop", timeout_s=60.0)
        waits.wait(10)
        return export(keeping, name, target, say)

    class Told(Output):
        def say(self, text: str) -> None:
            if text.startswith("a savepoint is still being copied"):
                waits.set()
            super().say(text)

    monkeypatch.setattr(Keeping, "export", slow)
    asking = Asking("savepoint", target=saved, timeout_s=60.0)
    with Told(as_json=True) as output:
        assert running.execute(request(tmp_path / "there", None), output) == 0
    assert ef.checkpoints(saved).verify().whole
    asking.join(20)
    assert asking.answers[0]["location"] == saved


@pytest.mark.parametrize("where", one_in(2, ["a pipe that nobody reads", "a full disk"]))
def test_standard_error_that_takes_nothing_loses_its_lines_and_nothing_else(
    where: str, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor is standard output, where the object goes, closed for it."""
    if where == "a full disk":
        gone = os.open("/dev/full", os.O_WRONLY)
    else:
        reader, gone = os.pipe()
        os.close(reader)
    file = os.fdopen(gone, "w", buffering=1)
    output = Output(as_json=True)
    with output:
        monkeypatch.setattr(sys, "stderr", file)
        for _ in range(3):
            output.say("how it goes")
        output.report({"rows": 1})
        output.out.print("more")
        output.error(RuntimeError("no"))
        monkeypatch.undo()
    with contextlib.suppress(OSError):
        file.close()
    assert json.loads(capfd.readouterr().out)["error"]["message"] == "no"


def test_standard_error_that_takes_lines_again_gets_the_next_one(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    output = Output(as_json=False)
    with contextlib.suppress(OSError), open("/dev/full", "w", buffering=1) as full:
        monkeypatch.setattr(sys, "stderr", full)
        output.say("lost")
    with (tmp_path / "log").open("w") as log:
        monkeypatch.setattr(sys, "stderr", log)
        output.say("there again")
    assert (tmp_path / "log").read_text() == "there again\n"


@pytest.mark.parametrize(
    ("error", "will"),
    one_in(
        4,
        [
            (SystemExit(143), True), (None, True), (KeyboardInterrupt(), True), (SystemExit(), True),
            (ValueError(), False), (SystemExit(0), True), (SystemExit(1), False), (SystemExit("no such table"), False),
        ],
        spread=True,
    ),
)  # fmt: skip
def test_only_who_leaves_an_engine_in_order_has_stopped_its_runs(error: BaseException | None, will: bool, tmp_path: Path) -> None:
    location = tmp_path / "there"
    with contextlib.suppress(BaseException), BareEngine(1, partitions=4) as there:
        there.start(flow(None), checkpoint_location=str(location))
        if error is not None:
            raise error
    assert stopped(location) == will
