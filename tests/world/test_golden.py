"""Locations of every format that this version reads are gone on with, to the right results: real sites, and files that were made once."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.golden import COLLECTED, HELD, SITES, copied, dataflow, expected, golden, held_dataflow, held_expected, results

import evenflow as ef
from evenflow.availability.entries import FORMAT, entry_name
from evenflow.bench.bare import BareEngine
from evenflow.store.location import READABLE

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
