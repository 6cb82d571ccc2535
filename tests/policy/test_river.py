"""River: who is busy gets fewer of the rows that may go anywhere."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa

from evenflow.plan.layout import Arc, Dealt, Layout, Port, Segment
from evenflow.policy.catalogue import described
from evenflow.policy.river import WHOLE, Weights, river
from tests.policy.windows import hosting, site, statistics

OWN = described("evenflow").parameters
NOTHING = pa.schema([("v", pa.int64())])
SOURCE = Segment(0, "in", "ingress", 1, (), (0,), (), source="in", schema=NOTHING)
ANYWHERE = Segment(1, "anywhere", "inner", 4, (0,), (), (), schema=NOTHING)
LAYOUT = Layout("river", (SOURCE, ANYWHERE), (Arc(0, 0, 1, Port(-1), NOTHING, Dealt()),), {}, {})
EVEN = (100, 100, 100, 100)


def round_of(busy: tuple[float, ...], now: tuple[int, ...] = (), **other: object) -> Weights:
    """Partition p is at site p, unless `replicas` says otherwise."""
    seen = statistics([site(number, share, {number: 1000}) for number, share in enumerate(busy)])
    parameters = replace(OWN, **other.pop("parameters", {}))  # type: ignore[arg-type]
    found, said = river(seen, hosting(seen, **other), parameters, LAYOUT, ((), now) if now else ())
    assert bool(said) == (found != (((), now) if now else ()))
    return found


def test_a_slow_site_gets_fewer_rows_until_all_are_as_busy() -> None:
    """The closed loop: one of four sites needs three times as long for a row, and what comes in keeps the busiest one busy."""
    cost, now = (1.0, 1.0, 1.0, 3.0), EVEN
    for _ in range(8):
        load = [weight * each for weight, each in zip(now, cost, strict=True)]
        found = round_of(tuple(each / max(load) for each in load), now)
        now = found[1]
    shares = [weight / sum(now) for weight in now]
    assert max(abs(share - ideal) for share, ideal in zip(shares, (0.3, 0.3, 0.3, 0.1), strict=True)) < 0.01


def test_weights_of_equally_busy_sites_stay() -> None:
    assert round_of((0.8, 0.8, 0.79, 0.8)) == ()
    assert round_of((0.8, 0.8, 0.79, 0.8), EVEN) == ((), EVEN)
    assert round_of((0.01, 0.02, 0.04, 0.01), EVEN) == ((), EVEN), "what does next to nothing is left alone"


def test_a_weight_changes_by_a_bounded_factor_and_never_to_nothing() -> None:
    _, found = round_of((1.0, 0.0, 0.0, 0.0), EVEN)
    assert abs(found[0] * 4 - found[1]) <= 4 and found[1] == found[2] == found[3]
    now = EVEN
    for _ in range(40):
        now = round_of((1.0, 0.1, 0.1, 0.1), now)[1]
    assert now[0] == WHOLE // (4 * 64)


def test_the_busiest_replica_counts() -> None:
    replicas = {(1, 0): (0, 2), (1, 1): (1, 3), (1, 2): (0, 2), (1, 3): (1, 3)}
    _, found = round_of((0.4, 0.4, 0.4, 0.9), EVEN, replicas=replicas)
    assert found[0] == found[2] > found[1] == found[3]


def test_where_every_partition_is_at_the_busiest_site_weights_stay() -> None:
    replicas = {(1, p): tuple(sorted({p, 3})) for p in range(4)}
    assert round_of((0.4, 0.4, 0.4, 0.9), replicas=replicas) == ()


def test_without_a_word_of_every_site_nothing_changes() -> None:
    assert round_of((1.0, 0.1, 0.1, 0.1), EVEN, replicas={(1, p): (p + 1,) for p in range(4)}) == ((), EVEN)
    assert round_of((1.0, 0.1, 0.1, 0.1), EVEN, replicas={(1, p): (p,) if p else () for p in range(4)}) == ((), EVEN)


def test_the_threshold_is_that_of_the_policy() -> None:
    assert round_of((0.5, 0.4, 0.4, 0.4), EVEN, parameters={"th_imb": 1.5}) == ((), EVEN)
    assert round_of((0.5, 0.4, 0.4, 0.4), EVEN, parameters={"th_imb": 1.1}) != ((), EVEN)
