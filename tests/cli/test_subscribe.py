"""`evenflow subscribe`: rows for people, for a pipe, and as one object."""

from __future__ import annotations

import json
import math
import os
import signal
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from evenflow.cli.app import main
from evenflow.sinks import stream
from evenflow.sinks.stream import SECRET_VARIABLE
from evenflow.world.spark.regions.serving import StreamServer
from evenflow.world.spark.regions.subscriber import Subscriber


@pytest.fixture
def port(monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    monkeypatch.setenv(SECRET_VARIABLE, "a secret of sixteen or more")
    server = StreamServer(stream(0), "out", {"name": "traffic"})
    for epoch in (2, 5):
        server.publish(epoch, pa.record_batch({"n": [epoch, 10 * epoch]}))
    server.finish()
    yield server.port
    server.close()


def said(capfd: pytest.CaptureFixture[str], *arguments: str, code: int = 0) -> str:
    with pytest.raises(SystemExit) as end:
        main(["subscribe", *arguments])
    assert end.value.code == code
    return capfd.readouterr().out


def test_rows_are_shown_by_epoch(port: int, capfd: pytest.CaptureFixture[str]) -> None:
    assert said(capfd, f"localhost:{port}", "--after", "0") == "epoch 2: 2 rows\nn\n2\n20\nepoch 5: 2 rows\nn\n5\n50\n"


def test_a_line_for_each_row(port: int, capfd: pytest.CaptureFixture[str]) -> None:
    found = said(capfd, f"localhost:{port}", "--after", "2", "--lines", "--group", "traffic", "--sink", "out")
    assert [json.loads(line) for line in found.splitlines()] == [{"_epoch": 5, "n": 5}, {"_epoch": 5, "n": 50}]


@pytest.fixture
def endless(monkeypatch: pytest.MonkeyPatch) -> Iterator[StreamServer]:
    """One that gives three rows, two of which JSON has no number for, and more only if it is told to."""
    monkeypatch.setenv(SECRET_VARIABLE, "a secret of sixteen or more")
    server = StreamServer(stream(0), "out", {"name": "traffic"})
    server.publish(2, pa.record_batch({"x": [math.nan, -math.inf, 1.5], "b": [b"\x01\xff", None, b""]}))
    yield server
    server.close()


ODD = [{"_epoch": 2, "x": "nan", "b": "01ff"}, {"_epoch": 2, "x": "-inf", "b": None}, {"_epoch": 2, "x": 1.5, "b": ""}]


@pytest.mark.parametrize("form", ["--json", "--lines"])
def test_what_json_has_no_number_for_is_a_text(form: str, endless: StreamServer, capfd: pytest.CaptureFixture[str]) -> None:
    found = said(capfd, f"localhost:{endless.port}", "--after", "0", "--epochs", "1", form)
    assert "NaN" not in found
    assert (json.loads(found)["output"] if form == "--json" else [json.loads(line) for line in found.splitlines()]) == ODD


def once_taken(monkeypatch: pytest.MonkeyPatch, then: Callable[[], object]) -> None:
    """then: happens when the first epoch has been taken, in the middle of what is done with it."""
    take, done = Subscriber.take, threading.Event()

    def taking(self: Subscriber, timeout_s: float) -> tuple[int, pa.RecordBatch] | None:
        found = take(self, timeout_s)
        if found is not None and not done.is_set():
            done.set()
            then()
        return found

    monkeypatch.setattr(Subscriber, "take", taking)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_ctrl_c_ends_it_with_all_that_has_come(
    number: signal.Signals, endless: StreamServer, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever goes on behind `delivered` misses nothing."""
    once_taken(monkeypatch, lambda: os.kill(os.getpid(), number))
    found = json.loads(said(capfd, f"localhost:{endless.port}", "--after", "0", "--json", code=130))
    assert found["output"] == ODD and found["interrupted"] is True
    assert (found["epochs"], found["rows"], found["delivered"], found["ended"]) == (1, 3, 2, False)


def test_regions_that_go_take_no_rows_along(
    endless: StreamServer, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    once_taken(monkeypatch, endless.close)
    found = json.loads(said(capfd, f"localhost:{endless.port}", "--after", "0", "--patience", "0.3", "--json", code=3))
    assert found["error"]["type"] == "RegionsUnreachable" and found["error"]["exit_code"] == 3
    assert found["output"] == ODD and (found["rows"], found["delivered"], found["interrupted"]) == (3, 2, False)


def test_one_object(port: int, capfd: pytest.CaptureFixture[str]) -> None:
    found = json.loads(said(capfd, f"localhost:{port}", "--after", "0", "--epochs", "1", "--json"))
    assert found["output"] == [{"_epoch": 2, "n": 2}, {"_epoch": 2, "n": 20}]
    assert (found["epochs"], found["rows"], found["delivered"], found["ended"]) == (1, 2, 2, False)


GROUP = ["--group", "g", "--group-begin", "2026-11-23T08:00:00Z"]


@pytest.mark.parametrize(
    ("given", "why"),
    [(["--group", "g"], "--group-begin"), (["--group-begin", "2026-11-23T08:00:00Z"], "--group"), (["--group-place", "1"], "--group"),
     (["--group-peer", "localhost:1"], "--group"), ([*GROUP, "--group-peer", "far:1"], "tls_ca"),
     ([*GROUP, "--group-peer", "out=localhost:1", "--group-peer", "localhost:2"], "SINK="),
     (["--group", "g", "--group-begin", "soon"], "zone"), (["--group", "a b", "--group-begin", "2026-11-23T08:00:00Z"], "letters")],
)  # fmt: skip
def test_a_region_is_wholly_described_or_refused(given: list[str], why: str, capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        main(["run", __file__, *given])
    assert end.value.code == 2 and why in " ".join(capfd.readouterr().err.split())


@pytest.mark.parametrize(("given", "why"), [(["--width-ms", "5"], "--cut content"), (["--cut-by", "time"], "--cut content")])
def test_what_is_about_cuts_by_content_needs_them(given: list[str], why: str, capfd: pytest.CaptureFixture[str]) -> None:
    for command in ("run", "sql"):
        with pytest.raises(SystemExit) as end:
            main([command, __file__, *given])
        assert end.value.code == 2 and why in " ".join(capfd.readouterr().err.split())


def test_statements_are_cut_by_an_option(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "counts.sql"
    file.write_text("CREATE VIEW r USING generator OPTIONS (rate '100'); CREATE TABLE o USING discard; INSERT INTO o SELECT key FROM r;")
    for given in ([], ["--cut", "content", "--width-ms", "50"]):
        with pytest.raises(SystemExit) as end:
            main(["sql", str(file), "--plan", *given])
        assert end.value.code == 0 and ("cut" in capfd.readouterr().out) == bool(given)
    with pytest.raises(SystemExit) as end:
        main(["sql", str(file), "--plan", "--cut", "rows"])
    assert end.value.code == 2 and "give 'leader' or 'content'" in " ".join(capfd.readouterr().err.split())


def test_what_is_wrong_is_said(port: int, capfd: pytest.CaptureFixture[str]) -> None:
    assert json.loads(said(capfd, f"localhost:{port}", "--group", "other", "--json", code=3))["error"]["type"] == "GroupDiffers"
    assert json.loads(said(capfd, "nowhere", "--json", code=2))["error"]["type"] == "OptionError"
    assert said(capfd, f"localhost:{port}", "--lines", "--json", code=2)
