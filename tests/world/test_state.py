"""The state of boxes in checkpoints, read without the program: every kind of box, after a real run with deltas, against what is computed of
the rows that the sources had given by then; and what is refused."""

from __future__ import annotations

import json
import time
from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from threading import Event
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.golden import copied, golden
from tests.store.conftest import s3_bucket, s3_endpoint, s3_store  # noqa: F401

import evenflow as ef
from evenflow.bench.bare import BareEngine
from evenflow.cli.app import main
from evenflow.errors import CheckpointCorrupt, LocationError, OperationRefused, UnknownColumn
from evenflow.processor import Processor
from evenflow.sources.generator import GeneratorSource
from evenflow.store.objects import Store
from evenflow.store.opening import open_store
from evenflow.world.locations.checkpoints import Checkpoints

pytestmark = [pytest.mark.timeout(240)]
ROWS, KEYS, PARTITIONS, RATE = 120_000, 40, 2, 3_000
DAY = timedelta(days=1)
Made = list[dict[str, Any]]


class Remembered(Processor):
    """Counts, and keeps the last values of each key."""

    output = "key bigint, n bigint"

    def open(self, store: Any) -> None:
        store.value("seen", "bigint", default=0)
        store.value("name", "string")
        store.list("last", "bigint")
        store.map("times", "boolean", "bigint")

    def process(self, key: tuple[Any, ...], rows: pa.RecordBatch, state: Any) -> Any:
        for value in rows.column("value").to_pylist():
            state.seen, state.name = state.seen + 1, f"key {key[0]}"
            state.last = [*state.last, value][-3:]
            state.times[value % 2 == 0] = state.times.get(value % 2 == 0, 0) + 1
        yield key[0], state.seen


def source() -> GeneratorSource:
    made = ef.sources.generator(rate=RATE, keys=KEYS, rows=ROWS, partitions=PARTITIONS)
    assert isinstance(made, GeneratorSource)
    return made


def dataflow() -> ef.Dataflow:
    """Every kind of box that keeps something. Nothing of it is over before the source is."""
    flow = ef.Dataflow("kinds")
    made = flow.source(source(), name="made").with_watermark("ts", "2 hours")
    named = made.select("key", "ts", "value", name="cast(key as string)", part="value % 50").name("named")
    made.group_by("key").agg(n="count(*)", total="sum(value)", mean="avg(value)").name("totals").to(ef.sinks.discard())
    named.group_by("name", "part").agg(n="count(*)").name("pairs").to(ef.sinks.discard())
    named.group_by("name").window("30 days").agg(n="count(*)", least="min(value)").name("months").to(ef.sinks.discard())
    made.group_by("key").session("1 hour").agg(n="count(*)", most="max(value)").name("visits").to(ef.sinks.discard())
    named.select("ts", bucket="value % 4000").drop_duplicates(["bucket"]).name("firsts").to(ef.sinks.discard())
    made.group_by("key").window("30 days").top(2, order_by="value desc").name("best").to(ef.sinks.discard())
    made.group_by("key").rows(3, order="arrival").agg(total="sum(value)").name("threes").to(ef.sinks.discard())
    made.key_by("key").process(Remembered(), order="arrival").name("remembered").to(ef.sinks.discard())
    made.key_by("key").sort().name("sorted").to(ef.sinks.discard())
    made.key_by("key").bsort("value", 4).name("nearly").to(ef.sinks.discard())
    made.key_by("key").sort().name("before").group_by("key").resample("1 minute", "value").name("regular").to(ef.sinks.discard())
    few, others = made.where("value < 20").name("few"), made.where("value between 20 and 29").name("others")
    few.join(others, "key", within="1 hour", suffix="_other").name("joined").to(ef.sinks.discard())
    return flow


