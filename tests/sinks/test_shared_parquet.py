"""Several regions write Parquet files: every epoch once, by whoever is first; one that has other rows is stopped."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import evenflow as ef
from evenflow.errors import RegionsDisagree, SinkError
from evenflow.query.planner import layout
from evenflow.sinks.sink import Sink
from evenflow.world.grouping import as_region, group
from evenflow.world.spark.regions.appending import AppendingWriter, Shared

EPOCHS = [1, 2, 5, 9, 10, 11, 20]
WHOLE = [(epoch, v) for epoch in EPOCHS for v in (epoch, 0)]


def rows(epoch: int, value: int | None = None) -> pa.RecordBatch:
    return pa.record_batch({"epoch": [epoch, epoch], "v": [epoch if value is None else value, 0]})


def region(sink: Sink, place: int) -> AppendingWriter:
    return Shared(sink, "out", place, 0).open("traffic")  # type: ignore[return-value]


def written(sink: Any) -> list[tuple[Any, ...]]:
    return [tuple(row.values()) for row in sink.read("traffic", "out").to_pylist()]


@pytest.fixture
def sink(tmp_path: Path) -> Sink:
    return ef.sinks.shared_parquet(str(tmp_path / "out"))


def test_the_first_writes_the_others_look_on_and_go_on_when_it_dies(sink: Sink) -> None:
    first, second = region(sink, 0), region(sink, 1)
    for epoch in EPOCHS[:4]:
        first.write(epoch, rows(epoch))
        second.write(epoch, rows(epoch))
    first.close()
    for epoch in EPOCHS[4:]:
        second.write(epoch, rows(epoch))
    assert written(sink) == WHOLE and (second.seen, second.appended) == (4, 3)
    back = region(sink, 0)
    for epoch in EPOCHS:
        back.write(epoch, rows(epoch))
    assert written(sink) == WHOLE and back.appended == 0


def test_all_at_once_write_each_epoch_once(sink: Sink) -> None:
    regions = [region(sink, 0) for _ in range(3)]

    def write(one: AppendingWriter) -> None:
        for epoch in EPOCHS:
            one.write(epoch, rows(epoch))

    threads = [threading.Thread(target=write, args=(one,)) for one in regions]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20.0)
    assert written(sink) == WHOLE
    assert sum(one.appended for one in regions) == len(EPOCHS)


def test_a_region_with_other_rows_is_stopped_and_nothing_is_replaced(sink: Sink) -> None:
    first, liar = region(sink, 0), region(sink, 0)
    first.write(1, rows(1))
    with pytest.raises(RegionsDisagree):
        liar.write(1, rows(1, value=7))
    assert written(sink) == [(1, 1), (1, 0)]


def test_an_append_whose_answer_is_lost_is_there_once(sink: Sink) -> None:
    one = sink.open_for_group("traffic", "out")
    assert one.last() == (0, 0) and one.append(0, 3, 2**64 - 1, rows(3)) and one.last() == (3, 2**64 - 1)
    other = sink.open_for_group("traffic", "out")
    assert not other.append(0, 3, 2**64 - 1, rows(3)) and other.last() == (3, 2**64 - 1)
    assert other.append(3, 4, 1, rows(4)) and one.last() == (4, 1)
    assert sink.open_for_group("traffic", "another").last() == (0, 0), "another sink is another chain"


def test_any_reader_of_parquet_has_the_rows(sink: Any, tmp_path: Path) -> None:
    writer = region(sink, 0)
    for epoch in EPOCHS:
        writer.write(epoch, rows(epoch))
    assert sorted(map(tuple, (row.values() for row in pq.read_table(tmp_path / "out").to_pylist()))) == sorted(WHOLE)


def test_what_cannot_be_is_refused(sink: Sink, tmp_path: Path) -> None:
    with pytest.raises(SinkError, match="group=ef.group"):
        sink.open("a run")
    with pytest.raises(SinkError, match="shared Parquet sink gs://bucket/x"):
        ef.sinks.shared_parquet("gs://bucket/x").open_for_group("traffic", "out")
    writer = region(sink, 0)
    writer.write(1, rows(1))
    (made,) = (tmp_path / "out").iterdir()
    pq.write_table(pa.table({"v": [1]}), made)
    with pytest.raises(SinkError, match="no epoch of a group"):
        sink.open_for_group("traffic", "out").last()


def test_a_group_may_have_it(sink: Sink) -> None:
    flow = ef.Dataflow("traffic")
    flow.source(ef.sources.generator(rate=1000), cut="content").to(sink, name="out")
    planned = layout(flow.network, sites=2)
    assert as_region(planned, group("traffic", "2026-11-23T08:00:00Z"), 2)[1].place == 0
    assert ef.Dataflow.from_json(flow.to_json()).to_json() == flow.to_json()
