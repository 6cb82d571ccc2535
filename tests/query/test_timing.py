"""Timers of processors that a network refuses when they are drawn."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

import evenflow as ef
from evenflow.errors import QueryError

SCHEMA = pa.schema([("ts", pa.timestamp("us")), ("k", pa.int64())])


class Quiet(ef.Processor):
    output = "k bigint"

    def __init__(self, time: Any = "event") -> None:
        self.time = time

    def open(self, store: Any) -> None:
        store.value("n", "bigint")
        store.timeout("quiet", "30 seconds", time=self.time)

    def process(self, key: tuple[Any, ...], rows: Any, state: Any) -> None:
        return None

    def expired(self, key: tuple[Any, ...], timer: ef.Timer, state: Any) -> None:
        return None


class Unheard(Quiet):
    expired = ef.Processor.expired  # type: ignore[assignment]


class UnheardArrays(ef.BatchProcessor):
    output = "k bigint"

    def open(self, store: Any) -> None:
        store.timer("alarm", time="processing")


class OnSitesOnly(Quiet):
    def open(self, store: Any) -> None:
        raise FileNotFoundError("a model that only sites have")


@pytest.fixture
def rows() -> ef.Stream:
    return ef.Dataflow("timing").source(ef.sources.memory([], schema=SCHEMA), name="rows")


@pytest.mark.parametrize(
    ("draw", "says"),
    [
        (
            lambda rows: rows.key_by("k").process(Quiet()),
            r"timer 'quiet' goes by event time, and the stream has no event time; add \.with_w",
        ),
        (
            lambda rows: rows.with_watermark("ts", "1 second").key_by("k").process(Quiet(), order="arrival"),
            "goes by event time, and its rows have to come in that order; leave out order='arrival', or declare it with time='processing'",
        ),
        (
            lambda rows: rows.key_by("k").process(Unheard("processing")),
            r"Unheard has the timers 'quiet'; define expired\(self, key, timer, state\) for them",
        ),
        (lambda rows: rows.key_by("k").process(UnheardArrays()), r"define expired\(self, timers, state\) for them"),
        (lambda rows: rows.process(Quiet("processing")), "without a key|key_by"),
    ],
)
def test_what_cannot_come_is_refused(rows: ef.Stream, draw: Callable[[ef.Stream], ef.Stream], says: str) -> None:
    with pytest.raises(QueryError, match=says):
        draw(rows)


def test_what_can_come_is_drawn(rows: ef.Stream) -> None:
    rows.key_by("k").process(Quiet("processing"), order="arrival")
    timed = rows.with_watermark("ts", "1 second").key_by("k")
    timed.process(Quiet())
    timed.process(OnSitesOnly())
