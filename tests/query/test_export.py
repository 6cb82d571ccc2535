"""A network that is written as Python is the same network when that is run."""

from __future__ import annotations

import importlib.util
import re
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import evenflow as ef
from evenflow import nexmark
from evenflow.errors import QueryError
from evenflow.query.ends import arguments_of, described
from evenflow.query.export import to_python
from evenflow.query.forms import SINKS, SOURCES
from tests.nexmark.dataflows import dataflow
from tests.query.networks import Threshold, packets, session_monitor
from tests.query.test_draw import FLOWS

pytestmark = pytest.mark.one_in(2)

PAGES = sorted(path for path in (Path(__file__).resolve().parents[2] / "docs" / "operators").glob("*.md") if path.name != "README.md")
EXAMPLE = re.compile(r"```python\n(.*?)```", re.DOTALL)


def ran(text: str) -> ef.Dataflow:
    names: dict[str, Any] = {}
    exec(compile(text, "exported.py", "exec"), names)
    flow = names["dataflow"]()
    assert isinstance(flow, ef.Dataflow)
    return flow


def check_law(flow: ef.Dataflow) -> str:
    text = to_python(flow.network)
    again = ran(text)
    assert to_python(again.network) == text
    assert again.to_text() == flow.to_text()
    with suppress(QueryError):  # Of functions that a decorator stands for.
        saved = flow.to_json()
        assert "pickle" in saved or again.to_json() == saved  # Pickles of equal objects may differ.
    return text


@pytest.mark.parametrize("draw", FLOWS, ids=["sessions", "unfinished", "wide", "feeds"])
def test_what_tests_draw_is_the_same_again(draw: Callable[[], ef.Dataflow]) -> None:
    check_law(draw())


@pytest.mark.parametrize("name", nexmark.NAMES)
def test_what_sql_draws_is_the_same_again(name: str) -> None:
    check_law(dataflow(name, events=10))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_what_pages_draw_is_the_same_again(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for number, code in enumerate(EXAMPLE.findall(page.read_text(encoding="utf-8"))):
        flow = imported(tmp_path / f"page_{page.stem}_{number}.py", code, monkeypatch).flow
        check_law(flow)


def imported(path: Path, code: str, monkeypatch: pytest.MonkeyPatch) -> Any:
    path.write_text(code, encoding="utf-8")
    monkeypatch.syspath_prepend(path.parent)
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, path.stem, module)
    spec.loader.exec_module(module)
    return module


def test_it_reads_as_a_person_would_write_it() -> None:
    text = to_python(session_monitor().network)
    for line in (
        'watermark = packets.with_watermark("ts", "10 s")',
        'filter_ = watermark.where("proto = 6")',
        'track = key_by.process(Tracker(), name="track")',
        'stats = track.group_by("app", "src").rows(100, slide=10).agg(max_dur="max(dur)", avg_dur="avg(dur)").name("stats")',
        'flow.stream("track", 1).to(ef.sinks.memory(name="late"), name="late")',
        "from tests.query.networks import Tracker",
    ):
        assert line in text
    assert "AggCall" not in text and "flow.add" not in text


def test_odd_names_and_values_are_written_too() -> None:
    flow = ef.Dataflow('it\'s "odd"')
    rows = packets(flow, name="class").where("src <> 'it''s'", name="1 + 1")
    rows.select(**{"a b": "length", "def": "length + 1"}).to(ef.sinks.discard(), name="flow")
    rows.key_by("src").process(Threshold(3), name="ef").to(ef.sinks.memory("m"), name="m")
    table = pa.table({"src": ["a"], "n": [float("nan")], "when": pa.array([3], pa.timestamp("us", "UTC"))})
    rows.join(table, on="src").to(ef.sinks.discard(), name="joined")
    check_law(flow)


def test_what_only_this_process_has_cannot_be_written() -> None:
    flow = ef.Dataflow("f")
    packets(flow).where(lambda batch: pc.greater(batch.column("length"), 1)).to(ef.sinks.discard())
    with pytest.raises(QueryError, match="'filter'.*only in this process"):
        to_python(flow.network)


def test_rows_that_are_given_are_written() -> None:
    flow = ef.Dataflow("f")
    rows = pa.table({"n": [1, 2], "price": pa.array([None, "1.50"], pa.string()).cast(pa.decimal128(10, 2))})
    flow.source(ef.sources.memory(rows, 2)).to(ef.sinks.discard())
    again = ran(to_python(flow.network))
    assert again.network == flow.network


GIVEN: dict[str, dict[str, Any]] = {
    "generator": {"rate": 5, "s": 1.5},
    "packets": {"rows": 3},
    "nexmark": {"stream": "person"},
    "memory": {"batches": [], "schema": "n int"},
    "tcp_lines": {"host": "a", "port": 1, "schema": "n int"},
    "table": {"database": "x.db", "table": "t", "schema": "n bigint", "order_by": "n"},
    "parquet": {"path": "out", "partition_by": ["day"]},
    "shared_parquet": {"path": "out", "compression": "none"},
    "console": {"limit": 3},
    "discard": {},
    "delta": {"path": "d"},
    "iceberg": {"table": "a.b"},
    "group": {"urls": ["localhost:1"], "group": "g", "sink": "out", "schema": "n bigint"},
}
OF_SINKS: dict[str, dict[str, Any]] = {
    "memory": {"name": "m"},
    "table": {"database": "x.db", "table": "t"},
    "kafka": {"servers": "h:1", "topic": "t", "name": "t"},
}
"""Arguments by kind, as a form gives them."""


@pytest.mark.parametrize("end", ["source", "sink"])
def test_what_a_form_gives_makes_a_source_or_a_sink(end: Any) -> None:
    given = GIVEN | (OF_SINKS if end == "sink" else {})
    module, kinds = (ef.sources, SOURCES) if end == "source" else (ef.sinks, SINKS)
    for kind in kinds:
        arguments = given.get(kind)
        if arguments is None or (end == "source" and kind in ("delta", "iceberg")):
            continue  # Its function asks somebody.
        told = described(end, kind, arguments)
        made = module.from_json(told[f"${end}"])
        again = arguments_of(made)
        assert again is not None, kind
        assert getattr(module, kind)(**again) == made


def test_a_form_that_is_filled_in_wrongly_says_so() -> None:
    wrong = [
        ("generator", {"rate": "fast"}, "rate"),
        ("generator", {"speed": 3}, "speed"),
        ("moon", {}, "unknown"),
        ("tcp_lines", {}, "host"),
    ]
    for kind, arguments, says in wrong:
        with pytest.raises(QueryError, match=says) as caught:
            described("source", kind, arguments)
        assert caught.value.parameter == "source"
