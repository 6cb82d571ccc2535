"""Locations of every format that this version reads are gone on with, to the right results: real sites, and files that were made once."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from tests.golden import (
    COLLECTED,
    HELD,
    PARTITIONS,
    REPLACED,
    SHED,
    SHED_ROWS,
    SITES,
    copied,
    dataflow,
    expected,
    flood,
    golden,
    held_dataflow,
    held_expected,
    replaced_dataflow,
    results,
    shed_dataflow,
)

import evenflow as ef
from evenflow.availability.entries import FORMAT, entry_name
from evenflow.bench.bare import BareEngine
from evenflow.coordinator.beginning import logs_of
from evenflow.errors import ProgramChanged
from evenflow.exchange.shedding import ALL, classes, staying
from evenflow.plan.layout import Shed
from evenflow.query.planner import layout
from evenflow.store.journal import read_journal
from evenflow.store.location import READABLE, find_location

pytestmark = [pytest.mark.timeout(240)]


def test_there_is_one_of_each_format() -> None:
    assert READABLE.stop - 1 == FORMAT and [each for each in READABLE if not (golden(each) / "evenflow.json").exists()] == []


def test_the_collected_one_has_a_snapshot_in_the_place_of_entries() -> None:
    journal = golden(COLLECTED) / "journal"
    assert list(journal.glob("*.snapshot.json")) and not (journal / entry_name(2).split("/")[1]).exists()


@pytest.fixture(scope="module")
def engine() -> Iterator[ef.Engine]:
    """One for all formats: sites are seconds of imports."""
    with BareEngine(**SITES) as found:
        yield found


@pytest.mark.parametrize("format", [*READABLE, COLLECTED])
def test_it_goes_on_where_it_stood(engine: ef.Engine, format: int | str, tmp_path: Path) -> None:
    """Goal: what comes is of the rows before the checkpoint, too. Method: none of its results was due before its source's end."""
    location = copied(tmp_path, format)
    before = ef.checkpoints(location).inspect()
    flow, sinks = dataflow()
    run = engine.start(flow, checkpoint_location=location)
    assert run.await_termination(120)
    wanted, found = expected(), results(sinks)
    for name in ("totals", "hours", "visits"):
        assert found[name] == wanted[name], name
    seen = next(box.rows for box in before.boxes if box.box == "firsts")
    assert found["firsts"].keys() < wanted["firsts"].keys() and len(found["firsts"]) == len(wanted["firsts"]) - seen


def test_rows_in_no_table_go_on_from_what_changed(engine: ef.Engine, tmp_path: Path) -> None:
    """Goal: what waits in a join, in an order and in a window is of the rows before the checkpoint, too. Method: all of it comes at the
    end, and the checkpoint has some of it as changes."""
    location = copied(tmp_path, HELD)
    assert sum(b'"changes"' in name.read_bytes() for name in Path(location).glob("checkpoints/**/*.parquet")) > 1
    assert {"pairs", "order", "first"} == {box.box for box in ef.checkpoints(location).inspect().boxes if box.kind != "watermark"}
    there = ef.checkpoints(location)
    rows = {box.box: box.rows for box in there.inspect().boxes}
    assert there.verify().whole and all(there.state(box).num_rows == rows[box] for box in ("pairs", "order"))
    flow, sinks = held_dataflow()
    run = engine.start(flow, checkpoint_location=location)
    assert run.await_termination(120)
    found = {name: sink.rows() for name, sink in sinks.items()}
    named = {name: sorted(zip(rows["key"].to_pylist(), rows["value"].to_pylist(), strict=True)) for name, rows in found.items()}
    assert named == held_expected()
    assert found["sorted"]["ts"].to_pylist() == sorted(found["sorted"]["ts"].to_pylist())


