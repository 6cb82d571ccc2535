"""Files replayed: every format, at every pace, and what is said about damaged ones."""

from __future__ import annotations

import json
import os
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq
import pytest

import evenflow as ef
from evenflow import sources
from evenflow.errors import OptionError, SchemaChanged, SourceError, TypeMismatch, UnknownColumn

from .reading import arrivals, read_all

DATA = Path(__file__).resolve().parents[3] / "shared" / "data"
TABLE = pa.table(
    {
        "ts": pa.array([1_000_000, 1_500_000, 1_500_000, 3_000_000, 2_000_000, 5_000_000], pa.timestamp("us")),
        "a": pa.array([1, 2, 3, 4, 5, 6], pa.int64()),
        "text": ["x", "y", "z", "äö", "v", "w"],
    }
)


def write(path: Path, table: pa.Table) -> Path:
    ending = path.suffix
    if ending == ".parquet":
        pq.write_table(table, path, row_group_size=2)
    elif ending == ".csv":
        pa_csv.write_csv(table, path)
    elif ending == ".tsv":
        lines = [table.column_names, *([str(value) for value in row.values()] for row in table.to_pylist())]
        path.write_text("".join("\t".join(line) + "\n" for line in lines))
    elif ending == ".json":
        rows = [{**r, "ts": str(r["ts"])} for r in table.to_pylist()]
        path.write_text("".join(json.dumps(r) + "\n" for r in rows))
    elif ending == ".arrow":
        with pa.ipc.new_file(path, table.schema) as out:
            out.write_table(table, 2)
    else:
        with pa.ipc.new_stream(path, table.schema) as out:
            out.write_table(table, 2)
    return path


@pytest.mark.parametrize("ending", ["parquet", "csv", "tsv", "json", "arrow", "arrows"])
def test_every_format_gives_the_same_rows(tmp_path: Path, ending: str) -> None:
    path = write(tmp_path / f"rows.{ending}", TABLE)
    declared = TABLE.schema if ending == "json" else None
    source = sources.replay(str(path), speed=None, schema=declared)
    assert source.schema.equals(TABLE.schema)
    assert source.blocking
    assert not source.streaming
    for size in (1, 2, 4, 100):
        assert read_all(source, max_rows=size).equals(TABLE)


@pytest.mark.parametrize(("speed", "factor"), [(1.0, 1.0), (4.0, 0.25), (0.5, 2.0)])
def test_rows_come_at_the_pace_of_their_time(tmp_path: Path, speed: float, factor: float) -> None:
    """A row that is out of order comes with the row before it, never earlier."""
    path = write(tmp_path / "rows.parquet", TABLE)
    start = 77_000_000
    seen = arrivals(sources.replay(str(path), speed=speed).open(0, 1), start_us=start)
    assert [(now - start) / factor for now, _ in seen] == [0, 500_000, 2_000_000, 4_000_000]
    assert [rows for _, rows in seen] == [1, 2, 2, 1]


def test_partitions_of_several_files_stay_in_step(tmp_path: Path) -> None:
    """The second file begins three seconds after the first: whoever reads it waits that long."""
    later = TABLE.set_column(0, "ts", pa.array([t + 3_000_000 for t in TABLE["ts"].cast(pa.int64()).to_pylist()], pa.timestamp("us")))
    write(tmp_path / "a.parquet", TABLE)
    write(tmp_path / "b.parquet", later)
    (tmp_path / "_SUCCESS").write_text("")
    source = sources.replay(str(tmp_path))
    assert source.partitions(4) == 2
    assert arrivals(source.open(0, 2))[0][0] == 0
    assert arrivals(source.open(1, 2))[0][0] == 3_000_000
    assert sources.replay(str(tmp_path / "*.parquet")).files == source.files
    assert read_all(sources.replay(str(tmp_path), speed=None)).num_rows == 12


def test_one_parquet_file_is_split_by_row_groups(tmp_path: Path) -> None:
    path = write(tmp_path / "rows.parquet", TABLE)
    source = sources.replay(str(path), speed=None)
    assert [source.partitions(n) for n in (1, 2, 8)] == [1, 2, 3]
    parts = [read_all(source, p, 2) for p in range(2)]
    assert [p["a"].to_pylist() for p in parts] == [[1, 2, 5, 6], [3, 4]]
    assert sources.replay(str(path)).partitions(8) == 1
    assert read_all(source, 7, 8).num_rows == 0


