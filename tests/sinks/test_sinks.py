"""The direct sinks: descriptions travel, writers keep epochs in order, once each."""

from __future__ import annotations

import pickle

import pyarrow as pa
import pytest

from evenflow import sinks
from evenflow.errors import QueryError
from evenflow.sinks.callback import table_text

BATCH = pa.record_batch({"a": [1, None, 3], "text": ["x", "y", "long"]})


@pytest.mark.parametrize(
    "sink",
    [
        sinks.parquet("/p", commit_interval_ms=5, writers=3, retries=1),
        sinks.memory("m"),
        sinks.console(3, "stderr"),
        sinks.discard(),
        sinks.spark(),
    ],
    ids=lambda s: s.kind,
)
def test_a_description_survives_json_and_pickle(sink: sinks.Sink) -> None:
    assert sinks.from_json(sink.to_json()) == sink
    assert pickle.loads(pickle.dumps(sink)) == sink


def test_where_sinks_live_and_what_they_promise() -> None:
    kinds = [sinks.parquet("/p"), sinks.memory(), sinks.callback(print), sinks.console(), sinks.discard(), sinks.spark()]
    assert [s.where for s in kinds] == ["site", "driver", "driver", "driver", "none", "spark"]
    assert [s.at_least_once for s in kinds] == [False, False, True, True, False, False]
    assert all(s.retries == 5 and s.backoff_ms == 100 for s in kinds)


def test_memory_keeps_epochs_in_order_once_each() -> None:
    sink = sinks.memory()
    assert sink.rows().num_rows == 0
    writer = sink.open("r")
    for epoch in (1, 3, 3, 2):  # 3 is offered again after a failure, 2 is a mistake of the past.
        writer.write(epoch, BATCH)
    assert [epoch for epoch, _ in sink.epochs()] == [1, 3]
    assert sink.rows().equals(pa.Table.from_batches([BATCH, BATCH]))
    sink.open("another run")
    assert sink.epochs() == []


def test_two_memory_sinks_without_a_name_are_two() -> None:
    assert sinks.memory() != sinks.memory()


def test_a_callback_is_called_with_epoch_and_rows_and_its_error_is_the_callers() -> None:
    seen: list[tuple[int, int]] = []
    writer = sinks.callback(lambda epoch, batch: seen.append((epoch, batch.num_rows))).open("r")
    writer.write(7, BATCH)
    assert seen == [(7, 3)]
    with pytest.raises(ZeroDivisionError):
        sinks.callback(lambda epoch, batch: 1 / 0).open("r").write(1, BATCH)


def test_a_callback_has_no_json_form() -> None:
    with pytest.raises(QueryError, match="callback"):
        sinks.callback(print).to_json()


def test_the_console_shows_the_first_rows(capsys: pytest.CaptureFixture[str]) -> None:
    writer = sinks.console(2, "stderr").open("r")
    writer.write(4, BATCH)
    writer.write(5, BATCH.slice(0, 0))
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err == "epoch 4: 3 rows\na     text\n1     x\nnull  y\n... 1 more\n"
    assert table_text(1, BATCH.slice(0, 1), 9).splitlines() == ["epoch 1: 1 rows", "a  text", "1  x"]
    far = pa.record_batch({"at": pa.array([10**18, 0], pa.timestamp("us"))})
    assert table_text(1, far, 9).splitlines()[2:] == ["+33658-09-27T01:46:40", "1970-01-01 00:00:00"]


def test_wrong_numbers_are_refused_when_built() -> None:
    with pytest.raises(QueryError, match="give a whole number, 1 to"):
        sinks.parquet("/p", commit_interval_ms=0)
    with pytest.raises(QueryError, match="unknown kind 'odd'"):
        sinks.from_json({"kind": "odd"})


def test_memory_keeps_what_a_generation_before_has_put_there() -> None:
    """Where each generation is another run to sinks, it begins with numbers that were there before; another run begins empty."""
    sink = sinks.memory("generations")
    batch = pa.record_batch({"a": [1]})
    for run, epochs in (("r.g1", (1, 2, 2, 3)), ("r.g2", (2, 3, 3))):
        writer = sink.open(run)
        for epoch in epochs:
            writer.write(epoch, batch)
    assert [epoch for epoch, _ in sink.epochs()] == [1, 2, 3, 2, 3]
    sink.open("r.g2")
    assert sink.epochs() == []
    sink.open("r.g3").write(1, batch)
    sink.open("s.g4")
    assert sink.epochs() == []
