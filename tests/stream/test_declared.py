"""Every option of engines, sources and sinks, as declared: a value that it cannot have is refused at once, with what it can be."""

from __future__ import annotations

import contextlib
import dataclasses
import inspect
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql.types import ArrayType, LongType, MapType, NullType, StringType, StructField, StructType, TimestampNTZType

import evenflow as ef
from evenflow.coordinator.ledger import Ledger, shed_table
from evenflow.errors import EvenflowError, OptionError, QueryError, TypeMismatch
from evenflow.query.planner import layout
from evenflow.site.options import FlowOptions
from evenflow.sources.kafka_topics import Bounds
from evenflow.sources.pushed import SparkSource
from evenflow.stream.declared import Declared, May, options_of
from evenflow.world.spark.driver.options import EngineOptions

SCHEMA = pa.schema([("id", pa.int64()), ("name", pa.string())])
ROWS = pa.record_batch([pa.array([1]), pa.array(["a"])], schema=SCHEMA)
HUGE = 10**400
ODD: tuple[Any, ...] = (
    math.nan, math.inf, -math.inf, 0, -1, 0.5, -0.5, HUGE, -HUGE, 1e308, 2**63, None, "", " ", "a\0b", "abc", b"abc", True, [], {}, (),
    [None], object(), len, Path("a\0b"), np.float64("nan"), np.int64(-1), np.bool_(True), 1j,
)  # fmt: skip
NEVER: tuple[Any, ...] = (math.nan, math.inf, HUGE, object(), 1j, "a\0b", b"abc", Path("a\0b"), np.float64("nan"))
"""No option can be any of these."""

MADE: dict[type[Any], Any] = {
    EngineOptions: EngineOptions(),
    FlowOptions: FlowOptions(),
    **{
        type(made): made
        for made in (
            ef.sources.generator(), ef.sources.packets(), ef.sources.nexmark(), ef.sources.memory(ROWS),
            ef.sources.tcp_lines("here", 1, SCHEMA), ef.sources.table("file.db", "t", SCHEMA, "id"), SparkSource(SCHEMA, False),
            ef.sources.ReplaySource(("/a.csv",), "csv", SCHEMA, "id", None),
            ef.sources.KafkaSource("here:1", "topic", SCHEMA, "json", ((0, 0),)), ef.sources.DeltaSource("/t", SCHEMA, 0),
            ef.sources.IcebergSource("a.b", "default", SCHEMA, 0, 0), ef.sources.group("here:1", "g", "out", SCHEMA, tls_ca="ca.pem"),
            ef.sinks.callback(print), ef.sinks.console(), ef.sinks.delta("/t"), ef.sinks.iceberg("a.b"),
            ef.sinks.kafka("here:1", "topic"), ef.sinks.memory(), ef.sinks.parquet("/out"),
            ef.sinks.table("file.db", "t"), ef.sinks.stream(9_000), ef.sinks.shared_parquet("/out"),
        )
    },
}  # fmt: skip
"""One of everything that has options, with values that they can have."""


def test_every_source_and_sink_is_among_them() -> None:
    kinds = {*ef.sources.KINDS.values(), *ef.sinks.KINDS.values()}
    without = {kind for kind in kinds if not dataclasses.fields(kind)}
    assert kinds - without == set(MADE) - {EngineOptions, FlowOptions}
    assert all(issubclass(kind, Declared) for kind in MADE)


@pytest.mark.parametrize("kind", MADE, ids=lambda kind: kind.__name__)
def test_a_value_that_an_option_cannot_have_is_refused_where_it_is_given(kind: type[Any]) -> None:
    made = MADE[kind]
    for name in options_of(kind):
        assert getattr(dataclasses.replace(made), name) == getattr(made, name), name
        if options_of(kind)[name].text == "anything":
            assert (kind, name) == (SparkSource, "dataframe"), "say what it may be"
            continue
        for value in ODD:
            try:
                found = getattr(dataclasses.replace(made, **{name: value}), name)
            except EvenflowError:
                continue
            assert all(value is not never for never in NEVER), f"{name} took {value!r}"
            assert not (isinstance(found, float) and not math.isfinite(found)), f"{name} took {value!r}"


