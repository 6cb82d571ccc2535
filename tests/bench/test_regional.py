"""What a subscriber of regions must be given, and the demo in which a driver is killed, on bare site processes."""

from __future__ import annotations

import json

import pytest

from evenflow.bench.regional import SOURCE_PARTITIONS, Region, compare
from evenflow.cli.output import Output
from evenflow.cli.regional import regions

REGION = Region(4001, "g", 1_700_000_000.0, 1000, 500)


def test_what_must_come_is_every_row_once() -> None:
    expected = REGION.expected()
    newest: dict[int, tuple[int, int]] = {}
    for (_, key), totals in sorted(expected.items()):
        newest[key] = totals
    assert sum(count for count, _ in newest.values()) == REGION.rows
    assert {epoch for epoch, _ in expected} == set(range(1, 11)), "half a second in epochs of 50 ms"
    assert SOURCE_PARTITIONS == 2


def test_rows_that_are_lost_repeated_or_wrong_are_counted() -> None:
    expected = REGION.expected()
    got = [(epoch, {"key": key, "n": n, "s": s}) for (epoch, key), (n, s) in sorted(expected.items())]
    assert compare(expected, got, 10) == {"rows": len(expected), "lost": 0, "repeated": 0, "wrong": 0}
    assert compare(expected, got[1:], 10)["lost"] == 1
    assert compare(expected, [*got, got[-1]], 10)["repeated"] == 1
    assert compare(expected, [*got[:-1], (got[-1][0], {**got[-1][1], "n": 0})], 10)["wrong"] == 1
    first = [each for each in got if each[0] == 1]
    assert compare(expected, first, 1) == {"rows": len(first), "lost": 0, "repeated": 0, "wrong": 0}


@pytest.mark.conformance
@pytest.mark.timeout(150)
def test_a_driver_dies_and_the_output_goes_on(capfd: pytest.CaptureFixture[str]) -> None:
    with Output(as_json=True) as output:
        code = regions(2, 6.0, 1000, 2, output, bare=True)
    said = json.loads(capfd.readouterr().out)
    assert code == 0 and said["compared"]["rows"] > 1000
    assert said["gap_ms"] < 1000.0
