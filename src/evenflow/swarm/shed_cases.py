"""A source that brings more than sites can do, into outputs that can do without some of it: rows are left out, and told (decision 113).

What comes out must be what batch makes of the rows that the coordinators were told were kept, to the row; and what a protected output needs
is all there.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from random import Random
from typing import Any, Final

import numpy as np
import pyarrow as pa

import evenflow as ef
from evenflow.exchange.shedding import classes, staying
from evenflow.site.facts import RowsShed
from evenflow.stream.epoch import ALL_KEPT
from evenflow.stream.weight import WEIGHT
from evenflow.swarm.cases import Case, Complaint, Tables, differ, rows_of, too_much
from evenflow.swarm.estimated import ESTIMATES, Expected
from evenflow.swarm.late_checkers import Late

BEGIN_US: Final = 1_000_000
"""When virtual clocks begin."""
SECONDS: Final = 0.15
"""For so long rows are due."""
COLUMNS: Final = ["key", "value", "p0"]
ESTIMATED: Final = 0.5
WINDOW_US: Final = 20_000
LEAST: Final = 100
"""Rows of less value do not come into the first output."""


@dataclass
class Told:
    """What the coordinators of a run were told. worlds: its generations, in order. parts: all rows of the source, by partition. estimated:
    there are windows of estimates, too."""

    parts: Sequence[pa.RecordBatch]
    protected: bool
    estimated: bool = False
    worlds: list[Any] = field(default_factory=list)

    def watch(self, world: Any) -> None:
        self.worlds.append(world)
        world.observers = (*world.observers, Late(world))

    def said(self) -> dict[tuple[int, int], RowsShed]:
        """By partition and epoch. What a generation cut behind what was durable when it was lost, the next one has cut anew."""
        found: dict[tuple[int, int], RowsShed] = {}
        for world in self.worlds:
            durable, ledger = world.coordinator.beginning.durable, world.coordinator.ledger
            found = {at: each for at, each in found.items() if at[1] <= durable}
            told = {(each.partition, each.epoch): each for each in ledger}
            assert sum(ledger.totals().values()) == sum(sum(each.dropped) for each in told.values()), (
                "the total is not that of what was told"
            )
            for at in found.keys() & told.keys():
                assert found[at] == told[at], f"{found[at]} was made again as {told[at]}"
            found |= told
        return found

    def entered(self) -> list[pa.RecordBatch]:
        """The rows of the source but those that were left out, with how many each stands for, `WEIGHT`."""
        shed, stays = self.worlds[-1].layout.sheds.get("in"), [np.ones(part.num_rows, bool) for part in self.parts]
        weights = [np.ones(part.num_rows) for part in self.parts]
        ends = [0] * len(self.parts)
        for (partition, _), each in sorted(self.said().items()):
            assert shed is not None and not self.protected, "rows were left out that a protected output needs"
            assert each.first >= ends[partition], f"{each} begins before what was taken, {ends[partition]}"
            assert each.kept + sum(each.dropped) == each.taken - each.first, f"{each}: offered is not kept and dropped"
            ends[partition] = each.taken
            rows = self.parts[partition].slice(each.first, each.taken - each.first)
            of = classes(shed, rows)
            kept = staying("in", partition, np.arange(each.first, each.taken), of, each.keep)
            assert int(kept.sum()) == each.kept, f"{each}: {int(kept.sum())} rows would stay"
            stays[partition][each.first : each.taken] = kept
            weights[partition][each.first : each.taken] = ALL_KEPT / np.maximum(each.keep, 1)[of]
        rows_with = [part.append_column(WEIGHT, pa.array(each)) for part, each in zip(self.parts, weights, strict=True)]
        return [part.filter(pa.array(kept)) for part, kept in zip(rows_with, stays, strict=True)]

    def answers(self) -> dict[str, list[tuple[Any, ...]]]:
        """What each sink must have of a source that was read to its end."""
        rows = [row for part in self.entered() for row in zip(*part.select(COLUMNS).to_pydict().values(), strict=True)]
        return {"out": [row for row in rows if row[1] >= LEAST], "more": rows}

    def estimates(self) -> dict[tuple[int, datetime], Expected]:
        """Of each key and window: the rows it must have had, their values, their mean, and the errors of these."""
        found: dict[tuple[int, datetime], list[tuple[float, int]]] = defaultdict(list)
        for part in self.entered():
            for key, ts, value, weight in zip(*part.select(["key", "ts", "value", WEIGHT]).to_pydict().values(), strict=True):
                found[key, ts.replace(microsecond=ts.microsecond // WINDOW_US * WINDOW_US)].append((weight, value))
        return {at: Expected(of) for at, of in found.items()}

    def judge(self, tables: Tables) -> Complaint:
        answers = self.answers()
        if self.estimated and (said := self.judge_estimates(tables["estimates"])):
            return said
        return next((said for sink in answers if sink in tables and (said := differ(rows_of(tables[sink]), answers[sink]))), None)

    def judge_estimates(self, table: pa.Table) -> Complaint:
        wanted, found = self.estimates(), []
        for row in table.to_pylist():
            at = row["key"], row["window_start"]
            holds = at in wanted and wanted[at].holds(row)
            found.append((*at, *(wanted[at].row if holds else [row[name] for name in ESTIMATES])))
        said = differ(found, [(*at, *each.row) for at, each in wanted.items()])
        return None if said is None else f"of estimates {said}"

    def judge_part(self, tables: Tables) -> Complaint:
        answers = self.answers()
        return next((said for sink in answers if sink in tables and (said := too_much(rows_of(tables[sink]), answers[sink]))), None)


def shed(random: Random) -> Case:
    """Two outputs of one source, and in some runs estimates of windows. Of a third of the runs one is protected, and nothing may be left
    out."""
    partitions, rows = random.randint(1, 4), random.randint(400, 1_500)
    made = ef.sources.generator(int(rows / SECONDS), 50, rows=rows, partitions=partitions, seed=random.randrange(1_000)).begun(BEGIN_US)
    patience_ms = random.choice([4, 12, 40])
    worth: dict[str, Any] = {"value": ("value", [(0, 0.1), (1000, 1)])} if random.random() < 0.4 else {}
    latency: Any = [(f"{patience_ms} ms", 1), (f"{4 * patience_ms} ms", 0)]
    qos = ef.qos(latency=latency, **worth)
    protected = random.random() < 0.3
    flow = ef.Dataflow("shed")
    estimated = Random(f"estimates of {rows} rows of {partitions} partitions").random() < ESTIMATED
    stream = flow.source(made, name="in", weights=estimated)
    if estimated:
        windows = stream.with_watermark("ts", "0 seconds").group_by("key").window(f"{WINDOW_US} microseconds")
        guessed = windows.agg(n=ef.estimate("count(*)"), total=ef.estimate("sum(value)"), mean=ef.estimate("avg(value)"))
        guessed.to(ef.sinks.memory("estimates"), name="estimates", qos=ef.qos(latency=latency))
    stream.where(f"value >= {LEAST}").select(*COLUMNS).to(ef.sinks.memory("out"), name="out", qos=qos)
    stream.select(*COLUMNS).to(ef.sinks.memory("more"), name="more", qos=None if protected else qos)
    parts = [read_whole(made.open(p, partitions)) for p in range(partitions)]
    told = Told(parts, protected, estimated)
    return Case(flow, {"in": [part.num_rows for part in parts]}, told.judge, told.judge_part, cut=False, watch=told.watch)


def read_whole(reader: Any) -> pa.RecordBatch:
    """All rows of a partition."""
    batches = []
    while not reader.ended:
        batch = reader.read(2**60, 1_000_000)
        if batch is not None:
            batches.append(batch)
    return pa.concat_batches(batches)