@pytest.mark.parametrize("kind", MADE, ids=lambda kind: kind.__name__)
def test_numbers_and_flags_are_no_words_and_words_no_numbers(kind: type[Any]) -> None:
    for name, option in options_of(kind).items():
        given = getattr(MADE[kind], name)
        wrong: list[Any] = [{"abc": 1}, 3j]
        wrong += ["abc", "1"] if isinstance(given, bool | int | float) else []
        wrong += [7, 1.5, True] if isinstance(given, str) else []
        wrong += [2, "yes"] if isinstance(given, bool) else [True] if isinstance(given, int | float) else []
        for value in wrong if option.text != "anything" else ():
            with refused(name, value):
                dataclasses.replace(MADE[kind], **{name: value})


@contextlib.contextmanager
def refused(name: str, value: Any) -> Iterator[None]:
    """Whoever does not refuse it is named."""
    try:
        yield
    except EvenflowError:
        return
    pytest.fail(f"{name} took {value!r}")


FUNCTIONS = [
    (module, name)
    for module in (ef.sources, ef.sinks)
    for name in module.__all__
    if name[0].islower() and name not in ("from_json", "schema_from_json", "schema_to_json", "read_committed")
]
GOOD: dict[str, dict[str, Any]] = {
    "replay": {"path": "rows.csv"}, "pcap": {"path": "rows.pcap"}, "tcp_lines": {"host": "here", "port": 1, "schema": SCHEMA},
    "memory": {"batches": ROWS}, "callback": {"function": print}, "parquet": {"path": "/out"},
    "shared_parquet": {"path": "/out"},
    "delta": {"path": "/out"}, "iceberg": {"table": "a.b"},
    "group": {"urls": "localhost:1", "group": "g", "sink": "out", "schema": SCHEMA},
    "spark": {"dataframe": None}, "stream": {"port": 9_000},
}  # fmt: skip
"""Arguments that have no default, by function."""


def shed() -> pa.Table:
    """What `run.shed()` gives where nothing was left out."""
    flow, worth = ef.Dataflow("shed"), ef.qos(latency=[("100 ms", 1), ("1 s", 0)])
    flow.source(ef.sources.generator(rate=10), name="in").to(ef.sinks.memory("out"), qos=worth)
    return shed_table(layout(flow.network, sites=1), Ledger())


def arguments_of(module: Any, name: str) -> dict[str, Any]:
    if name == "dropped":
        return {"source": ef.sources.generator(rows=9), "shed": shed()}
    if name == "table":
        return {"database": "f.db", "table": "t", **({"schema": SCHEMA, "order_by": "id"} if module is ef.sources else {})}
    if name == "kafka":
        return {"servers": "127.0.0.1:1", "topic": "t", **({"schema": SCHEMA} if module is ef.sources else {})}
    return (
        GOOD.get(name, {})
        if module is ef.sources or name in ("callback", "parquet", "shared_parquet", "delta", "iceberg", "stream")
        else {}
    )


@pytest.mark.parametrize(("module", "name"), FUNCTIONS, ids=lambda part: part if isinstance(part, str) else part.__name__)
def test_every_argument_of_a_source_or_sink(module: Any, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "rows.csv").write_text("ts,x\n2024-01-01 00:00:00,1\n")
    (tmp_path / "rows.pcap").write_bytes(b"")
    monkeypatch.chdir(tmp_path)
    if (module, name) == (ef.sources, "kafka"):
        monkeypatch.setattr(ef.sources, "bounds", lambda *_: Bounds(((0, 0),), (), (), "t"))
    function = getattr(module, name)
    for argument in inspect.signature(function).parameters:
        for value in ODD:
            try:
                function(**{**arguments_of(module, name), argument: value})
            except EvenflowError:
                continue
            assert not any(value is never for never in NEVER), f"{argument} took {value!r}"