def test_keep_time_false_gives_rows_the_time_at_which_they_were_due(tmp_path: Path) -> None:
    path = write(tmp_path / "rows.parquet", TABLE)
    reader = sources.replay(str(path), speed=2.0, keep_time=False).open(0, 1)
    first = reader.read(9_000_000, 10)
    assert first is not None
    assert first["ts"].cast(pa.int64()).to_pylist() == [9_000_000]
    rest = reader.read(99_000_000, 10)
    assert rest is not None
    assert rest["ts"].cast(pa.int64()).to_pylist() == [9_250_000, 9_250_000, 10_000_000, 10_000_000, 11_000_000]
    assert rest["a"].to_pylist() == [2, 3, 4, 5, 6]


def test_a_time_column_may_be_seconds_and_have_nulls(tmp_path: Path) -> None:
    table = pa.table({"t": pa.array([100, None, 101, 103], pa.int64())})
    path = write(tmp_path / "rows.parquet", table)
    seen = arrivals(sources.replay(str(path), "t", time_unit="s").open(0, 1))
    assert seen == [(0, 2), (1_000_000, 1), (3_000_000, 1)]


def test_types_are_brought_to_those_of_evenflow(tmp_path: Path) -> None:
    table = pa.table(
        {
            "ts": pa.array([1_234_567_891], pa.timestamp("ns")),
            "utc": pa.array([7], pa.timestamp("ms", "UTC")),
            "word": pa.array(["x"]).dictionary_encode(),
            "large": pa.array(["y"], pa.large_string()),
            "u": pa.array([2**32 - 1], pa.uint32()),
        }
    )
    path = write(tmp_path / "rows.parquet", table)
    read = read_all(sources.replay(str(path), speed=None))
    assert [str(t) for t in read.schema.types] == ["timestamp[us]", "timestamp[us, tz=UTC]", "string", "string", "int64"]
    assert read["ts"].cast(pa.int64()).to_pylist() == [1_234_567]
    assert read["u"].to_pylist() == [2**32 - 1]


@pytest.mark.parametrize("ending", ["parquet", "arrow"])
def test_times_of_any_zone_are_those_of_utc(tmp_path: Path, ending: str) -> None:
    """Goal: files that others have written in their zone are read: the moments are the same, and Evenflow has one type for them."""
    berlin = pa.timestamp("ns", "Europe/Berlin")
    at = pa.array([0, -1_000, None], berlin)
    table = pa.table({"at": at, "inside": pa.array([{"l": [0]}, None, {"l": None}], pa.struct([("l", pa.list_(berlin))]))})
    source = sources.replay(str(write(tmp_path / f"rows.{ending}", table)), speed=None)
    ef.Dataflow("f").source(source)
    read = read_all(source)
    assert read.schema.field("at").type == pa.timestamp("us", "UTC") and read["at"].cast(pa.int64()).to_pylist() == [0, -1, None]
    assert read["inside"].to_pylist() == [{"l": [datetime(1970, 1, 1, tzinfo=UTC)]}, None, {"l": None}]
    declared = sources.replay(source.files[0], speed=None, schema="at timestamp_ltz, inside struct<l: array<timestamp_ltz>>")
    assert read_all(declared).equals(read)


LATE_S = 2**63 // 1_000_000 + 1


@pytest.mark.parametrize(("unit", "value", "ending"), [
    ("s", LATE_S, "arrow"), ("s", -LATE_S - 1, "arrows"), ("ms", LATE_S * 1_000, "parquet"), ("ms", -(2**63), "arrow"),
    ("s", 2**63 - 1, "arrows"),
])  # fmt: skip
def test_a_time_that_microseconds_cannot_hold_is_an_error(tmp_path: Path, unit: str, value: int, ending: str) -> None:
    table = pa.table({"a": [1, 2, 3], "at": pa.array([7, None, value], pa.timestamp(unit))})
    path = write(tmp_path / f"rows.{ending}", table)
    with pytest.raises(SourceError, match=rf"rows\.{ending}, behind row \d.* column 'at': {value} as timestamp\[{unit}\].*294247"):
        read_all(sources.replay(str(path), speed=None))


@pytest.mark.parametrize(("unit", "value"), [("s", LATE_S), ("ms", -(2**63)), ("s", 1e19), ("us", float("inf"))])
def test_a_number_that_is_no_time_in_microseconds_is_an_error(tmp_path: Path, unit: str, value: float) -> None:
    path = write(tmp_path / "rows.arrow", pa.table({"t": pa.array([1, value])}))
    with pytest.raises(SourceError, match="'t': .* is no time in microseconds"):
        arrivals(sources.replay(str(path), "t", time_unit=unit).open(0, 1))


