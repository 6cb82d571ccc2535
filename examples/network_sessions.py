"""Durations of network sessions per application and source, from packets: the running example of the Flux thesis (2.2).

    evenflow run examples/network_sessions.py --packets packets.parquet

A session is what passes from one address to another between its first packet and one that carries FIN or RST. When it ends, the
tracker emits how long it lasted and forgets it. Then, per application and source, the greatest and the average duration over the last
100 sessions, after every tenth.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

import evenflow as ef

FIN, RST = 1, 4
"""Bits of `tcp_flags` that end a session."""

APPLICATIONS = {
    20: "ftp", 21: "ftp", 22: "ssh", 23: "telnet", 25: "smtp", 53: "dns", 80: "http", 110: "pop3", 143: "imap", 389: "ldap",
    443: "https", 445: "smb", 465: "smtp", 587: "smtp", 993: "imap", 995: "pop3", 1883: "mqtt", 3306: "mysql", 3389: "rdp",
    5432: "postgresql", 6379: "redis", 8080: "http", 8443: "https",
}  # fmt: skip
"""Application by well-known port, the smaller of a packet's two; any other is "other"."""

_NAMES = pa.array([*sorted(set(APPLICATIONS.values())), "other"])
_NAME_OF_PORT = np.full(65_536, len(_NAMES) - 1, np.int64)
for _port, _name in APPLICATIONS.items():
    _NAME_OF_PORT[_port] = _NAMES.to_pylist().index(_name)


class SessionTracker(ef.BatchProcessor):
    """Rebuilds sessions per (src, dst) and emits one row at the end of each; the ending packet says which application and when."""

    output = "app string, src string, dst string, dur double, packets bigint, bytes bigint, ts timestamp"

    def open(self, store: Any) -> None:
        store.value("start", "timestamp")
        store.value("packets", "bigint", default=0)
        store.value("bytes", "bigint", default=0)

    def process(self, rows: pa.RecordBatch, groups: ef.Groups, state: Any) -> Any:
        time = rows["ts"].to_numpy(zero_copy_only=False).astype("datetime64[us]", copy=False)
        ends = (numbers(rows["tcp_flags"]) & (FIN | RST)) != 0

        # A part of a session begins with a key's first row of the epoch, and after every packet that ended a session.
        begins = np.concatenate(([False], ends[:-1]))
        begins[groups.starts] = True
        first = np.flatnonzero(begins)
        part_of_group = np.cumsum(begins)[groups.starts] - 1  # The first part of each key: it goes on with what the state has.

        start, packets, size = time[first], np.diff(first, append=len(time)), np.add.reduceat(numbers(rows["length"]), first)
        open_since = state.start.get()
        start[part_of_group] = np.where(state.start.exists(), open_since, start[part_of_group])
        packets[part_of_group] += state.packets.get()
        size[part_of_group] += state.bytes.get()

        # The last part of each key stays open, unless it ended; then nothing is kept of it.
        last_part = np.append(part_of_group[1:], len(first)) - 1
        is_open = ~ends[groups.last]
        for field, values in ((state.start, start), (state.packets, packets), (state.bytes, size)):
            field.put(values[last_part], is_open)
            field.clear(~is_open)

        at = np.flatnonzero(ends)
        if not len(at):
            return None
        done = np.cumsum(begins)[at] - 1
        packet = rows.take(pa.array(at))
        port = np.minimum(numbers(packet["sport"]), numbers(packet["dport"]))
        sessions = {
            "app": _NAMES.take(pa.array(_NAME_OF_PORT[port])),
            "src": packet["src"],
            "dst": packet["dst"],
            "dur": (time[at] - start[done]) / np.timedelta64(1_000_000, "us"),
            "packets": packets[done],
            "bytes": size[done],
            "ts": packet["ts"],
        }
        return sessions, at


def numbers(column: pa.Array) -> Any:
    """An integer column as int64, null as 0."""
    return (column.fill_null(0) if column.null_count else column).to_numpy().astype(np.int64)


def build(flow: ef.Dataflow, packets: ef.Stream, delay: str = "10 seconds") -> ef.Stream:
    """The network behind a stream of packets. delay: how far packets may be out of order. Returns the statistics."""
    sessions = packets.with_watermark("ts", delay).where("proto = 6").key_by("src", "dst").process(SessionTracker()).name("sessions")
    recent = sessions.group_by("app", "src").rows(100, slide=10)
    return recent.agg(max_dur="max(dur)", avg_dur="avg(dur)").name("statistics")


def dataflow(*, packets: str | None = None, rate: int = 20_000, spark: Any = None) -> ef.Dataflow:
    """packets: a file of packets, replayed once as fast as can be; without one, a generator runs at `rate` packets/s."""
    flow = ef.Dataflow("network_sessions")
    source = ef.sources.packets(rate=rate) if packets is None else ef.sources.replay(packets, "ts", speed=None)
    build(flow, flow.source(source, name="packets")).to(ef.sinks.console())
    return flow