def given(checkpoint: Any) -> Made:
    """The rows that its sources had given by then. The generator's times are those of the start at the location, so they are left out."""
    rows: Made = []
    for at in checkpoint.sources:
        reader = replace(source(), begin_us=1).open(at.partition, PARTITIONS)
        mine: Made = []
        while len(mine) < at.position:
            mine += reader.read(2**60, at.position - len(mine)).to_pylist()
        rows += mine
    return rows


def stopped_in_the_middle(folder: str) -> str:
    """A location of the dataflow with checkpoints of which the newest has deltas."""
    with BareEngine(sites=2, partitions=8, checkpoint_s=0.6) as engine:
        run = engine.start(dataflow(), checkpoint_location=folder)
        pause, deadline_s = Event(), time.monotonic() + 90
        while sum(event["kind"] == "checkpoint_completed" for event in run.events()) < 4:
            assert run.is_active and time.monotonic() < deadline_s, f"too slow: {run.events()}"
            pause.wait(0.01)
        run.stop()
    return folder


@pytest.fixture(scope="module")
def location(tmp_path_factory: pytest.TempPathFactory) -> str:
    return stopped_in_the_middle(str(tmp_path_factory.mktemp("state") / "location"))


def rows(location: str, box: str, *columns: str, **more: Any) -> Counter[tuple[Any, ...]]:
    table = ef.checkpoints(location).state(box, **more)
    return Counter(zip(*(table.column(name).to_pylist() for name in columns)))


def by(made: Made, key: Callable[[dict[str, Any]], Any]) -> dict[Any, list[int]]:
    found: dict[Any, list[int]] = defaultdict(list)
    for row in made:
        found[key(row)].append(row["value"])
    return found


def test_every_kind_of_box_shows_what_the_rows_until_then_make(location: str) -> None:
    checkpoint = ef.checkpoints(location).inspect()
    made = given(checkpoint)
    objects = {each.box: len(each.objects) for each in checkpoint.boxes}
    assert objects["totals"] > 2 and objects["visits"] > 2, "the newest checkpoint is to have deltas"
    assert 1_000 < len(made) < ROWS
    keys = by(made, lambda row: row["key"])
    assert rows(location, "totals", "key", "n", "total", "mean") == Counter(
        (key, len(values), sum(values), sum(values) / len(values)) for key, values in keys.items()
    )
    assert rows(location, "months", "name", "n", "least") == Counter((str(k), len(v), min(v)) for k, v in keys.items())
    assert rows(location, "visits", "key", "n", "most") == Counter((k, len(v), max(v)) for k, v in keys.items())
    assert rows(location, "firsts", "bucket") == Counter({(row["value"] % 4000,): 1 for row in made})
    assert rows(location, "best", "key", "rank", "value") == Counter(
        (k, at, value) for k, v in keys.items() for at, value in enumerate(sorted(v, reverse=True)[:2], 1)
    )
    told = {each.box: each.rows for each in checkpoint.boxes}
    assert told["best"] == sum(min(2, len(v)) for v in keys.values()), "and not those that may still be among them"
    assert (told["sorted"], told["joined"]) == (len(made), sum(row["value"] < 30 for row in made))
    assert rows(location, "threes", "key", "_rows") == Counter((k, len(v)) for k, v in keys.items())
    seen = ef.checkpoints(location).state("remembered").to_pylist()
    assert {row["key"]: (row["seen"], row["name"], dict(row["times"])) for row in seen} == {
        k: (len(v), f"key {k}", dict(Counter(value % 2 == 0 for value in v))) for k, v in keys.items()
    }
    every = Counter((row["key"], row["value"]) for row in made)
    assert rows(location, "sorted", "key", "value") == every
    assert rows(location, "joined", "_side", "_time").total() == sum(row["value"] < 30 for row in made)
    sides = ef.checkpoints(location).state("joined").to_pylist()
    held = Counter((each["_side"], each[each["_side"]].get("key"), each[each["_side"]]["value"]) for each in sides)
    assert held == Counter(
        # The key comes out of the left's rows, so the right's do not keep it.
        ("left", row["key"], row["value"]) if row["value"] < 20 else ("right", None, row["value"])
        for row in made
        if row["value"] < 30
    )
    nearly = rows(location, "nearly", "key", "value")
    assert nearly <= every and nearly.total() == sum(min(3, len(v)) for v in keys.values())
    windows = ef.checkpoints(location).state("months")
    assert windows.schema.names == ["name", "window_start", "window_end", "n", "least"]
    assert {row["window_end"] - row["window_start"] for row in windows.to_pylist()} == {30 * DAY}


