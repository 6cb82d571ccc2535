"""What regions have written together is read back as rows, from files and a topic as from a table."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.kafka import broker

from evenflow.bench.kafka_broker import KafkaBroker
from evenflow.bench.regional import Region
from evenflow.bench.regional_sinks import SINKS, TOPIC, Shared, compare_rows, shared
from evenflow.world.spark.regions.appending import Shared as Opened

__all__ = ["broker"]
EXPECTED = Region(4001, "g", 1_700_000_000.0, 1000, 300).expected()
LAST = 4


def write(where: Shared, places: tuple[int, ...] = (0, 1)) -> None:
    """Epoch by epoch, all regions, one after the other."""
    sinks = dict(Region(4001, "g", 0.0, 1, None, **where.given()).shared())
    writers: list[Any] = [Opened(sink, name, place, 0).open("g") for name, sink in sinks.items() for place in places]
    for epoch in range(1, LAST + 1):
        keys = [(key, n, s) for (at, key), (n, s) in sorted(EXPECTED.items()) if at == epoch]
        if keys:
            key, n, s = zip(*keys, strict=True)
            for writer in writers:
                writer.write(epoch, pa.record_batch({"key": key, "n": n, "s": s}))
    for writer in writers:
        writer.close()


def judged(where: Shared) -> dict[str, dict[str, int]]:
    lasts = where.last_epochs("g")
    return {name: compare_rows(rows, lasts[name], EXPECTED) for name, rows in where.rows("g")}


def right() -> dict[str, int]:
    return {"rows": sum(epoch <= LAST for epoch, _ in EXPECTED), "lost": 0, "repeated": 0, "wrong": 0}


def test_files_have_each_epoch_once_and_a_file_that_is_gone_is_missed(tmp_path: Path) -> None:
    with shared(("parquet",), tmp_path) as where:
        assert where.database is None and where.servers is None
        write(where)
        assert judged(where) == {"parquet": right()}
        files = sorted(Path(str(where.folder)).rglob("*.parquet"))
        lasts = where.last_epochs("g")
        files[1].unlink()
        found = dict(where.rows("g"))["parquet"]
        assert compare_rows(found, lasts["parquet"], EXPECTED)["lost"] > 0


@pytest.mark.conformance
@pytest.mark.timeout(150)
def test_a_topic_has_each_epoch_once(broker: KafkaBroker) -> None:
    pytest.importorskip("confluent_kafka")
    broker.create_topic(TOPIC, 1)
    where = Shared(servers=broker.address)
    write(where)
    assert judged(where) == {"kafka": right()}


def test_every_name_is_a_sink_of_the_dataflow(tmp_path: Path) -> None:
    region = Region(4001, "g", 0.0, 1, None, database=str(tmp_path / "rows.sqlite"), folder=str(tmp_path), servers="127.0.0.1:9092")
    assert tuple(name for name, _ in region.shared()) == SINKS
    assert {box.name for box in region.dataflow().network.of_kind("sink")} == {"totals", *SINKS}
