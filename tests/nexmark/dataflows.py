"""Nexmark queries as dataflows on generated streams, and the same streams as Spark's tables."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import evenflow as ef
from evenflow import nexmark, sources


def dataflow(name: str, mode: Any = "append", **events: Any) -> ef.Dataflow:
    """The query, into a sink `out`. mode: of its output. events: options of `sources.nexmark`."""
    flow = ef.Dataflow(name)
    query = nexmark.query(name)
    ef.sql(query.sql, streams(flow, query, **events), output_mode=mode).to(ef.sinks.memory("out"), name="out")
    return flow


def streams(flow: ef.Dataflow, query: nexmark.NexmarkQuery, **events: Any) -> dict[str, Any]:
    """What the query reads, by name; watermarks wait long enough for every row."""
    found: dict[str, Any] = {}
    for stream in query.inputs:
        if stream == nexmark.SIDE_INPUT:
            found[stream] = flow.source(sources.memory(nexmark.side_input()), name=stream)
            continue
        source = sources.nexmark(stream, **events)  # type: ignore[arg-type]
        found[stream] = flow.source(source, name=stream).with_watermark(nexmark.TIME_COLUMN, f"{source.delay_us} us")
    return found


def create_views(spark: Any, names: Iterable[str], **events: Any) -> None:
    """Make tables of the streams' events for batch Spark SQL."""
    for name in names:
        table = nexmark.side_input() if name == nexmark.SIDE_INPUT else sources.nexmark(name, **events).table()  # type: ignore[arg-type]
        spark.createDataFrame(table.to_pandas()).createOrReplaceTempView(name)
