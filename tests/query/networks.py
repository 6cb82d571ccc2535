"""Networks that several tests draw."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

import evenflow as ef

PACKETS = pa.schema(
    [
        ("ts", pa.timestamp("us")),
        ("src", pa.string()),
        ("dst", pa.string()),
        ("proto", pa.int8()),
        ("length", pa.int32()),
        ("rate", pa.float64()),
    ]
)


class Tracker(ef.Processor):
    """Without state of its own."""

    output = "ts timestamp, src string, app string, dur double"

    def process(self, key, rows, state):
        return None


@dataclass
class Threshold(ef.Processor):
    """Described by its fields."""

    least: int
    output = "src string, n bigint"

    def process(self, key, rows, state):
        return None


def packets(flow: ef.Dataflow, *, name: str = "packets", partitions: int = 3, watermark: bool = True) -> ef.Stream:
    """A source of packets, with a watermark of ten seconds if wanted."""
    stream = flow.source(ef.sources.memory([], partitions, schema=PACKETS), name=name)
    return stream.with_watermark("ts", "10 seconds") if watermark else stream


def session_monitor() -> ef.Dataflow:
    """TCP sessions by host pair, statistics of the last hundred by application and host, traffic per minute beside it."""
    flow = ef.Dataflow("sessions")
    rows = packets(flow)
    sessions = rows.where("proto = 6").key_by("src", "dst").process(Tracker(), name="track")
    stats = sessions.group_by("app", "src").rows(100, slide=10).agg(max_dur="max(dur)", avg_dur="avg(dur)").name("stats")
    stats.to(ef.sinks.parquet("out", writers=2), name="files")
    sessions.late().to(ef.sinks.memory("late"), name="late")
    traffic = rows.group_by("src").window("1 minute", slide="30 seconds").agg(bytes="sum(length)", mean="sum(length * 2) / count(*)")
    traffic.name("traffic").to(ef.sinks.console(), name="screen")
    return flow
