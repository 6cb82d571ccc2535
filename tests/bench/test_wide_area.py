"""What `evenflow bench wide-area` compares with, and how it judges gaps. The bench itself starts three clusters."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest

from evenflow.bench.region import PARTITIONS, Region, compared, expected, gap_ms
from evenflow.bench.wide_area import Struck, brings, by_region
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


def test_a_region_brings_the_rows_if_the_subscriber_and_the_bytes_say_so() -> None:
    assert brings(1, [10, 900, 20])
    assert not brings(0, [10, 900, 20]), "it brings heads"
    assert not brings(1, [900, 900, 20]), "one has come back, and both have brought rows lately"


def test_the_region_that_is_back_may_be_struck_again() -> None:
    """Goal: both events are told, with their gaps and with who brought how much, when they strike the same region, and when not."""
    cut, killed = Struck("cut", 0, 1.0, [90, 5, 5]), Struck("killed", 0, 2.0, [80, 6, 6])
    told = by_region([10.0, 40.0], [100, 7], [cut, killed], [160.0, 70.0])
    assert [(each["delay_ms"], each["fate"], each["gap_ms"], each["calm_bytes"]) for each in told] == [
        (10.0, "cut and killed", 160.0, 100),
        (40.0, "none", None, 7),
    ]
    assert told[0]["struck"] == [
        {"what": "cut", "gap_ms": 160.0, "brought_bytes": [90, 5, 5]},
        {"what": "killed", "gap_ms": 70.0, "brought_bytes": [80, 6, 6]},
    ]
    other = by_region([10.0, 40.0], [100, 7], [cut, replace(killed, region=1)], [160.0, 170.0])
    assert [(each["fate"], each["gap_ms"]) for each in other] == [("cut", 160.0), ("killed", 170.0)]
