"""Several regions write to one table: every epoch once, whoever dies or breaks; a region that has other rows is stopped."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import evenflow as ef
from evenflow.availability.group import Group, Shape
from evenflow.errors import GroupDiffers, RegionsDisagree, SinkError
from evenflow.sinks.sink import RunOver, Writer
from evenflow.world.spark.driver.outlet import Finished, Outlet
from evenflow.world.spark.net.reactor import Clock
from evenflow.world.spark.regions.appending import AppendingWriter, Shared
from evenflow.world.spark.regions.silent import WithholdingWriter

EPOCHS = [1, 2, 5, 9, 10, 11, 20]


def rows(epoch: int, value: int | None = None) -> pa.RecordBatch:
    return pa.record_batch({"epoch": [epoch, epoch], "v": [epoch if value is None else value, 0]})


@pytest.fixture
def region(tmp_path: Path) -> Callable[[int], AppendingWriter]:
    sink = ef.sinks.table(str(tmp_path / "shop.db"), "out")
    return lambda place: Shared(sink, "out", place, 0).open("traffic")  # type: ignore[return-value]


def written(tmp_path: Path) -> list[tuple[Any, ...]]:
    with sqlite3.connect(tmp_path / "shop.db") as connection:
        return connection.execute("SELECT epoch, v FROM out ORDER BY rowid").fetchall()


WHOLE = [(epoch, v) for epoch in EPOCHS for v in (epoch, 0)]


def test_the_first_writes_and_the_others_look_on(region: Callable[[int], AppendingWriter], tmp_path: Path) -> None:
    first, second = region(0), region(1)
    for epoch in EPOCHS:
        first.write(epoch, rows(epoch))
        second.write(epoch, rows(epoch))
        second.write(epoch, rows(epoch).slice(0, 0))
    assert written(tmp_path) == WHOLE
    assert (first.appended, first.seen, second.appended, second.seen) == (len(EPOCHS), 0, 0, len(EPOCHS))


def test_when_the_first_dies_the_second_goes_on_within_a_hedge(region: Callable[[int], AppendingWriter], tmp_path: Path) -> None:
    first, second = region(0), region(1)
    first.write(1, rows(1))
    first.close()
    for epoch in EPOCHS:
        second.write(epoch, rows(epoch))
    assert written(tmp_path) == WHOLE and (second.seen, second.appended) == (1, len(EPOCHS) - 1)
    back = region(0)
    for epoch in EPOCHS:
        back.write(epoch, rows(epoch))
    assert written(tmp_path) == WHOLE and back.appended == 0, "it reads from the begin, and writes nothing twice"


def test_regions_at_once_write_every_epoch_once(region: Callable[[int], AppendingWriter], tmp_path: Path) -> None:
    failed: list[BaseException] = []

    def run(writer: AppendingWriter) -> None:
        try:
            for epoch in EPOCHS:
                writer.write(epoch, rows(epoch))
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=run, args=(region(0),)) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert not failed and written(tmp_path) == WHOLE


@pytest.mark.parametrize("other", [rows(5, 77), rows(5).slice(0, 1)])
def test_a_region_with_other_rows_is_stopped_and_nothing_is_replaced(
    region: Callable[[int], AppendingWriter], tmp_path: Path, other: pa.RecordBatch
) -> None:
    first, second = region(0), region(1)
    for epoch in EPOCHS[:3]:
        first.write(epoch, rows(epoch))
    for epoch in EPOCHS[:2]:
        second.write(epoch, rows(epoch))
    with pytest.raises(RegionsDisagree, match="epoch 5"):
        second.write(5, other)
    assert written(tmp_path) == WHOLE[:6]


def test_a_region_that_lacks_an_epoch_is_stopped(region: Callable[[int], AppendingWriter]) -> None:
    first, second = region(0), region(0)
    first.write(1, rows(1))
    first.write(3, rows(3))
    second.write(1, rows(1))
    with pytest.raises(RegionsDisagree, match="epoch 4"):
        second.write(4, rows(4))


def test_what_breaks_in_the_middle_is_asked_for_and_tried_again(
    region: Callable[[int], AppendingWriter], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = region(0)
    first.write(1, rows(1))
    put = type(first._appender)._put

    def breaks(self: Any, batch: pa.RecordBatch) -> None:
        put(self, batch)
        raise OSError("the cable")

    with monkeypatch.context() as broken:
        broken.setattr(type(first._appender), "_put", breaks)
        with pytest.raises(SinkError, match="cable"):
            first.write(2, rows(2))
    assert written(tmp_path) == WHOLE[:2]
    for epoch in EPOCHS[1:]:
        first.write(epoch, rows(epoch))
    assert written(tmp_path) == WHOLE


def chain(origin_us: int = 0, sites: int = 2, network: str = "program", version: str = "1") -> str:
    return Group("traffic", origin_us, 20_000, Shape(sites), network, version).chained()


@pytest.mark.parametrize(
    ("other", "named"), [({"origin_us": 1}, "origin_us"), ({"sites": 3}, "shape"), ({"network": "another"}, "network")]
)
@pytest.mark.parametrize("kind", ["table", "parquet"])
def test_another_run_under_the_name_is_refused_before_it_drops_a_row(tmp_path: Path, kind: str, other: dict[str, Any], named: str) -> None:
    """Its epochs have other numbers: those up to the last one of the run before would be taken for written."""
    sink = ef.sinks.table(str(tmp_path / "t.db"), "out") if kind == "table" else ef.sinks.shared_parquet(str(tmp_path / "out"))
    first: Any = Shared(sink, "out", 0, 0, chain()).open("traffic")
    for epoch in EPOCHS:
        first.write(epoch, rows(epoch))
    first.close()
    again: Any = Shared(sink, "out", 0, 0, chain(**other)).open("traffic")
    with pytest.raises(GroupDiffers, match=f"sink 'out' is of another group: its {named} .* give the group another name"):
        again.write(3, rows(3))
    again.close()
    at_a_location: Any = Shared(sink, "out", 0, EPOCHS[-1], chain(**other)).open("traffic")
    at_a_location.write(30, rows(30))
    assert at_a_location.appended == 1, "it goes on with the chain, whatever it has become"
    at_a_location.close()
    with pytest.raises(GroupDiffers):
        Shared(sink, "out", 0, 0, chain()).open("traffic").write(1, rows(1))


def test_a_region_of_another_version_and_one_that_knows_of_no_notes_go_on(tmp_path: Path) -> None:
    sink = ef.sinks.table(str(tmp_path / "t.db"), "out")
    before: Any = Shared(sink, "out", 0, 0).open("traffic")
    before.write(1, rows(1))
    for version, epoch in (("1", 2), ("2", 5)):
        one: Any = Shared(sink, "out", 0, 0, chain(version=version)).open("traffic")
        for each in EPOCHS[: EPOCHS.index(epoch) + 1]:
            one.write(each, rows(each))
        assert one.appended == 1
        one.close()


class Silenced:
    """As the sink of a silent region that is believed by now."""

    def __init__(self, shared: Shared) -> None:
        self._shared, self.retries, self.backoff_ms = shared, shared.retries, shared.backoff_ms

    def open(self, run_id: str) -> Writer:
        made = WithholdingWriter.__new__(WithholdingWriter)
        made._writer, made._close_ear = self._shared.open(run_id), lambda: None
        made.write = made._writer.write  # type: ignore[method-assign]
        return made


@pytest.mark.parametrize("silent", [False, True])
@pytest.mark.parametrize("retries", [0, 5])
def test_a_run_that_ends_does_not_wait_for_its_turn_and_has_not_failed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, retries: int, silent: bool
) -> None:
    """Nor does it append behind its end, when those come for whom it waited."""
    sink = replace(ef.sinks.table(str(tmp_path / "shop.db"), "out"), retries=retries)
    shared, said, waits = Shared(sink, "out", 99, 0), list[object](), threading.Semaphore(0)
    look = AppendingWriter._look

    def looks(self: AppendingWriter) -> None:
        look(self)
        waits.release()

    monkeypatch.setattr(AppendingWriter, "_look", looks)
    outlet = Outlet("out", Silenced(shared) if silent else shared, "traffic", Clock(), said.append, said.append)
    outlet.put(Finished(1, 0, rows(1).serialize(), rows(1).schema))
    for _ in range(3):
        assert waits.acquire(timeout=20)
    outlet.close()
    assert outlet.join(20)
    assert (said, outlet.error) == ([], None)
    first: Any = Shared(sink, "out", 0, 0).open("traffic")
    assert first._appender.last() == (0, 0)
    first.close()


def test_a_writer_that_is_interrupted_waits_no_more(region: Callable[[int], AppendingWriter]) -> None:
    last = region(99)
    threading.Timer(0.1, last.interrupt).start()
    with pytest.raises(RunOver):
        last.write(1, rows(1))