@pytest.mark.parametrize("declared", [False, True])
def test_int96_is_no_nanoseconds(tmp_path: Path, declared: bool) -> None:
    """Goal: times of Spark's older files, which nanoseconds do not hold. Method: at the top, and inside of a list and a structure."""
    far = [datetime(9999, 12, 31, 23, 59, 59, 999_999), datetime(1000, 1, 1), datetime(2026, 1, 2, 3, 4, 5, 678_901), None]
    inside = pa.struct([pa.field("at", pa.timestamp("us"))])
    table = pa.table(
        {"at": pa.array(far, pa.timestamp("us")), "all": pa.array([far] * 4), "in": pa.array([{"at": at} for at in far], inside)}
    )
    pq.write_table(table, tmp_path / "rows.parquet", use_deprecated_int96_timestamps=True, store_schema=False)
    given = pa.schema([("at", pa.timestamp("us")), ("all", pa.list_(pa.timestamp("us"))), ("in", inside)]) if declared else None
    read = read_all(sources.replay(str(tmp_path), speed=None, schema=given))
    assert read.select(table.column_names).to_pylist() == table.to_pylist()


def test_the_last_time_of_all_is_read(tmp_path: Path) -> None:
    table = pa.table({"at": pa.array([LATE_S - 1, -LATE_S + 1], pa.timestamp("s"))})
    read = read_all(sources.replay(str(write(tmp_path / "rows.arrow", table)), speed=None))
    assert read["at"].cast(pa.int64()).to_pylist() == [(LATE_S - 1) * 1_000_000, (-LATE_S + 1) * 1_000_000]


@pytest.mark.parametrize("ending", ["parquet", "arrow", "json"])
def test_a_truncated_file_is_named_with_the_place(tmp_path: Path, ending: str) -> None:
    path = write(tmp_path / f"rows.{ending}", TABLE)
    source = sources.replay(str(path), speed=None, schema=TABLE.schema)
    os.truncate(path, path.stat().st_size - 30)
    with pytest.raises(SourceError, match=rf"rows\.{ending} \(the file is \d+ bytes long\) cannot be read beyond row \d"):
        read_all(source)
    if ending == "parquet":
        with pytest.raises(SourceError, match="truncated"):
            sources.replay(str(path))


def test_a_file_that_is_damaged_inside_is_named_after_its_good_rows(tmp_path: Path) -> None:
    text = "ts,a,text\n" + "".join(f"2024-01-01 00:00:{i % 60:02d},{i},x\n" for i in range(60_000)) + "2024-01-01 00:00:00,7\n"
    (tmp_path / "rows.csv").write_text(text)
    source = sources.replay(str(tmp_path / "rows.csv"), speed=None, schema=TABLE.schema)
    with pytest.raises(SourceError, match=r"beyond row [1-9]\d+.*[Rr]ow #?60002"):
        read_all(source, max_rows=100_000)


def test_a_value_of_another_type_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "rows.csv").write_text("ts,a,text\n2024-01-01 00:00:00,seven,x\n")
    with pytest.raises(SourceError, match="seven"):
        read_all(sources.replay(str(tmp_path / "rows.csv"), speed=None, schema=TABLE.schema))


def test_a_file_that_vanishes_is_an_error(tmp_path: Path) -> None:
    path = write(tmp_path / "rows.parquet", TABLE)
    source = sources.replay(str(path), speed=None)
    path.unlink()
    with pytest.raises(SourceError, match="not there"):
        read_all(source)


@pytest.mark.parametrize(
    ("other", "said"),
    [
        (TABLE.rename_columns(["ts", "a", "words"]), "column 'text' is missing; column 'words' is new"),
        (TABLE.set_column(1, "a", TABLE["a"].cast(pa.string())), "column 'a' is string, not int64"),
    ],
    ids=["names", "types"],
)
@pytest.mark.parametrize("ending", ["parquet", "arrow"])
def test_a_second_file_with_another_schema_names_the_columns(tmp_path: Path, other: pa.Table, said: str, ending: str) -> None:
    write(tmp_path / f"a.{ending}", TABLE)
    write(tmp_path / f"b.{ending}", other)
    with pytest.raises(SchemaChanged, match=said) as caught:
        read_all(sources.replay(str(tmp_path), speed=None))
    assert f"b.{ending}" in str(caught.value)


def test_columns_in_another_order_are_the_same_schema(tmp_path: Path) -> None:
    write(tmp_path / "a.parquet", TABLE)
    write(tmp_path / "b.parquet", TABLE.select(["text", "ts", "a"]))
    assert read_all(sources.replay(str(tmp_path), speed=None)).equals(pa.concat_tables([TABLE, TABLE]))


