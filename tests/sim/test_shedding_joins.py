"""Joins before which rows are left out: of both sides by the key, so that who stays has his partners."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa

import evenflow as ef
from evenflow.operator.units import key_hashes
from evenflow.query.planner import layout
from evenflow.site.options import FlowOptions
from evenflow.swarm.checkers import Checkers
from evenflow.swarm.shed_cases import read_whole
from evenflow.world.sim.model import CostModel
from evenflow.world.sim.world import SimWorld

SITES, CAN, KEYS, WITHIN_US = 3, 12_000, 400, 20_000
"""CAN: rows of both sides per second that the sites can do."""
QOS = ef.qos(latency=[("100 ms", 1), ("1 s", 0)])
Pair = tuple[int, int, int]


class Joined:
    """Two sources of half of the load each, whose rows of a key are put together if the left one comes within 20 ms of the right one."""

    def __init__(self, load: float, seconds: float, **given: Any) -> None:
        rate = int(load * CAN / 2)
        made = [ef.sources.generator(rate, KEYS, rows=int(rate * seconds), partitions=SITES, seed=seed) for seed in (5, 6)]
        self.sources = [each.begun(1_000_000) for each in made]
        self.parts = [[read_whole(each.open(p, SITES)) for p in range(SITES)] for each in self.sources]
        flow, sides = ef.Dataflow("joined"), []
        for name, source in zip(("one", "other"), self.sources, strict=True):
            sides.append(flow.source(source, name=name).select("key", "value", "ts").with_watermark("ts", "0 seconds"))
        near = f"l.key = r.key and l.ts between r.ts and r.ts + interval {WITHIN_US // 1000} milliseconds"
        pairs = sides[0].join(sides[1], condition=near, suffix="_r")
        pairs.select("key", "ts", "ts_r").to(ef.sinks.memory("out"), name="out", qos=QOS)
        self.planned = layout(flow.network, sites=SITES, partitions=12)
        cost = CostModel(row_us=SITES * 1e6 / CAN / given.get("replicas", 1), free=frozenset({"egress", "inner"}))
        options = FlowOptions(shedding="reflex", heartbeat_ms=50.0)
        settled = {"sites": SITES, "cost": cost, "options": options, "read_rows": 20_000, "read_every_us": (500, 1_500), "seed": 7} | given
        self.world = SimWorld(self.planned, **settled)
        Checkers(self.world)

    def finish(self) -> None:
        while not self.world.ended:
            self.world.run_for(0.1)
            assert self.world.now_us < 60_000_000
        if self.world.error is not None:
            raise self.world.error

    def came(self) -> set[Pair]:
        out = self.world.output("out")
        rows = list(zip(*(_whole(out.column(name)) for name in ("key", "ts", "ts_r")), strict=True))
        assert len(set(rows)) == len(rows)
        return set(rows)

    def pairs(self) -> set[Pair]:
        """All that there would be."""
        return set(self._pairs())

    def _pairs(self) -> Iterator[Pair]:
        sides = [pa.Table.from_batches([part.select(["key", "ts"]) for part in parts]) for parts in self.parts]
        (keys, times), (others, marks) = ((np.array(_whole(side["key"])), np.array(_whole(side["ts"]))) for side in sides)
        for key in range(KEYS):
            for mark in marks[others == key].tolist():
                near = times[(keys == key) & (times >= mark) & (times <= mark + WITHIN_US)]
                yield from ((key, time, mark) for time in near.tolist())


def _whole(column: Any) -> list[int]:
    found: list[int] = (column.cast(pa.timestamp("us")).cast(pa.int64()) if pa.types.is_timestamp(column.type) else column).to_pylist()
    return found


def test_pairs_that_come_would_have_come_and_keys_stay_on_both_sides() -> None:
    """Goal: kappa of the pairs come and not kappa squared. Method: twice what can be done, for which each side keeps about half."""
    run = Joined(2.0, 1.0)
    run.finish()
    came, whole = run.came(), run.pairs()
    assert came and came <= whole
    ledger = run.world.coordinator.ledger
    kept, dropped = sum(each.kept for each in ledger), sum(sum(each.dropped) for each in ledger)
    share = kept / (kept + dropped)
    assert dropped and 0.3 < share < 0.75
    since = min(each.first for each in ledger)
    assert len(came) / len(whole) > 0.8 * share > 1.2 * share**2, f"{len(came)} of {len(whole)} pairs, {share} of the rows, from {since} on"
    least = min(min(each.keep) for each in ledger)
    keys = pa.record_batch({"key": pa.array([each[0] for each in sorted(whole - came)], run.parts[0][0].schema.field("key").type)})
    assert (key_hashes(keys, ("key",)) >= least).all()


def test_who_dies_changes_no_pair() -> None:
    run = Joined(2.0, 1.0, replicas=2)
    run.world.run_for(0.25)
    run.world.kill(0)
    run.world.add_site()
    run.finish()
    assert run.came() <= run.pairs() and run.world.coordinator.ledger.totals()
