"""`evenflow run` goes on when nobody can be told how it goes, and says who has ended it. Sites, files and journal are real."""

from __future__ import annotations

import contextlib
import io
import json
import os
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from rich.console import Console

import evenflow as ef
from evenflow.bench.bare import BareEngine
from evenflow.cli import running
from evenflow.cli.output import Output
from evenflow.cli.recording import Recorder, Recording
from evenflow.store.journal import read_journal
from evenflow.store.opening import open_store
from evenflow.world.spark.driver import engine

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


def stopped(location: Path) -> bool:
    return read_journal(open_store(str(location))).stopped


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


class Broken(Recorder):
    def step(self) -> None:
        raise RuntimeError("who watches is broken")


def test_an_error_of_who_watches_is_no_person_that_stops(bare: None, tmp_path: Path) -> None:
    """So that who stands by goes on."""
    location = tmp_path / "there"
    with Output(as_json=True) as output, pytest.raises(RuntimeError, match="who watches is broken"):
        running.execute(request(location, None, recorder=Broken(tmp_path / "record", output.say)), output)
    assert not stopped(location)


def test_a_run_whose_time_is_over_is_stopped(bare: None, tmp_path: Path) -> None:
    with Output(as_json=True) as output:
        assert running.execute(request(tmp_path / "there", None, seconds=0.5), output) == 0
    assert stopped(tmp_path / "there")


@pytest.mark.parametrize("where", ["a pipe that nobody reads", "a full disk"])
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
    [
        (None, True), (KeyboardInterrupt(), True), (SystemExit(), True), (SystemExit(0), True), (SystemExit(143), True),
        (SystemExit(1), False), (SystemExit("no such table"), False), (ValueError(), False),
    ],
)  # fmt: skip
def test_only_who_leaves_an_engine_in_order_has_stopped_its_runs(error: BaseException | None, will: bool, tmp_path: Path) -> None:
    location = tmp_path / "there"
    with contextlib.suppress(BaseException), BareEngine(1, partitions=4) as there:
        there.start(flow(None), checkpoint_location=str(location))
        if error is not None:
            raise error
    assert stopped(location) == will
