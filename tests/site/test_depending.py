"""What begins again from a base puts out what it would have put out: it knows the rows, and what was left out beside them."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pytest

from evenflow.operator.facts import Facts
from evenflow.operator.gate import Gate
from evenflow.operator.totals.session_window import SessionWindowAggregate
from evenflow.operator.units import key_hashes
from evenflow.plan.layout import Keys
from evenflow.query.aggregates import AggCall, SessionWindow
from evenflow.site.depending import History, oldest_needed
from evenflow.stream.epoch import ALL_KEPT, NO_WATERMARK, Tick
from evenflow.stream.rows import Rows

TIME = pa.timestamp("us", "UTC")
SCHEMA = pa.schema([("k", pa.int64()), ("ts", TIME)])
GAP, DELAY, HALF, LAST, BACK = 12, 1, ALL_KEPT // 2, 100, 106
KEY = next(key for key in range(100) if key_hashes(pa.record_batch({"k": [key]}), ("k",))[0] >= HALF)
"""It is left out where half is kept."""


class Epoch(NamedTuple):
    rows: pa.RecordBatch
    newest: int
    kept: int


def epoch(number: int) -> Epoch:
    """Ten microseconds. KEY has a row in each up to BACK, and of those up to LAST half is kept. The newest row, which enters, is of another
    key each time."""
    at = 10 * number
    rows = [(1000 + number, at - 1)] if number <= LAST or number > BACK else [(KEY, at - 5), (1000 + number, at - 1)]
    batch = pa.record_batch([pa.array(column, field.type) for column, field in zip(zip(*rows), SCHEMA)], schema=SCHEMA)
    return Epoch(batch, at - 1, HALF if number <= LAST else ALL_KEPT)


class Sessions:
    """Of one site, from the end of an epoch on, which it begins with nothing."""

    def __init__(self, done: int = 0, watermark: int = NO_WATERMARK) -> None:
        call = AggCall("n", "count", None, pa.int64())
        self.totals = SessionWindowAggregate(SCHEMA, ("k",), (call,), window=SessionWindow("ts", GAP))
        self.gate = Gate(self.totals.schemas[0], ("k",), Keys(("k",), "ts"), GAP)
        self.facts = Facts.of([self.totals, self.gate])
        self.tick, self.history, self.came = Tick(done, 0, NO_WATERMARK, watermark), History(done), dict[int, list[tuple[int, ...]]]()

    def run(self, through: int) -> None:
        for number in range(self.tick.epoch + 1, through + 1):
            given, before = epoch(number), self.tick.watermark
            missed = given.newest if given.kept < ALL_KEPT else NO_WATERMARK
            lost = self.facts.losing(self.tick.lost, before, missed, given.kept)
            self.tick = Tick(number, number, before, given.newest - DELAY, kept=given.kept, newest=given.newest, missed=missed, lost=lost)
            rows = Rows(given.rows, np.zeros(given.rows.num_rows, np.int32), None)
            (out,) = self.gate.process(self.totals.process(rows, self.tick)[0], self.tick)
            self.history.add(self.tick)
            columns = [out.batch.column(name).cast(pa.int64()).to_pylist() for name in ("k", "window_start", "n")]
            self.came[number] = sorted(zip(*columns, strict=True))

    def oldest(self, tick: Tick) -> int:
        return oldest_needed(self.facts, tick, 0)


@pytest.mark.parametrize("safe", range(LAST - 2, BACK + 3))
def test_who_begins_again_holds_back_what_he_would_have_held_back(safe: int) -> None:
    """Goal: no session comes that misses rows since its partition has forgotten what was left out. Method: KEY's rows are left out until
    shortly before `safe`, and then come; its first session has lost its beginning, and the base of what was lost is behind that."""
    lives, end = Sessions(), BACK + 20
    lives.run(safe)
    lives.history.samples.append((safe, lives.oldest(lives.tick), lives.tick.watermark))
    base = lives.history.base(safe)
    lives.run(end)
    assert base is not None and safe - 20 < base[0] <= safe
    again = Sessions(*base)
    again.run(end)
    after = range(safe + 1, end + 1)
    assert [again.came[number] for number in after] == [lives.came[number] for number in after]
    assert KEY not in {key for of in lives.came.values() for key, *_ in of}


def test_a_base_is_no_older_where_nothing_was_left_out() -> None:
    lives = Sessions()
    lives.run(LAST + 3)
    assert lives.oldest(lives.tick) - lives.oldest(replace(lives.tick, lost=())) == -2 * GAP