def test_whole_floats_are_whole_numbers_and_paths_are_text(tmp_path: Path) -> None:
    assert ef.sources.generator(rate=1e6, rows=np.int64(5)) == ef.sources.generator(rate=1_000_000, rows=5)
    assert type(ef.sources.generator(rate=1e6).rate) is int
    assert ef.sinks.parquet(tmp_path).path == str(tmp_path)


STRUCT = StructType([StructField("id", LongType()), StructField("name", StringType())])


@pytest.mark.parametrize("given", ["id bigint, name string", STRUCT, SCHEMA])
def test_a_schema_is_what_pyspark_takes_as_one(given: Any, tmp_path: Path) -> None:
    (tmp_path / "rows.csv").write_text("id,name\n1,a\n")
    made = [
        ef.sources.memory([], schema=given), ef.sources.tcp_lines("here", 1, given), ef.sources.table("f.db", "t", given, "id"),
        ef.sources.replay(str(tmp_path), schema=given, speed=None),
    ]  # fmt: skip
    assert [source.schema for source in made] == [SCHEMA] * len(made)


@pytest.mark.parametrize(
    ("given", "error", "says"),
    [
        ("id", QueryError, "write `name type`"),
        ("", OptionError, "empty text"),
        ("id map<string,geometry>", QueryError, "unknown type 'geometry'"),
        ("id map<map<int,int>,int>", QueryError, "the key of a map cannot be, or have in it, a map"),
        (StructType([StructField("m", MapType(StringType(), NullType()))]), TypeMismatch, "column 'm' has type void"),
        (["id"], OptionError, "a StructType or a pyarrow schema, not list"),
        (7, OptionError, "not int 7"),
    ],
)
def test_what_is_no_schema_is_refused(given: Any, error: type[Exception], says: str) -> None:
    with pytest.raises(error, match=says):
        ef.sources.tcp_lines("here", 1, given)


def test_spark_types_become_columns() -> None:
    given = StructType([StructField("t", TimestampNTZType(), False), StructField("n", ArrayType(LongType()))])
    found = ef.sources.memory([], schema=given).schema
    assert found == pa.schema([pa.field("t", pa.timestamp("us"), False), pa.field("n", pa.list_(pa.int64()))])


def test_an_annotation_that_says_nothing_has_to_be_explained() -> None:
    @dataclasses.dataclass(frozen=True)
    class Odd(Declared):
        bound: complex = 1j

    with pytest.raises(TypeError, match="what the option 'bound' may be"):
        Odd()
    assert isinstance(options_of(EngineOptions)["linger_ms"], May)


@pytest.mark.parametrize("batches", [7, None, "rows", [1], [[1]], {"a": [1]}, [{"a": 1}], SCHEMA])
def test_rows_in_memory_are_batches(batches: Any) -> None:
    with pytest.raises(OptionError, match="record batches or tables of pyarrow"):
        ef.sources.memory(batches)


def test_what_no_column_can_be_is_refused_in_memory_with_the_types_there_are() -> None:
    rows = pa.table({"m": pa.array([[("a", None)]], pa.map_(pa.string(), pa.month_day_nano_interval()))})
    with pytest.raises(TypeMismatch, match=r"no columns of the type month_day_nano_interval: cast it"):
        ef.Dataflow("maps").source(ef.sources.memory(rows))


def test_an_option_of_sql_that_is_no_number() -> None:
    with pytest.raises(OptionError, match=r"line 1, column \d+: generator source: rate is 'abc'; give a whole number"):
        ef.sql("CREATE VIEW g USING generator OPTIONS (rate 'abc'); SELECT key FROM g")
