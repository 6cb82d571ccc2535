"""Texts that somebody else wrote: SQL, saved networks, statistics, lines and files of rows. Only errors of evenflow.errors come out."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import threading
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

import evenflow as ef
from evenflow.errors import EvenflowError, ExpressionError, QueryError, SinkError, SourceError, StatisticsError
from evenflow.query.duration import duration_us
from evenflow.query.expression import compile_expression
from evenflow.query.pattern import compile_pattern
from evenflow.sinks.closings import closing_from
from evenflow.sinks.manifests import manifest_from
from evenflow.sources.debezium import DebeziumDecoder, Misfit
from evenflow.sources.lines import Lines
from evenflow.sources.messages import parse_messages
from evenflow.statistics.serial import from_json
from evenflow.statistics.statistics import read_lines
from evenflow.stream.schema import parse_ddl
from tests.drawn import one_in

FUZZ = settings(
    max_examples=150, derandomize=True, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
COLUMNS = pa.schema([("k", pa.int64()), ("x", pa.float64()), ("s", pa.string()), ("b", pa.bool_()), ("t", pa.timestamp("us"))])
ROWS = pa.RecordBatch.from_pylist([{"k": 1, "x": 0.5, "s": "a", "b": True, "t": None}, dict.fromkeys(COLUMNS.names)], schema=COLUMNS)


# ---------------------------------------------------------------- depth


def chain(count: int, sign: str) -> str:
    return f" {sign} ".join(f"k = {i}" for i in range(count))


@pytest.mark.parametrize(
    "text",
    [pytest.param(chain(4000, "OR"), marks=pytest.mark.conformance), pytest.param(chain(4000, "AND"), marks=pytest.mark.conformance),
     f"NOT ({chain(1000, 'OR')}) OR ({chain(1000, 'AND')})", "(" * 120 + "k" + ")" * 120 + " = 1",
     pytest.param(" + ".join(["k"] * 400) + " > 0", marks=pytest.mark.conformance), "CASE WHEN b THEN " * 60 + "k" + " END" * 60 + " = 1"],
    ids=["ors", "ands", "both", "parentheses", "sums", "cases"],
)  # fmt: skip
def test_what_programs_write_is_compiled_and_runs_in_any_thread(text: str) -> None:
    found: list[Any] = []

    def compile_and_run() -> None:
        found.append(compile_expression(text, COLUMNS)(ROWS))

    thread = threading.Thread(target=compile_and_run)
    thread.start()
    thread.join(60)
    assert len(found) == 1 and len(found[0]) == 2


def test_many_conditions_keep_their_order_and_what_they_guard() -> None:
    guarded = compile_expression(" AND ".join(["k <> 0"] + ["k % 2 = 1"] * 50 + ["10 / k > 1"]), COLUMNS)
    rows = pa.RecordBatch.from_pylist([{"k": 0}, {"k": 1}, {"k": None}, {"k": 2}], schema=pa.schema([("k", pa.int64())]))
    assert guarded(rows).to_pylist() == [False, True, None, False]


@pytest.mark.parametrize(
    "text",
    ["(" * 5000 + "k" + ")" * 5000, "NOT " * 5000 + "b", "- " * 3000 + "k", " + ".join(["k"] * 3000), "abs(" * 3000 + "k" + ")" * 3000,
     "CASE WHEN b THEN " * 2000 + "k" + " END" * 2000, "array(" * 2000, "k" + "[0]" * 3000, "k + " + "9" * 5000],
    ids=["parentheses", "nots", "minus", "sums", "functions", "cases", "open", "elements", "digits"],
)  # fmt: skip
def test_what_is_too_deep_is_refused_and_python_is_as_before(text: str) -> None:
    before = sys.getrecursionlimit()
    with pytest.raises(ExpressionError):
        compile_expression(text, COLUMNS)
    stream = ef.Dataflow("deep").source(ef.sources.memory(ROWS), name="v")
    with pytest.raises(QueryError):
        ef.sql(f"SELECT k FROM v WHERE {text} = 1", streams={"v": stream})
    assert sys.getrecursionlimit() == before


def test_depth_is_told_with_what_to_do() -> None:
    with pytest.raises(ExpressionError, match=r"is nested too deeply; compute parts of it as columns before"):
        compile_expression("(" * 5000 + "k" + ")" * 5000, COLUMNS)


@pytest.mark.parametrize(
    "text", ["[" * 100_000, '{"a":' * 100_000, '{"evenflow": 1, "boxes": [' + "[" * 100_000, "9" * 10_000, "\ud800", "", "null", "[]"]
)
def test_json_that_is_deep_or_none(text: str) -> None:
    with pytest.raises(QueryError):
        ef.Dataflow.from_json(text)
    with pytest.raises(StatisticsError):
        from_json(text)


@pytest.mark.parametrize(
    ("size", "slide", "says"),
    [
        ("999999999 days", None, "'999999999 days' is longer than 36,500,000 days"),
        (timedelta(days=999_999_999), None, "longer than 36,500,000 days"),
        ("9" * 5000 + " days", None, "longer than"),
        ("9" * 400 + ".5 days", None, "longer than"),
        ("1000000 days", "1 second", "each row would be in 86,400,000,000 windows"),
        (7, None, "7 is no span of time"),
        (None, None, "None is no span of time"),
    ],
)
def test_windows_that_no_timestamp_can_bound(size: Any, slide: Any, says: str) -> None:
    rows = ef.Dataflow("long").source(ef.sources.memory(ROWS)).with_watermark("t", "1 second")
    with pytest.raises(QueryError, match=says):
        rows.group_by("k").window(size, slide)
    if slide is None and size is not None:
        with pytest.raises(QueryError, match=says):
            rows.group_by("k").session(size)
        with pytest.raises(QueryError, match=says):
            rows.join(rows, "k", within=size)
        with pytest.raises(QueryError, match=says):
            rows.select("t").with_watermark("t", size)


# ---------------------------------------------------------------- SQL

WORDS = st.sampled_from(
    """
    SELECT FROM WHERE GROUP BY HAVING ORDER LIMIT JOIN LEFT ON AND OR NOT IN EXISTS BETWEEN LIKE IS NULL CASE WHEN THEN ELSE END AS WITH
    UNION ALL DISTINCT CAST CREATE VIEW TABLE TEMPORARY USING OPTIONS INSERT INTO VALUES OVER PARTITION ROWS WINDOW MATCH_RECOGNIZE PATTERN
    DEFINE MEASURES WITHIN INTERVAL SECOND EXTRACT TRIM POSITION DATE TIMESTAMP TRUE FALSE v k x s b t w window session_window count sum avg
    first approx_count_distinct row_number abs concat substr coalesce nullif date_trunc element_at array map struct lateral explode EXPLAIN
    SET USE ( ) ( ) ( ) , , ; . * + - / % = <> < > <= >= || -> : :: ? @ # $ ` ' " [ ] { } 1 0 -1 1.5 1e400 'a' '1 second' '' 0x1F 1L 2BD
    X'1F' \u00b2
    """.split()  # noqa: SIM905
)
SQL = st.one_of(
    st.lists(WORDS, max_size=25).map(" ".join),
    st.lists(WORDS, max_size=15).map(lambda words: f"SELECT k, {' '.join(words)} FROM v"),
    st.lists(WORDS, max_size=15).map(lambda words: f"SELECT k FROM v WHERE {' '.join(words)}"),
    st.lists(WORDS, max_size=15).map(lambda words: f"SELECT k, count(*) AS n FROM v GROUP BY k, {' '.join(words)}"),
    st.lists(WORDS, max_size=15).map(
        lambda words: f"CREATE TEMPORARY VIEW g USING generator OPTIONS ({' '.join(words)}); SELECT key FROM g"
    ),
    st.text(max_size=40),
)


@FUZZ
@example("{ { 2BD")
@given(SQL)
def test_any_sql_is_a_query_or_a_typed_error(text: str) -> None:
    stream = ef.Dataflow("fuzzed").source(ef.sources.memory(ROWS), name="v").with_watermark("t", "1 second")
    with contextlib.suppress(EvenflowError):
        ef.sql(text, streams={"v": stream})


EXPRESSIONS = st.one_of(st.lists(WORDS, max_size=10).map(" ".join), st.text(max_size=30))


@FUZZ
@example("0E")
@given(EXPRESSIONS)
def test_any_expression_is_compiled_and_run_or_a_typed_error(text: str) -> None:
    with contextlib.suppress(EvenflowError):
        compile_expression(text, COLUMNS)(ROWS)


@FUZZ
@given(st.text(max_size=30) | st.lists(st.sampled_from(list("AB()|?*+{},1 9")), max_size=20).map("".join))
def test_any_pattern_schema_or_span(text: str) -> None:
    for parse in (compile_pattern, parse_ddl, duration_us):
        with contextlib.suppress(EvenflowError):
            parse(text)


# ---------------------------------------------------------------- what is saved


def saved() -> dict[str, Any]:
    flow = ef.Dataflow("saved")
    stream = flow.source(ef.sources.generator(rows=10)).with_watermark("ts", "1 second").where("key > 1")
    stream.group_by("key").window("1 second").agg(n="count(*)").to(ef.sinks.parquet("/out"))
    found: dict[str, Any] = json.loads(flow.to_json())
    return found


TAGS = st.sampled_from(["kind", "$schema", "$batch", "$source", "$call", "x"])
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8) | st.sampled_from(["generator", "memory", "aggregate"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TAGS, inner, max_size=3),
    max_leaves=5,
)  # fmt: skip


def places(data: Any, at: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    inner = data.items() if isinstance(data, dict) else enumerate(data) if isinstance(data, list) else ()
    return [at, *(place for key, value in inner for place in places(value, (*at, key)))]


def altered(data: Any, at: tuple[Any, ...], value: Any) -> Any:
    if not at:
        return value
    found = dict(data) if isinstance(data, dict) else list(data)
    found[at[0]] = altered(found[at[0]], at[1:], value)
    return found


SAVED = saved()


@FUZZ
@given(st.sampled_from(places(SAVED)), JSON)
def test_any_saved_network_is_one_or_a_typed_error(at: tuple[Any, ...], value: Any) -> None:
    with contextlib.suppress(EvenflowError):
        ef.Dataflow.from_json(json.dumps(altered(SAVED, at, value)))


STATISTICS = json.loads((Path(__file__).resolve().parents[2] / "examples" / "statistics.json").read_text().splitlines()[0])


@FUZZ
@given(st.sampled_from(places(STATISTICS)), JSON)
def test_any_statistics_are_some_or_a_typed_error(at: tuple[Any, ...], value: Any) -> None:
    text = json.dumps(altered(STATISTICS, at, value))
    with contextlib.suppress(StatisticsError):
        from_json(text)
    with contextlib.suppress(StatisticsError):
        read_lines([text, text])


# ---------------------------------------------------------------- rows

WHOLE = [b"1,2.5,a", b'{"k": 1, "x": 2.5, "s": "a"}', b"1\t2\ta", b'"', b",,", b"{}", b"{", b"\xff", b"\0", b"1e999,1,1", b'{"k": 1e30}']
LINE = st.one_of(
    st.binary(max_size=30),
    st.text(max_size=20).map(lambda text: text.encode(errors="surrogatepass")),
    JSON.map(lambda value: json.dumps({"k": value, "x": 1}).encode()),
    st.sampled_from(WHOLE),
)
LINED = pa.schema([("k", pa.int64()), ("x", pa.float64()), ("s", pa.string())])


@FUZZ
@given(st.lists(LINE, max_size=6), st.sampled_from(["csv", "json", "text"]), st.booleans(), st.integers(1, 40))
def test_any_lines_of_a_peer(lines: list[bytes], format: Any, skip: bool, cut: int) -> None:
    found = Lines("a peer", pa.schema([("line", pa.string())]) if format == "text" else LINED, format, skip)
    data = b"\n".join(lines)
    with contextlib.suppress(EvenflowError):
        for start in range(0, len(data), cut):
            found.feed(data[start : start + cut])
        found.feed(b"", last=True)


MAPPED = pa.schema([*LINED, ("m", pa.map_(pa.string(), pa.float64()))])
PIECES = st.lists(st.sampled_from(
    [b'{"k":', b'{"s":"', b'{"m":{"', b"1", b'"', b'""', b",", b"}", b"{}", b"\n", b"\r", b" ", b"\\", b"\0", b"\xef\xbb\xbf", b"x", b"[",
     b"]", b"\\ud83d", b"1e9999999999999999999", b'{"k": 1, "x": 2.5, "s": "a"}', b"1,2.5,a"]
), max_size=8).map(b"".join)  # fmt: skip
MESSAGES = st.lists(st.one_of(LINE, PIECES), max_size=6)


@FUZZ
@example([b'{"k":1', b'}{"k":2}'], "json", LINED)
@example([b'1,1,"x', b'y"', b"1,1,a\n1,1,b"], "csv", LINED)
@example([b'{"m": {}, "s": "\\ud83d"}'], "json", MAPPED)
@given(MESSAGES, st.sampled_from(["csv", "json", "text"]), st.sampled_from([LINED, MAPPED]))
def test_any_messages_are_together_what_they_are_one_by_one(values: list[bytes], format: Any, schema: pa.Schema) -> None:
    schema = pa.schema([("line", pa.string())]) if format == "text" else LINED if format == "csv" else schema
    together = parse_messages(values, schema, format)
    single = [parse_messages([value], schema, format) for value in values]
    assert all(row is None or row.num_rows == 1 for row in single)
    if together is not None:
        assert [None if row is None else repr(row.to_pylist()) for row in single] == [repr([row]) for row in together.to_pylist()]
    if schema is MAPPED:
        with contextlib.suppress(SourceError):
            Lines("a peer", schema, "json", False).feed(b"\n".join([*values, b""]))


@FUZZ
@given(st.one_of(MESSAGES.map(b"".join), JSON.map(lambda said: json.dumps({"schema": said, "payload": said}).encode())))
def test_any_envelope_is_changes_or_a_misfit(value: bytes) -> None:
    with contextlib.suppress(Misfit):
        DebeziumDecoder(COLUMNS).rows(value)


@FUZZ
@given(st.lists(LINE, max_size=6), st.sampled_from(["csv", "tsv", "json", "arrow", "parquet"]), st.booleans())
def test_any_file_of_rows(tmp_path: Path, lines: list[bytes], format: Any, declared: bool) -> None:
    path = tmp_path / "rows"
    path.write_bytes(b"\n".join([b"k\tx\ts" if format == "tsv" else b"k,x,s", *lines] if format in ("csv", "tsv") else lines))
    with contextlib.suppress(EvenflowError):
        reader = ef.sources.replay(str(path), speed=None, format=format, schema=LINED if declared else None).open(0, 1)
        while not reader.ended:
            reader.read(0, 1000)


@pytest.mark.parametrize("read", [manifest_from, closing_from])
@pytest.mark.parametrize("depth", [1_000, 100_000])
def test_deep_json_in_a_directory_of_a_sink_is_an_error_in_words(read: Callable[[bytes, str], object], depth: int) -> None:
    with pytest.raises(SinkError, match="somebody else has written it"):
        read(b"[" * depth, "there")


def test_an_arrow_file_whose_offsets_lead_elsewhere_is_an_error_in_words(tmp_path: Path) -> None:
    """Goal: nobody is given what is behind a file in memory, and no process ends by it. Method: the second text ends where the first one
    begins, or far behind the last one; which it is nobody sees who does not look at all offsets."""
    table, path = pa.table({"k": pa.array([1, 2, 3], pa.int64()), "s": ["some", "texts", "here"]}), tmp_path / "rows.arrow"
    good = pa.array([0, 4, 9, 13], pa.int32()).buffers()[1].to_pybytes()
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table)
    whole = path.read_bytes()
    assert whole.count(good) == 1
    for wrong in ([0, 4, 100_000, 13], [0, 9, 4, 13], [0, 4, 9, 100_000], [-4, 4, 9, 13]):
        path.write_bytes(whole.replace(good, pa.array(wrong, pa.int32()).buffers()[1].to_pybytes()))
        with pytest.raises(SourceError, match="cannot be read beyond row 0"):
            ef.sources.replay(str(path), speed=None).open(0, 1).read(0, 10)
    path.write_bytes(whole)
    ef.sources.replay(str(path), speed=None).open(0, 1).read(0, 10)


@pytest.mark.parametrize("depth", [1000, 1_000_000])
@pytest.mark.parametrize("opened", one_in(2, ["[", '{"k":']))
def test_deep_json_in_a_row_ends_no_process(tmp_path: Path, depth: int, opened: str) -> None:
    """In a process of its own: what recurses in a library would end it."""
    path = tmp_path / "rows.json"
    path.write_text('{"k": ' + opened * depth + "\n")
    code = f"""
import contextlib, evenflow as ef
from evenflow.errors import EvenflowError
from evenflow.sources.lines import Lines
import pyarrow as pa
for schema in (None, "k bigint"):
    with contextlib.suppress(EvenflowError):
        reader = ef.sources.replay({str(path)!r}, speed=None, schema=schema).open(0, 1)
        while not reader.ended:
            reader.read(0, 1000)
found = Lines("a peer", pa.schema([("k", pa.int64())]), "json", True)
found.feed(open({str(path)!r}, "rb").read()[: 1 << 20] + b"\\n")
print("alive")
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=False)
    assert done.stdout.strip() == "alive", done.stderr[-2000:]