def test_keys_of_several_columns_are_named_by_who_has_them(location: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    made = given(ef.checkpoints(location).inspect())
    wanted = Counter((str(row["key"]), row["value"] % 50) for row in made)
    known = [*wanted, *list(wanted)[:5], ("nobody", 1)]  # Some twice, and one that has no state.
    keys = pa.table({"part": [part for _, part in known], "more": [0] * len(known), "name": [name for name, _ in known]})
    found = ef.checkpoints(location).state("pairs", keys=keys)
    assert found.schema.names == ["name", "part", "n"]
    assert {(row["name"], row["part"]): row["n"] for row in found.to_pylist()} == wanted and found.num_rows == len(wanted)
    assert ef.checkpoints(location).state("pairs").schema.names == ["_key_hash", "_key_check", "n"]
    pq.write_table(keys.slice(0, 3), tmp_path / "keys.parquet")
    assert run("state", location, "pairs", "--keys", str(tmp_path / "keys.parquet"), "--json") == 0
    told = json.loads(capfd.readouterr().out)
    assert len(told["rows"]) == 3 and {row["name"] for row in told["rows"]} <= {name for name, _ in wanted} and not told["more"]
    with pytest.raises(UnknownColumn, match="keys= has no column 'part'; the keys of box 'pairs' are name, part"):
        ef.checkpoints(location).state("pairs", keys=keys.select(["name"]))
    with pytest.raises(OperationRefused, match="'totals' has its keys itself"):
        ef.checkpoints(location).state("totals", keys=keys)
    (tmp_path / "no.parquet").write_text("no")
    assert run("state", location, "pairs", "--keys", str(tmp_path / "no.parquet")) == 2


def test_the_state_of_an_older_checkpoint_and_of_a_savepoint(location: str, tmp_path: Path) -> None:
    there = [each for each in ef.checkpoints(location).list() if each.complete]  # The last one may have been under way at the end.
    older = there[-2].name
    made = given(ef.checkpoints(location).inspect(older))
    wanted = Counter((key, len(values)) for key, values in by(made, lambda row: row["key"]).items())
    assert rows(location, "totals", "key", "n", which=older) == wanted
    saved = ef.checkpoints(location).export(str(tmp_path / "saved"), older).location
    assert rows(saved, "totals", "key", "n") == wanted


def run(*arguments: str) -> int:
    with pytest.raises(SystemExit) as end:
        main(["checkpoints", *arguments])
    return int(end.value.code or 0)


def test_the_command_shows_some_rows_and_says_that_there_are_more(capfd: pytest.CaptureFixture[str]) -> None:
    assert run("state", str(golden()), "hours", "--limit", "3") == 0
    text = capfd.readouterr().out
    assert text.splitlines()[0].split() == ["key", "window_start", "window_end", "n", "least", "greatest"]
    assert len(text.splitlines()) == 5 and "and more: these are 3 rows" in text
    assert run("state", str(golden()), "hours", "--limit", "0", "--json") == 0
    told = json.loads(capfd.readouterr().out)
    assert len(told["rows"]) == 16 and not told["more"] and told["columns"][1] == {"name": "window_start", "type": "timestamp[us]"}
    assert run("state", str(golden()), "nothing") == 2 and run("state", "/nowhere", "hours") == 1


@pytest.mark.parametrize("format", [1, 2])
def test_locations_of_former_formats_are_read(format: int) -> None:
    found = ef.checkpoints(str(golden(format)))
    boxes = {each.box: each.rows for each in found.inspect().boxes}
    for box in ("totals", "hours", "visits", "firsts", "watermark"):
        assert found.state(box).num_rows == boxes[box], box


def test_what_is_asked_for_and_is_not_there_is_named(tmp_path: Path) -> None:
    found = ef.checkpoints(str(golden()))
    with pytest.raises(OperationRefused, match=r"no box 'vists'. Did you mean 'visits'\? Boxes with state are 'watermark', 'totals'"):
        found.state("vists")
    with pytest.raises(OperationRefused, match="box 'texts' keeps no state. Boxes"):
        found.state("texts")
    with pytest.raises(OperationRefused, match="box 'hours' has no step 'order' with state, but aggregate"):
        found.state("hours", kind="order")
    with pytest.raises(OperationRefused, match="there is no checkpoint 77 here"):
        found.state("hours", 77)
    with pytest.raises(LocationError, match="is no checkpoint location"):
        ef.checkpoints(str(tmp_path))
    location = copied(tmp_path)
    for folder in (Path(location) / "checkpoints").iterdir():
        for file in folder.rglob("*.parquet"):
            file.unlink()
    with pytest.raises(OperationRefused, match="there is no whole checkpoint here"):
        ef.checkpoints(location).state("hours")
    newer = json.loads((Path(location) / "evenflow.json").read_text()) | {"format": 99}
    (Path(location) / "evenflow.json").write_text(json.dumps(newer))
    with pytest.raises(LocationError, match="is of format 99"):
        ef.checkpoints(location)


def test_an_object_that_is_missing_or_altered_is_named(tmp_path: Path) -> None:
    location = copied(tmp_path)
    checkpoint = ef.checkpoints(location).inspect()
    name = next(each for each in checkpoint.boxes if each.box == "hours").objects[-1]
    victim = Path(location) / name
    data = victim.read_bytes()
    victim.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
    with pytest.raises(
        CheckpointCorrupt, match=f"object '{name}' with the state of box 'hours', partitions .* not those that were written"
    ):
        ef.checkpoints(location).state("hours")
    assert ef.checkpoints(location).state("visits").num_rows == 16, "only what is looked at is read"
    assert run("state", location, "hours") == 1
    victim.unlink()
    with pytest.raises(CheckpointCorrupt, match=f"cannot be read: {name} is missing. Take another checkpoint"):
        ef.checkpoints(location).state("hours", checkpoint.checkpoint.name)


def test_of_a_processor_that_has_not_said_what_it_keeps_the_bytes_are_shown(location: str) -> None:
    """Goal: a checkpoint of a version that did not write down fields can be looked at. Method: they are taken out of what is read."""
    found = ef.checkpoints(location).rows_of("remembered")
    bare = replace(found, fields=())
    table = pa.Table.from_batches(bare.all_batches(open_store(location)), schema=bare.schema)
    assert table.schema.names == ["_partition", "_state"] and set(table.column("_partition").to_pylist()) <= set(range(8))
    assert table.num_rows > 1 and all(state[:4] == b"EFP1" for state in table.column("_state").to_pylist())


@pytest.mark.conformance
def test_a_location_in_a_bucket_shows_the_same(location: str, s3_store: Store) -> None:  # noqa: F811
    for name in open_store(location).names():
        s3_store.put(name, open_store(location).get(name))
    from evenflow.store.location import Location, head_of

    head = head_of(s3_store)
    assert head is not None
    there = Checkpoints(Location(s3_store, head))
    for box in ("totals", "remembered", "best"):
        assert there.state(box).equals(ef.checkpoints(location).state(box))


def test_a_list_of_kinds_with_state_is_complete(location: str) -> None:
    """Every kind of step that has objects in the checkpoint is shown by columns."""
    found = ef.checkpoints(location)
    for each in found.inspect().boxes:
        assert "_state" not in found.rows_of(each.box, kind=each.kind).schema.names, each
