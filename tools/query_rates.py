"""Rows of Nexmark's queries per second of CPU, without Spark and without a network. Prints a JSON object with `rows_per_cpu_s` by query.

    python tools/query_rates.py                                  # all queries
    python tools/query_rates.py --events 20000 q5 q8
    python tools/against.py 9da0577 --queries --least 0.97       # this tree's over another's, by turns

Each query runs in the simulator at one site, over events that are made before, in epochs of many rows: what its boxes cost, and hardly
anything else. `tools/against.py` runs it with the interpreter of either tree, so it takes only what former trees have, too.
"""

from __future__ import annotations

import argparse
import json
import time
from functools import cache
from typing import Any

import pyarrow as pa

import evenflow as ef
from evenflow import nexmark
from evenflow.bench.nexmark import dataflow, streams_of
from evenflow.query.planner import layout
from evenflow.site.options import FlowOptions
from evenflow.world.sim.world import SimWorld

EVENTS, EPOCH_ROWS = 200_000, 20_000
EVENT_RATE, DISORDER, DELAY = 1_000, 100, "1 second"


@cache
def table(stream: str, events: int) -> pa.Table:
    made: Any = ef.sources.nexmark(stream, events=events, event_rate=EVENT_RATE, disorder=DISORDER)  # type: ignore[arg-type]
    return made.table()


def rows_per_cpu_s(name: str, events: int) -> float:
    """Rows that enter the query for each second of CPU of this process."""
    query = nexmark.query(name)
    rows = sum(table(stream, events).num_rows for stream in streams_of(query))
    flow = dataflow(query, lambda stream: ef.sources.memory(table(stream, events)), DELAY, ef.sinks.discard())
    options = FlowOptions(epoch_rows=EPOCH_ROWS, linger_ms=1)
    world = SimWorld(layout(flow.network, sites=1, partitions=4), sites=1, options=options, read_rows=EPOCH_ROWS)
    began = time.process_time()
    world.run_until_quiet()
    return rows / (time.process_time() - began)


def main() -> None:
    parser = argparse.ArgumentParser(description="Rows of Nexmark's queries per second of CPU.")
    parser.add_argument("--events", type=int, default=EVENTS)
    parser.add_argument("queries", nargs="*", default=list(nexmark.NAMES))
    given = parser.parse_args()
    rates = {}
    for name in given.queries:
        rows_per_cpu_s(name, EPOCH_ROWS)  # What is compiled is compiled by then.
        rates[name] = round(rows_per_cpu_s(name, given.events))
    print(json.dumps({"rows_per_cpu_s": rates}))


if __name__ == "__main__":
    main()
