"""What the demo's query must put out, computed from the packets without Evenflow, and how far its output is from that. `evenflow bench
failover` runs that query, too.

Plain loops and NumPy, second by second of event time: the packets of all partitions are in order of time by their numbers alone.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass
from math import isclose
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from evenflow.bench.scheduled import READ_ROWS_MAX, ScheduledPackets
from evenflow.sources.pace import FIRST_US

SECOND_US: Final = 1_000_000
Row = tuple[Any, ...]
Rows = Mapping[Hashable, Row]


@dataclass(frozen=True, slots=True)
class Compared:
    """expected, got: rows. lost: expected and not there. repeated: there again. wrong: there with other values, or from nowhere."""

    expected: int
    got: int
    lost: int
    repeated: int
    wrong: int

    def __add__(self, other: Compared) -> Compared:
        return Compared(
            self.expected + other.expected,
            self.got + other.got,
            self.lost + other.lost,
            self.repeated + other.repeated,
            self.wrong + other.wrong,
        )


def compare(expected: Rows, got: Iterable[tuple[Hashable, Row]]) -> Compared:
    """Row by row. A row is (what identifies it, its values); floats may differ by rounding only, 1e-9 of the greater one."""
    seen: Counter[Hashable] = Counter()
    wrong = total = 0
    for key, values in got:
        total += 1
        right = expected.get(key)
        if right is None:
            wrong += 1
            continue
        seen[key] += 1
        wrong += not same(right, values)
    repeated = sum(count - 1 for count in seen.values())
    return Compared(len(expected), total, len(expected) - len(seen), repeated, wrong)


def same(one: Row, other: Row) -> bool:
    return len(one) == len(other) and all(
        isclose(a, b, rel_tol=1e-9, abs_tol=1e-12) if isinstance(a, float) else a == b for a, b in zip(one, other)
    )


class Packets(NamedTuple):
    """The packets of one second of event time, in order. time: microseconds since 1970. src, dst: as Python texts."""

    time: npt.NDArray[np.int64]
    src: list[str]
    dst: list[str]
    low_port: npt.NDArray[np.int64]
    proto: npt.NDArray[np.int64]
    length: npt.NDArray[np.int64]
    flags: npt.NDArray[np.int64]


def second_of(source: ScheduledPackets, second: int) -> Packets:
    """All packets of second `second` after the first one."""
    first, end = second * source.rate, (second + 1) * source.rate
    columns: dict[str, Any] = {}
    for partition in range(source.count):
        row, last = (-((partition - n) // source.count) for n in (first, end))
        while row < last:
            batch = source.rows(partition, row, min(last - row, READ_ROWS_MAX))
            at = slice(row * source.count + partition - first, None, source.count)
            for name in batch.schema.names:
                values = np.asarray(batch.column(name).to_numpy(zero_copy_only=False))
                if values.dtype.kind == "M":
                    values = values.astype("datetime64[us]").astype(np.int64)
                whole = columns.setdefault(name, np.empty(source.rate, object if values.dtype.kind == "O" else np.int64))
                whole[at][: batch.num_rows] = values
            row += batch.num_rows
    return Packets(
        columns["ts"],
        columns["src"].tolist(),
        columns["dst"].tolist(),
        np.minimum(columns["sport"], columns["dport"]),
        columns["proto"],
        columns["length"],
        columns["tcp_flags"],
    )


def expected_traffic(source: ScheduledPackets, window_us: int, until_us: int) -> dict[Hashable, Row]:
    """(proto, window start) -> (packets, bytes) of every window that ends at `until_us` or before. window_us: divides a second."""
    rows: dict[Hashable, Row] = {}
    for second in range(seconds_until(until_us)):
        packets = second_of(source, second)
        window = packets.time // window_us
        slot = (window - window[0]) * 256 + packets.proto
        count, size = np.bincount(slot), np.bincount(slot, weights=packets.length)
        for at in np.flatnonzero(count).tolist():
            start = (int(window[0]) + at // 256) * window_us
            if start + window_us <= until_us:
                rows[at % 256, start] = (int(count[at]), int(size[at]))
    return rows


def expected_statistics(
    source: ScheduledPackets, example: Any, until_us: int, *, history: int = 100, slide: int = 10
) -> dict[Hashable, Row]:
    """(app, src, ts) -> (max_dur, avg_dur) of every row up to `until_us`. example: the module of the demo's query."""
    rows: dict[Hashable, Row] = {}
    ends_with, applications = example.FIN | example.RST, example.APPLICATIONS
    open_since: dict[tuple[str, str], int] = {}
    recent: dict[tuple[str, str], deque[float]] = {}
    counts: Counter[tuple[str, str]] = Counter()
    for second in range(seconds_until(until_us)):
        packets = second_of(source, second)
        tcp = np.flatnonzero(packets.proto == 6)
        ends = (packets.flags[tcp] & ends_with) != 0
        for at, time, is_end in zip(tcp.tolist(), packets.time[tcp].tolist(), ends.tolist()):
            pair = packets.src[at], packets.dst[at]
            if not is_end:
                open_since.setdefault(pair, time)
                continue
            duration = (time - open_since.pop(pair, time)) / SECOND_US
            group = applications.get(int(packets.low_port[at]), "other"), pair[0]
            last = recent.setdefault(group, deque(maxlen=history))
            last.append(duration)
            counts[group] += 1
            if counts[group] % slide == 0 and time <= until_us:
                rows[*group, time] = (max(last), sum(last) / len(last))
    return rows


def seconds_until(until_us: int) -> int:
    """How many seconds of packets there are up to an event time, the last one begun included."""
    return max(0, -((FIRST_US - until_us - 1) // SECOND_US))
