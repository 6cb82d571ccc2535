"""What a run has left out of a source comes once more, to the row, and nothing else."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import evenflow as ef
from evenflow.coordinator.ledger import Ledger, shed_table
from evenflow.errors import QueryError
from evenflow.exchange.shedding import ALL, classes, staying
from evenflow.plan.layout import Layout
from evenflow.query.planner import layout
from evenflow.site.facts import RowsShed
from evenflow.sources.source import Source, place

ROWS, PARTITIONS = 3_000, 3


def described(source: Source, **qos: Any) -> Layout:
    flow = ef.Dataflow("dropped")
    worth = ef.qos(latency=[("100 ms", 1), ("1 s", 0)], **qos)
    flow.source(source, name="in").select("key", "value").to(ef.sinks.memory("out"), name="out", qos=worth)
    return layout(flow.network, sites=PARTITIONS)


def made(rate: int | None) -> Source:
    return ef.sources.generator(rate, 100, rows=ROWS, partitions=PARTITIONS, seed=4).begun(1_000_000)


def whole(source: Source, partition: int, skip: int = 0, at_once: int = 70) -> pa.Table:
    reader, batches = place(source.open(partition, PARTITIONS), skip), []
    while not reader.ended:
        if (batch := reader.read(2**60, at_once)) is not None:
            batches.append(batch)
    return pa.Table.from_batches(batches, source.schema)


@pytest.mark.parametrize("worth", [{}, {"value": ("value", [(0, 0.1), (1000, 1)])}])
def test_what_was_left_out_and_nothing_else(worth: dict[str, Any]) -> None:
    """Goal: kept and dropped rows are the source. Method: epochs of which shares by class stay, with gaps; what the reader gives is what
    the rule of `exchange.shedding` leaves out, and whoever goes on in its middle gives the rest."""
    planned, ledger = described(made(1_000), **worth), Ledger()
    shed = planned.sheds["in"]
    expected: dict[int, pa.Table] = {}
    for partition in range(PARTITIONS):
        part, gone = whole(made(None), partition), []
        for epoch, first in enumerate(range(100, 900, 200), 1):
            end = first + 150
            keep = tuple(int(ALL * (0.3 + 0.05 * number) / epoch) for number in range(len(shed.classes)))
            rows = part.slice(first, 150).combine_chunks().to_batches()[0]
            of = classes(shed, rows)
            stays = staying("in", partition, np.arange(first, end), of, keep)
            gone.append(rows.filter(pa.array(~stays)))
            dropped = tuple(np.bincount(of[~stays], minlength=len(keep)).tolist())
            ledger.take(RowsShed(0, partition, epoch, first, end, keep, int(stays.sum()), dropped, 5))
        expected[partition] = pa.Table.from_batches(gone)
    again = ef.sources.dropped(made(None), shed_table(planned, ledger))
    assert again.partitions(99) == PARTITIONS and not again.tells_due
    for partition, table in expected.items():
        assert table.num_rows > 100 and whole(again, partition).equals(table)
        assert whole(again, partition, skip=57, at_once=9).equals(table.slice(57))


def test_what_cannot_be_read_again_is_refused() -> None:
    planned, ledger = described(made(1_000)), Ledger()
    ledger.take(RowsShed(0, 1, 3, 10, 20, (ALL // 2,), 5, (5,), 5))
    table = shed_table(planned, ledger)
    with pytest.raises(QueryError, match="has a pace"):
        ef.sources.dropped(made(1_000), table)
    with pytest.raises(QueryError, match="nothing can have been left out of 'other'"):
        ef.sources.dropped(made(None), table, of="other")
    with pytest.raises(QueryError, match="metadata"):
        ef.sources.dropped(made(None), table.replace_schema_metadata({}))
    with pytest.raises(QueryError, match="no source"):
        ef.sources.dropped(3, table)  # type: ignore[arg-type]
    assert whole(ef.sources.dropped(made(None), shed_table(planned, Ledger())), 0).num_rows == 0
