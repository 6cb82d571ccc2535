"""Generated rows are functions of their numbers, and come when they are due."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from evenflow import sources
from evenflow.sources.generator import BLOCK_ROWS, zipf_ranks, zipf_ranks_once
from evenflow.sources.pace import Pace
from evenflow.sources.packets import ACK, CYCLE_ROWS, FIN, FIRST_EPHEMERAL, RST, SYN

from .reading import arrivals, read_all

PINNED = [[15678, 2215, 16320, 3804], [512, 561, 709, 907], 1075783628217958241]

GENERATORS = [
    sources.generator(rows=200_000, keys=1000),
    sources.generator(rows=200_000, keys=1000, distribution="zipf"),
    sources.packets(rate=None, rows=300_000),
]


@pytest.mark.parametrize("source", GENERATORS, ids=["uniform", "zipf", "packets"])
def test_rows_do_not_depend_on_how_they_are_asked_for(source: sources.Source) -> None:
    whole = read_all(source, 2, 3, max_rows=1 << 20)
    assert whole.num_rows == source.rows // 3  # type: ignore[attr-defined]
    for size in (977, BLOCK_ROWS):
        assert read_all(source, 2, 3, max_rows=size).equals(whole)


@pytest.mark.parametrize("source", GENERATORS, ids=["uniform", "zipf", "packets"])
def test_partitions_and_seeds_differ_and_rows_add_up(source: sources.Source) -> None:
    tables = [read_all(source, p, 3, max_rows=1 << 20) for p in range(3)]
    assert sum(t.num_rows for t in tables) == source.rows  # type: ignore[attr-defined]
    assert not tables[0].slice(0, 100).equals(tables[1].slice(0, 100))
    other = type(source)(**{**source.__dict__, "seed": 5})
    assert not read_all(other, 0, 3, max_rows=1 << 20).equals(tables[0])


def test_rows_have_eighty_bytes_and_no_nulls() -> None:
    batch = sources.generator().open(0, 1).read(0, 5000)
    assert batch is not None
    assert sum(f.type.bit_width for f in batch.schema) == 80 * 8
    assert all(column.null_count == 0 for column in batch.columns)
    batch.validate(full=True)
    value, price = batch["value"].to_numpy(), batch["price"].to_numpy()
    assert value.min() >= 0
    assert value.max() == 999
    assert price.min() >= 0
    assert 1000 < price.max() < 1024


def test_the_first_rows_are_pinned() -> None:
    """Content may never change between versions or machines: benchmarks and oracles compare by it."""
    batch = sources.generator(seed=7).open(2, 4).read(0, 4)
    assert batch is not None
    assert [batch["key"].to_pylist(), batch["value"].to_pylist(), batch["p0"][0].as_py()] == PINNED


def test_uniform_keys_are_uniform_and_zipf_keys_are_zipf() -> None:
    uniform = read_all(GENERATORS[0], max_rows=1 << 20)["key"].to_numpy()
    assert np.bincount(uniform, minlength=1000).min() > 120
    assert np.bincount(uniform, minlength=1000).max() < 290
    zipf = np.bincount(read_all(GENERATORS[1], max_rows=1 << 20)["key"].to_numpy(), minlength=1000) / 200_000
    weights = np.arange(1, 1001) ** -1.2
    assert np.abs(zipf - weights / weights.sum()).max() < 0.003
    assert len(zipf) == 1000


def test_the_guide_table_is_the_inverse_of_the_distribution() -> None:
    """Against the plain search, at the places where a table goes wrong: both sides of every boundary, and the ends."""
    keys = 5000
    cumulative = np.cumsum(np.arange(1, keys + 1) ** -1.2)
    cumulative /= cumulative[-1]
    edges = (cumulative * 2**53).astype(np.uint64)
    points = np.concatenate([edges - np.uint64(1), edges[:-1] + np.uint64(1), np.array([0], np.uint64)])
    expected = np.minimum(np.searchsorted(cumulative, points * 2.0**-53, side="right"), keys - 1)
    assert (zipf_ranks(points << np.uint64(11), keys, 1.2) == expected).all()
    assert (zipf_ranks_once(points << np.uint64(11), keys, 1.2) == expected).all()


@pytest.mark.parametrize("rate", [1, 3, 1000, 7919, 1_000_000, 3_000_000])
def test_a_rate_is_kept_without_drift(rate: int) -> None:
    """Row i is scheduled i intervals after the start, whoever has it and however late it is asked for."""
    paces = [Pace(rate, None, p, 4) for p in range(4)]
    start = 1_700_000_000_000_000
    assert [p.due(start, 10) for p in paces] == [1, 0, 0, 0]
    hour = start + 3_600_000_000
    due = [p.due(hour, 1 << 60) for p in paces]
    assert sum(due) == rate * 3600 + 1
    times = np.concatenate([np.stack([p.take(50)]) for p in paces]).T.ravel()
    assert times.tolist() == [start + i * 1_000_000 // rate for i in range(200)]
    late = Pace(rate, None, 3, 4)
    late.due(start, 1)
    late.next_row = century = rate * 100 * 365 * 86_400 // 4  # In small integers this would overflow.
    assert int(late.take(2)[1]) == start + ((century + 1) * 4 + 3) * 1_000_000 // rate


def test_a_reader_asks_to_be_woken_when_rows_are_due_but_not_for_every_row() -> None:
    reader = sources.generator(rate=10_000, rows=100).open(0, 1)
    seen = arrivals(reader, start_us=5_000_000)
    assert sum(rows for _, rows in seen) == 100
    assert 9 <= len(seen) <= 12  # Ten milliseconds of rows, once in a millisecond.
    slow = sources.generator(rate=2, rows=3).open(0, 1)
    assert arrivals(slow, start_us=0) == [(0, 1), (500_000, 1), (1_000_000, 1)]


def test_rows_are_never_early_and_carry_their_scheduled_time() -> None:
    reader = sources.packets(rate=1000).open(1, 2)
    for now_us in range(0, 2_000_000, 12_345):
        batch = reader.read(now_us, 1000)
        if batch is not None:
            assert max(batch["ts"].cast(pa.int64()).to_pylist()) <= now_us


@pytest.fixture(scope="module")
def traffic() -> pa.Table:
    return read_all(sources.packets(rate=None, rows=2 * CYCLE_ROWS), max_rows=1 << 20)


def test_sessions_open_carry_data_and_close(traffic: pa.Table) -> None:
    rows = traffic.to_pandas()
    rows["client"] = rows.src.where(rows.src.str.startswith("10."), rows.dst)
    rows["server"] = rows.dst.where(rows.src.str.startswith("10."), rows.src)
    rows["ephemeral"] = rows[["sport", "dport"]].max(axis=1)
    tcp = rows[rows.proto == 6]
    assert (tcp.ephemeral >= FIRST_EPHEMERAL).all()
    sessions = tcp.groupby(["client", "server", "ephemeral"], sort=False)[["tcp_flags", "src"]].agg(list)
    begun = [part for part in sessions.itertuples() if part.tcp_flags[0] == SYN and part.tcp_flags.count(SYN) == 1]
    for part in begun:  # Others began before the first packet, or two sessions had the same ports.
        count = min(len(part.src), 3)
        assert part.tcp_flags[:3] == [SYN, SYN | ACK, ACK][:count]
        assert [src.startswith("10.") for src in part.src[:3]] == [True, False, True][:count]
    whole = [part for part in begun if part.tcp_flags[-1] == RST or part.tcp_flags[-3:] == [FIN | ACK, FIN | ACK, ACK]]
    assert len(begun) > 0.9 * (tcp.tcp_flags == SYN).sum()
    assert len(whole) > 0.9 * len(begun)
    assert len(begun) > 4000


def test_traffic_is_mixed_and_skewed(traffic: pa.Table) -> None:
    rows = traffic.to_pandas()
    assert 0.1 < (rows.proto == 17).mean() < 0.4
    assert set(rows.proto) == {6, 17}
    assert (rows[rows.proto == 17].tcp_flags == 0).all()
    assert rows.length.min() >= 40
    assert rows.length.max() == 1500
    assert {22, 25, 53, 80, 123, 443, 993, 5432} <= set(rows.dport)
    pairs = rows.groupby(["src", "dst"]).size().sort_values()
    assert len(pairs) > 2000
    assert pairs.iloc[-1] > 50 * pairs.median()
    assert (rows.tcp_flags == RST).sum() > 50


def test_a_cycle_comes_back_as_new_sessions(traffic: pa.Table) -> None:
    first, second = traffic.slice(0, CYCLE_ROWS), traffic.slice(CYCLE_ROWS)
    assert first["src"].equals(second["src"])
    assert first["length"].equals(second["length"])
    tcp = np.asarray(first["proto"]) == 6
    ports = [np.asarray(turn["sport"])[tcp] + np.asarray(turn["dport"])[tcp] for turn in (first, second)]
    assert (ports[0] != ports[1]).all()


def test_a_pace_says_what_is_due_and_has_not_been_taken() -> None:
    """A thousand rows a second in two partitions: a reader that is not asked for 0.1 s is 50 rows behind, since the first was due."""
    pace = Pace(1_000, 200, 1, 2)
    assert pace.waiting(500) is None, "nobody has begun"
    assert pace.due(10_000, 100) == 0 and pace.waiting(10_000) == (0, None)
    assert pace.waiting(110_000) == (50, 11_000)
    pace.take(20)
    assert pace.waiting(110_000) == (30, 51_000) and pace.due(110_000, 100) == 30
    assert pace.waiting(10_000_000) == (80, 51_000), "no more than there are"
    assert Pace(None, 200, 1, 2).waiting(10_000) is None, "without a pace nothing is ever late"