@pytest.mark.parametrize(
    ("arguments", "error", "said"),
    [
        ({"path": "/no/such/file"}, SourceError, "no file at"),
        ({"path": "rows.odd"}, SourceError, "give format="),
        ({"time_column": "when"}, UnknownColumn, "no column 'when'"),
        ({"time_column": "text"}, TypeMismatch, "'text' is string"),
        ({"time_column": "a", "keep_time": False}, TypeMismatch, "keep_time"),
        ({"speed": 0.0}, OptionError, "greater than zero"),
    ],
)
def test_wrong_arguments_are_refused_when_built(tmp_path: Path, arguments: dict[str, Any], error: type[Exception], said: str) -> None:
    (tmp_path / "rows.odd").write_text("")
    path = write(tmp_path / "rows.parquet", TABLE)
    given = {"path": str(path), **arguments}
    with pytest.raises(error, match=said):
        sources.replay(**{**given, "path": str(tmp_path / given["path"])})


def test_an_empty_file_is_read_to_its_end(tmp_path: Path) -> None:
    path = write(tmp_path / "rows.parquet", TABLE.slice(0, 0))
    reader = sources.replay(str(path)).open(0, 1)
    assert reader.read(0, 10) is None
    assert reader.ended


@pytest.mark.parametrize("column", ["string", "int", "decimal(9,0)"])
def test_quoted_values_have_lines_wherever_a_block_of_a_file_ends(tmp_path: Path, column: str) -> None:
    """Goal: a large file is read as a small one is. Where a block ended within quotes, the rest of the value was a row of its own."""
    path, count, value = tmp_path / "rows.csv", 5_000, "one\nline, two, 1e-5\n" + "yyyy,\n" * 50
    path.write_text("a,b\n" + "".join(f'{i},"{value}"\n' for i in range(count)))
    read = read_all(sources.replay(str(path), speed=None, schema=f"a {column}, b string"))
    assert [int(number) for number in read["a"].to_pylist()] == list(range(count)) and set(read["b"].to_pylist()) == {value}


@pytest.mark.parametrize("name", ["rows.csv", "rows.tsv", "rows.json"])
def test_a_file_without_a_byte_has_no_rows(tmp_path: Path, name: str) -> None:
    """Such are written by tasks that have had no rows."""
    (tmp_path / name).write_text("")
    for schema in ("a int", "a int, d decimal(5,2)", "m map<string, int>")[: 3 if name == "rows.json" else 2]:
        assert read_all(sources.replay(str(tmp_path / name), speed=None, schema=schema)).num_rows == 0
    with pytest.raises(SourceError, match="0 bytes long"):
        sources.replay(str(tmp_path / name), speed=None)


@pytest.mark.skipif(not DATA.is_dir(), reason="the shared traces are not on this machine")
def test_the_shared_traces_are_read_whole() -> None:
    packets = sources.replay(str(DATA / "packets.parquet"), speed=None)
    assert read_all(packets, max_rows=65536).equals(pq.read_table(DATA / "packets.parquet"))
    assert packets.schema.equals(sources.packets().schema)
    requests = read_all(sources.replay(str(DATA / "http_requests.tsv"), "time", None), max_rows=65536)
    assert requests.num_rows == 30_969
    assert pc.max(requests["time"]).as_py() - pc.min(requests["time"]).as_py() == 46_321


@pytest.mark.parametrize("ending", ["parquet", "csv", "arrow"])
def test_columns_that_nobody_wants_are_not_given(tmp_path: Path, ending: str) -> None:
    source = sources.replay(str(write(tmp_path / f"rows.{ending}", TABLE)), speed=None)
    reader = source.open_for(0, 1, ["a"])
    reader.skip(3)
    batches = list(iter(lambda: reader.read(0, 2), None))
    assert pa.Table.from_batches(batches).equals(TABLE.select(["a"]).slice(3))


def test_a_pace_needs_the_time_that_nobody_wants(tmp_path: Path) -> None:
    paced = sources.replay(str(write(tmp_path / "rows.parquet", TABLE)), "ts", 1.0)
    assert arrivals(paced.open_for(0, 1, ["text"])) == arrivals(paced.open(0, 1))


def test_columns_are_left_out_of_a_file_with_the_declared_ones_only(tmp_path: Path) -> None:
    source = sources.replay(str(write(tmp_path / "rows.parquet", TABLE)), speed=None)
    write(tmp_path / "rows.parquet", TABLE.append_column("more", TABLE["a"]))
    with pytest.raises(SchemaChanged, match="'more' is new"):
        source.open_for(0, 1, ["a"]).read(0, 10)


def test_a_column_with_a_dot_is_no_field(tmp_path: Path) -> None:
    dotted = pa.table({"s": [{"a": 1, "b": 2}], "s.a": [3], "c": [4]})
    source = sources.replay(str(write(tmp_path / "rows.parquet", dotted)), speed=None)
    batch = source.open_for(0, 1, ["s.a", "c"]).read(0, 10)
    assert batch is not None and batch.to_pylist() == [{"s.a": 3, "c": 4}]
