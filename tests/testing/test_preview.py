"""A preview shows what passes every arrow, and ends what would never end, or takes all the memory there is."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

import evenflow as ef
from evenflow.errors import BoxFailed, CodeNotAllowed, OptionError, PreviewFailed
from evenflow.query.network import Network
from evenflow.stream.schema import parse_ddl
from evenflow.testing.preview import MOST_BYTES, Limits, preview
from evenflow.testing.sample import made_of
from evenflow.testing.trying import tried
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
"""


@pytest.fixture
def greedy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    (tmp_path / "greedy.py").write_text(GREEDY)
    monkeypatch.setenv("PYTHONPATH", f"{os.environ.get('PYTHONPATH', '')}:{tmp_path}")
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
