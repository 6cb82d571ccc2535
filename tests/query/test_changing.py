"""Joins of changelogs leave the join of what their inputs leave, wherever epochs are cut."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import evenflow as ef
from evenflow.errors import QueryError, TypeMismatch
from evenflow.query.planner import layout
from evenflow.site.options import FlowOptions
from evenflow.world.sim.world import SimWorld
from tests.drawn import one_in

COUNT = 60
Row = tuple[Any, ...]
Draw = Callable[[ef.Stream, ef.Stream], ef.Stream]


def table(seed: int) -> pa.Table:
    random = np.random.default_rng(seed)
    return pa.table({"k": [None if v == 6 else int(v) for v in random.integers(0, 7, COUNT)], "v": random.integers(-40, 50, COUNT)})


ONE, TWO = table(1), table(2)


def run(draw: Draw, epoch_rows: int) -> Counter[Row]:
    """What the changes leave; none takes back what is not there."""
    flow = ef.Dataflow("q")
    drawn = draw(*(flow.source(ef.sources.memory(rows), name=name) for name, rows in (("a", ONE), ("b", TWO))))
    drawn.to(ef.sinks.memory("out"), name="out")
    assert ef.Dataflow.from_json(flow.to_json()).to_json() == flow.to_json()
    options = FlowOptions(epoch_rows=epoch_rows, linger_ms=1)
    world = SimWorld(layout(flow.network, sites=3, partitions=4), sites=3, replicas=2, options=options, read_rows=epoch_rows)
    world.run_until_quiet()
    there: Counter[Row] = Counter()
    for *row, change in (tuple(row.values()) for row in world.output("out").to_pylist()):
        there[tuple(row)] += -1 if change in ("update_before", "delete") else 1
        assert there[tuple(row)] >= 0
    return +there


def totals(stream: ef.Stream) -> ef.Stream:
    return stream.group_by("k").agg(n="count(*)", s="sum(v)", mode="changelog")


def of_groups(rows: pa.Table) -> list[Row]:
    groups: dict[Any, list[int]] = {}
    for row in rows.to_pylist():
        groups.setdefault(row["k"], []).append(row["v"])
    return [(key, len(values), sum(values)) for key, values in groups.items()]


def answer(how: str, left: list[Row], right: list[Row], holds: Callable[[Row, Row], bool]) -> Counter[Row]:
    pairs = [(a, b) for a in left for b in right if a[0] is not None and a[0] == b[0] and holds(a, b)]
    nothing = (None, None, None)
    without = Counter(left) - Counter({a for a, _ in pairs}) if how != "right" else Counter()
    if how in ("semi", "anti"):
        return Counter({a for a, _ in pairs}) if how == "semi" else without
    found = Counter((*a, *b) for a, b in pairs)
    if how in ("left", "full"):
        found += Counter((*a, *nothing) for a in without)
    if how in ("right", "full"):
        found += Counter((*nothing, *b) for b in right if b not in {b for _, b in pairs})
    return found


@pytest.mark.parametrize("how", one_in(2, ["inner", "left", "full", "right", "anti", "semi"]))
def test_a_join_of_changes_leaves_the_join_of_what_they_leave(how: str) -> None:
    for more, holds in ((None, lambda a, b: True), ("l.s > r.s2", lambda a, b: a[2] > b[2])):

        def draw(one: ef.Stream, two: ef.Stream, more: str | None = more) -> ef.Stream:
            other = totals(two).select("_change", k2="k", n2="n", s2="s").select("k2", "n2", "s2", "_change")
            condition = "l.k = r.k2" + (f" and {more}" if more else "")
            return totals(one).join(other, condition=condition, how=how)

        wanted = answer(how, of_groups(ONE), of_groups(TWO), holds)
        assert wanted and run(draw, 1000) == wanted
        assert run(draw, 7) == wanted


def test_plain_rows_come_and_stay() -> None:
    """A row as often as it is there, beside a total that changes; what comes and goes in one epoch does nothing."""

    def draw(one: ef.Stream, two: ef.Stream) -> ef.Stream:
        return one.select("v").join(two.group_by().agg(n="count(*)", mode="changelog"), how="left", condition="l.v * 2 > r.n")

    wanted = Counter((v, COUNT if v * 2 > COUNT else None) for v in ONE["v"].to_pylist())
    assert run(draw, 5) == wanted
    assert run(draw, 1000) == wanted


def test_what_cannot_be_joined_so_is_refused_with_the_box() -> None:
    flow = ef.Dataflow("q")
    changes = totals(flow.source(ef.sources.memory(ONE), name="a"))
    maps = pa.table({"k": pa.array([1], pa.int64()), "m": pa.array([[(1, 2)]], pa.map_(pa.int64(), pa.int64()))})
    with pytest.raises(QueryError, match="no time of their own"):
        changes.join(changes.select("k", "_change", n2="n"), "k", within="1 minute")
    with pytest.raises(TypeMismatch, match="'m' is map"):
        changes.join(flow.source(ef.sources.memory(maps), name="b"), "k")
    with pytest.raises(QueryError, match="both sides have a column 'n'"):
        changes.join(changes, "k")
