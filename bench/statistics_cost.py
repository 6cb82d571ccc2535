"""What statistics cost: `python bench/statistics_cost.py [--quick]`.

The work of one site's epochs (`Work.run`: a filter and a partial count at the ingress, the exchange's split, and a count and sum per key
over 64 of 256 partitions) with its rows and times counted and without, on the same rows and the same state, in one process: every few
epochs it is another one's turn. A round's figure is the first decile of its turns' CPU times, which is what other processes disturb least;
the result is the median of the rounds' ratios, and beside it stands what the same measurement says of no difference at all. Then what the
window of a report costs.

Without means: no clock is read, no step is noted, no row is counted; a few empty calls per epoch (0.2 us) remain. Prints a table and writes
bench/results/statistics_cost.json.
"""

from __future__ import annotations

import gc
import json
import os
import platform
import sys
import time
import timeit
from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path
from statistics import median
from typing import Any, cast

import numpy as np
import pyarrow as pa

import evenflow as ef
from evenflow.exchange.routing import Split
from evenflow.operator.operator import Operator
from evenflow.plan.layout import Layout
from evenflow.plan.placement import first_membership
from evenflow.plan.plan import Plan
from evenflow.query.planner import layout
from evenflow.site.ground import Setup
from evenflow.site.hosted import Hosted, Results, Work
from evenflow.site.machine import SiteMachine
from evenflow.site.options import FlowOptions
from evenflow.site.outcome import Effects
from evenflow.site.tally import NowNs, Tally, no_clock
from evenflow.statistics.window import Latency
from evenflow.stream.epoch import NO_WATERMARK, Tick
from evenflow.stream.rows import Rows

SITES, SITE, PARTITIONS, KEYS = 4, 0, 256, 100_000
REPORTS_PER_S = 4
TURN = 8
"""Epochs until the other has its turn."""
SCHEMA = pa.schema([("key", pa.int64()), ("value", pa.int64())])
RESULTS = Path(__file__).parent / "results" / "statistics_cost.json"


class Uncounted(Hosted):
    """As a site was without statistics."""

    __slots__ = ()

    def _run_steps(self, inputs: Sequence[Rows], tick: Tick, now_ns: NowNs, effects: Effects | None = None) -> Results:
        results = Results(inputs)
        for step, operator in zip(self.segment.steps, self.operators, strict=True):
            self._current_box = step.box
            results.by_step.append(cast(Operator, operator).process(results(step.source.step, step.source.port), tick))
        return results


class NoTally(Tally):
    __slots__ = ()

    def count(self, rows: Rows, arrived: Sequence[tuple[int, pa.RecordBatch]] = ()) -> None:
        """Nothing is counted."""


def uncounted(hosted: Hosted) -> Hosted:
    """The same operators with the same state."""
    given = {field.name: getattr(hosted, field.name) for field in fields(Hosted) if field.init}
    empty = NoTally.of(hosted.segment)
    tally = NoTally(empty.rows, empty.rows_in, empty.rows_out, empty.rows_failed, empty.box_ns, empty.arc_rows)
    return Uncounted(**given | {"tally": tally})


def planned() -> Layout:
    flow = ef.Dataflow("statistics")
    rows = flow.source(ef.sources.memory([[pa.RecordBatch.from_pylist([], SCHEMA)]] * SITES), name="rows").where("value < 900", name="some")
    rows.group_by("key").agg(n="count(*)", total="sum(value)").to(ef.sinks.memory("out"), name="out")
    return layout(flow.network, sites=SITES, partitions=PARTITIONS)


def placed(described: Layout) -> Plan:
    """Partitions in turn over the sites."""
    return Plan(0, 1, tuple(tuple((p % SITES,) for p in range(segment.partitions)) for segment in described.segments))


class OneSite:
    """The ingress and the keyed segment as a site runs them; its state is the same whether what it does is counted or not."""

    def __init__(self, described: Layout) -> None:
        plan = placed(described)
        segments = described.segments[:2]
        counted = [Hosted.of(s, described, tuple(p for p in range(s.partitions) if p % SITES == SITE)) for s in segments]
        self.hosted = {
            "with": counted,
            "without": [uncounted(hosted) for hosted in counted],
            "again": [uncounted(hosted) for hosted in counted],
        }
        self.splits = [tuple(Split.of(described.arcs[a], described, plan) for a in segment.outputs) for segment in segments]
        self.done = 0

    def epoch(self, arrived: pa.RecordBatch, name: str) -> None:
        """Of what the ingress makes of its rows a quarter is for this site; as all sites send that much, it comes four times."""
        self.done += 1
        (ingress, keyed), now_ns = self.hosted[name], time.perf_counter_ns if name == "with" else no_clock
        tick = Tick(self.done, self.done, NO_WATERMARK, NO_WATERMARK)
        given = Work(ingress, 0, self.splits[0], (), ((SITE, arrived),), (), frozenset(), tick, 1, arrived.num_rows).run(now_ns)
        assert given.error is None, given.error
        pieces = given.pieces[0]
        assert pieces.rows is not None
        group = next(i for i, partitions in enumerate(pieces.split.groups) if SITE in partitions)
        mine = pieces.rows.slice(pieces.bounds[group], pieces.bounds[group + 1] - pieces.bounds[group])
        inputs = ((pieces.split.arc.id, (mine,) * SITES),)
        outcome = Work(keyed, 0, self.splits[1], inputs, (), (), frozenset(), tick, 1, SITES * mine.num_rows).run(now_ns)
        assert outcome.error is None, outcome.error


