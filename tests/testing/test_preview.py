"""A preview shows what passes every arrow, and ends what would never end, or takes all the memory there is."""

from __future__ import annotations

import json
import signal
import subprocess
import threading
from pathlib import Path
from typing import Any

import pytest

import evenflow as ef
from evenflow.child_python import command_of
from evenflow.errors import BoxFailed, CodeNotAllowed, OptionError, PreviewFailed
from evenflow.query.network import Network
from evenflow.stream.schema import parse_ddl
from evenflow.testing.preview import MOST_BYTES, Limits, preview
from evenflow.testing.sample import made_of
from evenflow.testing.trying import plain, tried
from tests.query.networks import packets

PACKETS = [
    {"ts": "2026-01-01 10:00:01", "src": "a", "proto": 6, "length": 10},
    {"ts": "2026-01-01 10:00:02", "src": "a", "proto": 17, "length": 90},
    {"ts": "2026-01-01 10:01:00", "src": "b", "proto": 6, "length": 5},
]


def drawn() -> Network:
    flow = ef.Dataflow("drawn")
    rows = packets(flow).where("proto = 6", name="tcp")
    rows.group_by("src").window("1 minute").agg(bytes="sum(length)").name("totals").to(ef.sinks.parquet("/nowhere"), name="out")
    return flow.network


def seen(told: dict[str, Any], box: str) -> dict[str, Any]:
    found: dict[str, Any] = next(tap for tap in told["taps"] if tap["box"] == box)
    return found


def test_rows_are_seen_at_every_arrow() -> None:
    told = tried(drawn(), {"packets": PACKETS})
    assert [(tap["box"], tap["count"]) for tap in told["taps"]] == [("packets", 3), ("watermark", 3), ("tcp", 2), ("totals", 2)]
    totals = seen(told, "totals")
    assert totals["columns"] == ["src", "window_start", "window_end", "bytes"]
    assert sorted(totals["rows"])[0] == ["a", "2026-01-01T10:00:00", "2026-01-01T10:01:00", 10]
    assert told["sources"] == {"packets": {"from": "given", "rows": 3}}
    assert json.loads(json.dumps(told, allow_nan=False)) == told


def test_an_arrow_is_chosen_and_rows_are_made_where_none_are_given() -> None:
    told = tried(drawn(), taps=[("tcp", 0)], rows=50, shown=2)
    assert [tap["box"] for tap in told["taps"]] == ["tcp"] and told["sources"] == {"packets": {"from": "made", "rows": 50}}
    assert seen(told, "tcp")["count"] == 2 and len(seen(told, "tcp")["rows"]) == 2
    flow = ef.Dataflow("half done")
    flow.source(ef.sources.generator(seed=3)).where("key >= 0")
    told = tried(flow.network, rows=20)
    assert told["sources"]["generator"] == {"from": "source", "rows": 20} and seen(told, "filter")["count"] == 20


def test_rows_are_made_for_columns_of_every_type() -> None:
    schema = parse_ddl(
        "a boolean, b tinyint not null, c double, d decimal(10, 2), e timestamp, f date, g string, h binary, i array<string>, "
        "j struct<x: int, y: array<double>>, k map<string, int>, l timestamp_ntz, m decimal(2, 2)"
    )
    assert made_of(schema, 30).schema == schema
    flow = ef.Dataflow("types")
    flow.source(ef.sources.memory([], schema=schema)).where("b >= 0", name="same")
    told = tried(flow.network, rows=30)
    assert seen(told, "same")["count"] == 30 and json.dumps(told, allow_nan=False)


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"samples": {"tcp": []}}, "given to sources"),
        ({"samples": {"packets": [{"sorce": 1}]}}, "sorce"),
        ({"taps": [("tcp", 9)]}, "no arrow"),
    ],
)
def test_what_does_not_fit_is_refused(given: dict[str, Any], says: str) -> None:
    with pytest.raises(OptionError, match=says):
        tried(drawn(), **given)


# ---------------------------------------------------------------- in a process of its own

GREEDY = """
def loops(batch):
    while batch.num_rows:
        pass
    return batch.column(0)


def eats(batch):
    kept = []
    while batch.num_rows:
        kept.append(bytearray(50_000_000))
    return batch.column(0)


def eats_by_arrow(batch):
    import pyarrow

    kept = []
    while batch.num_rows:
        kept.append(pyarrow.allocate_buffer(100_000_000))
    return batch.column(0)


def dies(batch):
    import os

    if batch.num_rows:
        os._exit(3)
    return batch.column(0)


def raises(batch):
    print("noise")
    if batch.num_rows:
        raise KeyError("mine")
    return batch.column(0)


def leaves_a_child(batch):
    import os, pathlib, subprocess, sys

    if batch.num_rows:
        child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(300)"])
        pathlib.Path(os.environ["LEFT"]).write_text(str(child.pid))
    return batch.column(0)


def is_killed(batch):
    import os, signal

    if batch.num_rows:
        os.kill(os.getpid(), signal.SIGKILL)
    return batch.column(0)


def writes(batch):
    import os

    while batch.num_rows:
        os.write(1, bytes(1 << 20))
    return batch.column(0)
"""


