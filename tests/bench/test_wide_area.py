"""What `evenflow bench wide-area` compares with, and how it judges gaps. The bench itself starts three clusters."""

from __future__ import annotations

from collections import Counter

import pytest

from evenflow.bench.region import PARTITIONS, Region, compared, expected, gap_ms
from evenflow.bench.wide_area import leading
from evenflow.sources.cut import cut_by_content

BEGIN_US = 1_700_000_000_000_000
REGION = Region("spark://nowhere:1", 4001, "g", width_ms=50.0, rate=400)


def test_what_must_come_is_cut_as_the_engine_cuts_it() -> None:
    """The epochs here are computed from the rows' times; those of the engine come with the rows."""
    source = cut_by_content(REGION.source(), width_ms=REGION.width_ms).begun(BEGIN_US)
    keys: Counter[tuple[int, int]] = Counter()
    for partition in range(PARTITIONS):
        reader = source.open(partition, PARTITIONS)
        batch = reader.read(BEGIN_US + 40 * 50_000, 10_000)
        assert batch is not None
        keys.update(zip(batch.column("_epoch").to_pylist(), batch.column("key").to_pylist()))
    found = expected(REGION, BEGIN_US, 40)
    assert {(epoch, key) for epoch, key, _ in found} == {each for each in keys if each[0] <= 40}
    last = {key: max(n for _, of, n in found if of == key) for _, key, _ in found}
    assert sum(last.values()) == sum(count for (epoch, _), count in keys.items() if epoch <= 40) > 700


def test_rows_that_are_missing_and_rows_that_come_twice_are_counted() -> None:
    wanted = expected(REGION, BEGIN_US, 5)
    got = wanted.copy()
    assert compared(got, wanted) == {"rows_compared": wanted.total(), "rows_lost": 0, "rows_repeated": 0}
    one, other = sorted(wanted)[:2]
    del got[one]
    got[other] += 1
    got[6, 1, 1] += 1
    assert compared(got, wanted) == {"rows_compared": wanted.total(), "rows_lost": 1, "rows_repeated": 2}


@pytest.mark.parametrize(
    ("times", "gap"),
    [
        ([0.0, 1.0, 2.0, 2.25, 3.0], 1_000.0),
        ([0.0, 1.0, 2.9], 1_900.0),
        ([0.0, 1.0], 2_000.0),
        ([0.0, 1.5, 2.0, 2.5, 3.0, 9.0], 500.0),
    ],
)
def test_a_gap_that_goes_on_counts_too(times: list[float], gap: float) -> None:
    """Of what ends behind 1.6 and before 3."""
    assert gap_ms(times, 1.6, 3.0) == pytest.approx(gap)


def test_the_region_with_most_bytes_brings_the_rows() -> None:
    assert leading([10, 900, 20]) == 1 and leading([10, 900, 20], besides=1) == 2