def compare(described: Layout, rows: int, rounds: int, turns: int) -> dict[str, Any]:
    """CPU nanoseconds per input row with and without, and without once more; every few epochs it is another one's turn."""
    rng = np.random.default_rng(1)
    batches = [pa.record_batch([rng.integers(0, KEYS, rows), rng.integers(0, 1000, rows)], schema=SCHEMA) for _ in range(TURN)]
    site = OneSite(described)
    found: dict[str, list[float]] = {name: [] for name in site.hosted}
    for number in range(rounds + 1):
        spent_ns: dict[str, list[int]] = {name: [] for name in site.hosted}
        for _ in range(turns):
            for name in rng.permutation(list(site.hosted)).tolist():
                start_ns = time.process_time_ns()
                for batch in batches:
                    site.epoch(batch, name)
                spent_ns[name].append(time.process_time_ns() - start_ns)
        gc.collect()
        if number:  # The first round fills the tables.
            for name, spent in spent_ns.items():
                found[name].append(float(np.percentile(spent, 10)) / (TURN * rows))
    with_ns, without_ns, again_ns = (np.array(found[name]) for name in ("with", "without", "again"))
    middle_ns = (without_ns + again_ns) / 2
    return {
        "rows_per_epoch": rows,
        "without_ns_per_row": round(median(middle_ns), 2),
        "with_ns_per_row": round(median(with_ns), 2),
        "overhead_percent": round((median(with_ns / middle_ns) - 1) * 100, 2),
        "overhead_percent_of_rounds": [round(float(ratio - 1) * 100, 2) for ratio in with_ns / middle_ns],
        "without_again_percent_of_rounds": [round(float(ratio - 1) * 100, 2) for ratio in again_ns / without_ns],
    }


ADDED = """
for number in (0, 0, 0):
    rows_in = rows.partition.size
    begun_ns, at_ns = 0, now_ns()
    tally.rows_in[number] += rows_in
    tally.rows_out[number] += given[0].partition.size
    tally.box_ns[number] += at_ns - begun_ns
now_ns(); now_ns(); now_ns(); now_ns(); now_ns(); now_ns()
tally.busy_ns += 5; tally.busy_ns += 5
tally.arc_rows[0] += rows.partition.size; tally.arc_rows[0] += rows.partition.size
tally.rows[0] += rows.batch.num_rows
tally.count(rows)
"""
"""What counting adds to an epoch of the two segments, by itself."""


def added(described: Layout, rows: int) -> dict[str, float]:
    """The least time of what is added, beside the least time of an epoch without: a busy machine can only make either longer."""
    rng = np.random.default_rng(1)
    batches = [pa.record_batch([rng.integers(0, KEYS, rows), rng.integers(0, 1000, rows)], schema=SCHEMA) for _ in range(TURN)]
    counted = Rows(batches[0], (rng.integers(0, PARTITIONS // SITES, rows) * SITES).astype(np.int32))
    names = {"tally": Tally.of(described.segments[1]), "rows": counted, "given": (counted,), "now_ns": time.perf_counter_ns}
    added_us = min(timeit.repeat(ADDED, globals=names, number=2_000, repeat=15)) / 2_000 * 1e6
    site = OneSite(described)
    epoch = 'for batch in batches: site.epoch(batch, "without")'
    epoch_us = min(timeit.repeat(epoch, globals={"batches": batches, "site": site}, number=1, repeat=80)) / TURN * 1e6
    share = {"added_us": round(added_us, 2), "epoch_us": round(epoch_us, 1), "added_percent": round(100 * added_us / epoch_us, 2)}
    return {"rows_per_epoch": rows} | share


def report_us(described: Layout, reports: int) -> float:
    """CPU microseconds of the window of a report, of a site with a quarter of all partitions."""
    plan = placed(described)
    part = SiteMachine(Setup(described, plan, first_membership(described, plan, range(SITES)), SITE, FlowOptions()))
    start_ns = time.process_time_ns()
    for _ in range(reports):
        part.counting.window(0, 1, 0, Latency())
    return (time.process_time_ns() - start_ns) / reports / 1000


def main() -> None:
    quick = "--quick" in sys.argv
    described = planned()
    rounds, turns = (3, 10) if quick else (7, 40)
    found = []
    print("rows/epoch   without ns/row   with ns/row   overhead (median of rounds)")
    for rows in (100, 1_000, 10_000):
        found.append(compare(described, rows, rounds, turns))
        line = found[-1]
        print(f"{rows:10,}   {line['without_ns_per_row']:14.1f}   {line['with_ns_per_row']:11.1f}   {line['overhead_percent']:+.2f} %")
    alone = [added(described, rows) for rows in (100, 1_000, 10_000)]
    for share in alone:
        print(f"by itself, {share['rows_per_epoch']:,} rows: {share['added_us']} of {share['epoch_us']} us, {share['added_percent']} %")
    window_us = report_us(described, 200 if quick else 2_000)
    print(f"a report's window: {window_us:.0f} us of CPU, {window_us * REPORTS_PER_S / 1e4:.3f} % of a core at {REPORTS_PER_S} a second")
    result = {
        "command": "python bench/statistics_cost.py",
        "machine": {
            "cpus": os.cpu_count(),
            "processor": platform.machine(),
            "python": platform.python_version(),
            "system": platform.system(),
        },
        "rounds": rounds,
        "turns_per_round": turns,
        "epochs_per_turn": TURN,
        "epochs": found,
        "by_itself": alone,
        "window_us": round(window_us, 1),
        "window_percent_of_a_core": round(window_us * REPORTS_PER_S / 1e4, 3),
    }
    if not quick:
        RESULTS.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
