"""Rows of 64-bit columns go through one kernel to their groups, and come out as they do by the steps that all others take."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import numpy as np
import pyarrow as pa
import pytest

from evenflow.exchange.inbox import merge
from evenflow.exchange.routing import Pieces, Router, Split, gathered, key_groups_of, owners
from evenflow.plan.layout import FROM_COLUMN, HASH_COLUMN, Arc, Keyed, Layout, Port, Segment, Spread
from evenflow.plan.plan import Plan
from evenflow.stream.rows import Rows

SCHEMA = pa.schema([("k", pa.int64()), ("ts", pa.timestamp("us")), ("x", pa.float64()), ("u", pa.uint64())])
PRODUCERS, CONSUMERS = 3, 6
PLAN = Plan(0, 1, (((0,),) * PRODUCERS, ((0, 2), (1, 2), (0, 2), (1, 2), (0, 1), (0, 1))))


def layout_of(schema: pa.Schema, keys: tuple[str, ...], *, sensitive: bool = False) -> Layout:
    segments = (
        Segment(0, "in", "ingress", PRODUCERS, (), (0,), (), False, "src", None, schema),
        Segment(1, "out", "egress", CONSUMERS, (0,), (), (), sensitive, None, None, schema),
    )
    return Layout("t", segments, (Arc(0, 0, 1, Port(-1), schema, Keyed(keys)),), {"src": None}, {})


def made_of(rng: Random, count: int, *, nulls: bool = False) -> pa.RecordBatch:
    """A slice, whose columns begin elsewhere in memory."""
    rows = [
        (rng.randint(-5, 5), rng.randint(0, 9), rng.choice([0.0, -0.0, float("nan"), rng.random()]), rng.getrandbits(64))
        for _ in range(count + 3)
    ]
    columns = [pa.array([row[at] for row in rows], field.type) for at, field in enumerate(SCHEMA)]
    if nulls:
        columns[1] = pa.array([None if row[1] == 4 else row[1] for row in rows], SCHEMA.field(1).type)
    return pa.RecordBatch.from_arrays(columns, schema=SCHEMA).slice(2, count)


def same(one: Pieces, other: Pieces) -> bool:
    assert one.rows is not None and other.rows is not None
    owners = [None if each.owner is None else each.owner.tolist() for each in (one, other)]
    alike = [repr(each.rows.to_pydict()) for each in (one, other)]  # NaN is not equal to itself.
    return alike[0] == alike[1] and one.rows.schema == other.rows.schema and one.bounds == other.bounds and owners[0] == owners[1]


@pytest.mark.parametrize("sensitive", [False, True])
@pytest.mark.parametrize("keys", [("k",), ("x", "k"), ("ts", "u")])
def test_one_pass_gives_what_the_steps_give(keys: tuple[str, ...], sensitive: bool) -> None:
    layout = layout_of(SCHEMA, keys, sensitive=sensitive)
    router, split, rng = Router.of(layout.arcs[0], layout), Split.of(layout.arcs[0], layout, PLAN), Random(3)
    assert router.words == (*SCHEMA.types, pa.uint64()) and len(split.groups) == 3
    for count in (1, 2, 7, 300):
        for producers in ((1,), (0, 1, 2)):
            rows = Rows(made_of(rng, count), np.array([rng.choice(producers) for _ in range(count)], np.int32))
            found = router.split(rows, split, producers, 1)
            assert same(found, replace(router, words=()).split(rows, split, producers, 1))
            assert found.rows is not None and found.rows.column(HASH_COLUMN).null_count == 0
            assert (FROM_COLUMN in found.rows.schema.names) == sensitive
            found.rows.validate(full=True)
            for start, end in zip(found.bounds, found.bounds[1:], strict=False):  # What is sent is a slice of it.
                sent = pa.ipc.read_record_batch(found.rows.slice(start, end - start).serialize(), router.schema)
                assert repr(sent.to_pydict()) == repr(found.rows.slice(start, end - start).to_pydict())


def test_what_has_nulls_or_other_columns_takes_the_steps() -> None:
    layout, rng = layout_of(SCHEMA, ("k",)), Random(4)
    router, split = Router.of(layout.arcs[0], layout), Split.of(layout.arcs[0], layout, PLAN)
    rows = Rows(made_of(rng, 50, nulls=True), np.zeros(50, np.int32))
    assert rows.batch.column(1).null_count
    found = router.split(rows, split, (0, 1), 1)
    assert same(found, replace(router, words=()).split(rows, split, (0, 1), 1)) and found.rows is not None
    assert found.rows.column("ts").null_count == rows.batch.column(1).null_count
    for other in (SCHEMA.append(pa.field("name", pa.string())), SCHEMA.append(pa.field("small", pa.int32()))):
        assert not Router.of(layout_of(other, ("k",)).arcs[0], layout_of(other, ("k",))).words
    spread = layout_of(SCHEMA, ("k",))
    spread = replace(spread, arcs=(replace(spread.arcs[0], route=Spread()),))
    assert not Router.of(spread.arcs[0], spread).words


@pytest.mark.parametrize("sensitive", [False, True])
def test_what_came_is_gathered_as_it_is_merged_and_looked_up(sensitive: bool) -> None:
    """Bundles that come in the order of their producers, and others; of one producer, and of several."""
    layout = layout_of(SCHEMA, ("k",), sensitive=sensitive)
    arc, groups, rng = layout.arcs[0], key_groups_of(PLAN, layout.segments[1]), Random(5)
    router, split = Router.of(arc, layout), Split.of(arc, layout, PLAN)
    for producers in ([[0], [1, 2]], [[2], [0]], [[0, 2], [1]], [[1]], [[0], [0]]):
        batches = []
        for some in producers:
            partition = np.array([rng.choice(some) for _ in range(9)], np.int32)
            rows = router.split(Rows(made_of(rng, 9), partition), split, tuple(some), 1).rows
            assert rows is not None
            batches.append(rows)
        merged = merge(tuple(batches))
        batch, partition, hashes = gathered(tuple(batches), arc, groups, CONSUMERS)
        expected, expected_hashes = owners(merged, arc, groups, CONSUMERS)
        assert expected_hashes is not None and hashes is not None
        assert batch.schema == SCHEMA and repr(batch.to_pydict()) == repr(merged.select(range(len(SCHEMA))).to_pydict())
        assert partition.tolist() == expected.tolist() and hashes.tolist() == expected_hashes.tolist()