def test_rows_that_were_left_out_stay_out(engine: ef.Engine, tmp_path: Path) -> None:
    """Goal: what a journal says that epochs keep is what they keep again, and who goes on tells of what is gone, too. Method: this engine
    leaves nothing out itself; the oracle is the source without what the journal says."""
    location = copied(tmp_path, SHED)
    before = read_journal(find_location(location).store)
    flow, sinks = shed_dataflow()
    run = engine.start(flow, checkpoint_location=location)
    assert run.await_termination(120)
    told = run.shed().to_pylist()
    gone = {row["partition"]: (row["epoch"], row["kept"], tuple(row["dropped"])) for row in told if row["first"] is None}
    assert gone == {partition: tuple(left) for (_, partition), left in before.left_out.items()} and len(gone) == PARTITIONS
    [ingress] = {segment for segment, _ in before.left_out}
    again = {(row["partition"], row["epoch"]): tuple(row["dropped"]) for row in told if row["first"] is not None}
    cuts = {partition: before.cuts[ingress, partition] for partition in range(PARTITIONS)}
    assert again == {(at, cut.epoch): cut.dropped for at, of in cuts.items() for cut in of if cut.keep and cut.epoch <= before.durable}
    assert len(again) > PARTITIONS
    logs, kept = logs_of(before), []
    for partition in range(PARTITIONS):
        rows, first = flood_of(partition), logs[ingress, partition][0]
        stays = np.arange(rows.num_rows) >= first
        for row in told:
            if row["partition"] == partition and row["first"] is not None:
                places, keep = np.arange(row["first"], row["end"]), [round(share * ALL) for share in row["keep"]]
                of = classes(flow_sheds(flow), rows.slice(row["first"], places.size))
                stays[places] = staying("in", partition, places, of, keep)
        kept += list(zip(*rows.filter(pa.array(stays)).select(["key", "value", "p0"]).to_pydict().values(), strict=True))
    assert sorted(zip(*(sinks["calls"].rows()[name].to_pylist() for name in ("key", "value", "p0")), strict=True)) == sorted(kept)
    totals = zip(*(sinks["totals"].rows()[name].to_pylist() for name in ("key", "n", "total")), strict=True)
    assert {key: (n, total) for key, n, total in totals} == expected()["totals"]


def test_a_run_that_was_replaced_goes_on_as_what_it_was_replaced_by(engine: ef.Engine, tmp_path: Path) -> None:
    """Goal: each epoch is made again by the version that it had, read from the location. Method: the newest checkpoint is older than the
    replacement, and the journal says how many rows there were before that."""
    location = copied(tmp_path, REPLACED)
    before = read_journal(find_location(location).store)
    assert [content.version for content in before.contents] == [0, 1]
    cuts = [cut for of in before.cuts.values() for cut in of if before.base < cut.epoch < before.contents[1].effective]
    with pytest.raises(ProgramChanged, match="version 1 acts from epoch"):
        engine.start(replaced_dataflow(0)[0], checkpoint_location=location)
    flow, sinks = replaced_dataflow(1)
    run = engine.start(flow, checkpoint_location=location)
    assert run.await_termination(120)
    rows = sinks["marked"].rows().to_pylist()
    assert sum(row["version"] == 0 for row in rows) == sum(cut.rows or 0 for cut in cuts) > 0
    assert not engine.start(replaced_dataflow(1)[0], checkpoint_location=location).is_active, "it is over"
    assert {(row["version"], row["said"]) for row in rows} == {(0, "version 0"), (1, "version 1")}
    totals = zip(*(sinks["totals"].rows()[name].to_pylist() for name in ("key", "n", "total")), strict=True)
    assert {key: (n, total) for key, n, total in totals} == expected()["totals"]


def flow_sheds(flow: ef.Dataflow) -> Shed:
    return layout(flow.network, sites=SITES["sites"]).sheds["in"]


def flood_of(partition: int) -> pa.RecordBatch:
    reader, batches = replace(flood(), begin_us=1).open(partition, PARTITIONS), []
    while not reader.ended:
        batch = reader.read(2**60, SHED_ROWS)
        assert batch is not None
        batches.append(batch)
    return pa.concat_batches(batches)