@pytest.fixture
def greedy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    (tmp_path / "greedy.py").write_text(GREEDY)
    monkeypatch.syspath_prepend(str(tmp_path))
    return "greedy"


def with_function(name: str) -> str:
    flow = ef.Dataflow("f")
    flow.source(ef.sources.generator(rows=5)).select("key").to(ef.sinks.discard())
    data = json.loads(flow.to_json())
    select = next(box for box in data["boxes"] if box["kind"] == "select")
    select["params"]["columns"] = [["key", {"python": f"greedy:{name}"}]]
    return json.dumps(data)


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("loops", "cpu"),
        ("eats", "memory"),
        pytest.param("eats_by_arrow", "memory", marks=pytest.mark.conformance),
        pytest.param("dies", "ended", marks=pytest.mark.conformance),
    ],
)
def test_what_takes_too_much_is_ended(greedy: str, name: str, why: str) -> None:
    with pytest.raises(PreviewFailed) as caught:
        preview(with_function(name), modules=[greedy], limits=Limits(cpu_s=1 if why == "cpu" else 10))
    assert caught.value.why == why


@pytest.mark.conformance
def test_what_a_row_raises_is_raised_here_and_what_is_printed_does_no_harm(greedy: str) -> None:
    with pytest.raises(BoxFailed, match="mine") as caught:
        preview(with_function("raises"), modules=[greedy])
    assert caught.value.box == "select"


def test_code_is_run_only_if_that_is_allowed() -> None:
    with pytest.raises(CodeNotAllowed, match="greedy:loops"):
        preview(with_function("loops"))


def test_more_rows_than_a_megabyte_are_refused_before_anything_is_started() -> None:
    with pytest.raises(OptionError, match="1,000,000 bytes"):
        preview("{}", {"packets": [{"src": "x" * MOST_BYTES}]})


@pytest.mark.conformance
def test_a_child_of_a_preview_ends_with_it(greedy: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LEFT", str(tmp_path / "left"))
    assert preview(with_function("leaves_a_child"), modules=[greedy])["taps"]
    pause, left = threading.Event(), int((tmp_path / "left").read_text())
    for _ in range(200):
        try:
            if Path(f"/proc/{left}/stat").read_text().rpartition(")")[2].split()[0] == "Z":
                return
        except FileNotFoundError:
            return
        pause.wait(0.02)
    pytest.fail("it lives")


@pytest.mark.parametrize(("name", "why"), [pytest.param("is_killed", "ended", marks=pytest.mark.conformance), ("writes", "size")])
def test_what_ended_it_is_said_as_it_was(greedy: str, name: str, why: str) -> None:
    with pytest.raises(PreviewFailed) as caught:
        preview(with_function(name), modules=[greedy])
    assert caught.value.why == why


def test_a_module_of_the_current_directory_is_not_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "json.py").write_text(f"open({str(tmp_path / 'run')!r}, 'w')")
    (tmp_path / "here.py").write_text("x = 7")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend("")
    monkeypatch.syspath_prepend(str(tmp_path))
    code = "import json; import here; print(json.dumps(here.x))"
    done = subprocess.run(command_of(code), capture_output=True, text=True, timeout=30, check=False)
    assert done.stdout == "7\n", done.stderr
    assert not (tmp_path / "run").exists()


@pytest.mark.conformance
def test_a_preview_ends_with_whoever_started_it() -> None:
    code = "from evenflow.testing.limited import end_with_parent; sys.stdin.readline(); end_with_parent(); print('there', flush=True)"
    command = command_of(code + "; import threading; threading.Event().wait()")
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True)
    assert process.stdin is not None and process.stdout is not None
    with process:
        process.stdin.write(b"\n")
        process.stdin.flush()
        assert process.stdout.readline() == b"there\n"
        process.stdin.close()
        assert process.wait(20) == -signal.SIGKILL


def test_what_is_shown_is_cut_and_exact() -> None:
    assert plain("x" * 5_000) == "x" * 2_000 + "\N{HORIZONTAL ELLIPSIS}" and plain("x" * 2_000) == "x" * 2_000
    assert plain([2**53, 2**53 + 1, -(2**60), True]) == [2**53, str(2**53 + 1), str(-(2**60)), True]
    assert len(plain(b"x" * 9_000)) == 2_001 and len(plain([0] * 9_000)) == 2_000
