"""Built-in network traffic: packet headers of interleaved sessions between clients and servers, at a set rate.

One partition is one endless cycle of 2^17 packets. The cycle holds whole sessions that begin anywhere in it and may run over its
end into the next one; in every new turn the clients' ephemeral ports change, so turn for turn they are new sessions. So a packet
is a function of (seed, partition, index), costs a slice, and traffic has no seam: TCP sessions open with a handshake, carry
requests and answers, and close with FIN or RST; names are looked up; some packets are noise. Who talks is Zipf-distributed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar, Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from evenflow.sources.generator import random_bits, stream_of, zipf_ranks_once
from evenflow.sources.pace import MadeReader, MadeSource
from evenflow.stream.arrays import arrow_of
from evenflow.stream.declared import May, whole

CYCLE_ROWS: Final = 1 << 17
SCHEMA: Final = pa.schema(
    [
        ("ts", pa.timestamp("us")),
        ("src", pa.string()),
        ("dst", pa.string()),
        ("sport", pa.int32()),
        ("dport", pa.int32()),
        ("proto", pa.int8()),
        ("length", pa.int32()),
        ("tcp_flags", pa.int16()),
    ]
)
TCP: Final = 6
UDP: Final = 17
FIN, SYN, RST, PSH, ACK = 1, 2, 4, 8, 16
FIRST_EPHEMERAL: Final = 32768
EPHEMERAL_PORTS: Final = 28232
SHORTEST_TCP: Final = 7
"""Handshake of three, one packet of data, close of three."""


class App(NamedTuple):
    """One kind of session. share: of sessions. packets: mean number. answer: share of data packets that the server sends."""

    port: int
    proto: int
    share: float
    packets: float
    answer: float


APPS: Final = (
    App(443, TCP, 0.34, 40.0, 0.60),
    App(80, TCP, 0.12, 18.0, 0.60),
    App(22, TCP, 0.03, 120.0, 0.50),
    App(25, TCP, 0.03, 20.0, 0.30),
    App(993, TCP, 0.04, 30.0, 0.60),
    App(5432, TCP, 0.04, 60.0, 0.55),
    App(53, UDP, 0.26, 2.0, 0.50),
    App(443, UDP, 0.08, 60.0, 0.65),
    App(123, UDP, 0.03, 2.0, 0.50),
    App(0, UDP, 0.03, 1.0, 0.00),
)
"""Port 0 is noise: one packet to a random port that nobody answers."""


class Sessions(NamedTuple):
    """Sessions of a cycle, one element each. start, duration: in cycles."""

    app: npt.NDArray[np.int64]
    packets: npt.NDArray[np.int64]
    client: npt.NDArray[np.int64]
    server: npt.NDArray[np.int64]
    port: npt.NDArray[np.int32]
    ephemeral: npt.NDArray[np.int64]
    start: npt.NDArray[np.float64]
    duration: npt.NDArray[np.float64]
    reset: npt.NDArray[np.bool_]


class Cycle(NamedTuple):
    """The packets of a cycle, in order. session_turn: 1 where the packet belongs to a session that began one turn earlier."""

    src: pa.Array
    dst: pa.Array
    proto: pa.Array
    length: pa.Array
    tcp_flags: pa.Array
    port: npt.NDArray[np.int32]
    ephemeral: npt.NDArray[np.int64]
    from_client: npt.NDArray[np.bool_]
    session_turn: npt.NDArray[np.int64]

    def packets(self, first: int, times: npt.NDArray[np.int64]) -> pa.RecordBatch:
        """The packets from `first` on, over all turns. times: int64 (n,), microseconds, n at most CYCLE_ROWS. Some 20 ns per row."""
        count = len(times)
        turn, at = divmod(first, CYCLE_ROWS)
        here = slice(at, at + count)
        turns = turn - self.session_turn[here]
        turns[max(CYCLE_ROWS - at, 0) :] += 1
        # 7919 is prime to the number of ports: a session comes back to a port only after as many turns as there are ports.
        ephemeral = ((self.ephemeral[here] + turns * 7919) % EPHEMERAL_PORTS + FIRST_EPHEMERAL).astype(np.int32)
        port, sends = self.port[here], self.from_client[here]
        columns = [
            arrow_of(times, pa.timestamp("us")),
            self.src.slice(at, count),
            self.dst.slice(at, count),
            arrow_of(np.where(sends, ephemeral, port), pa.int32()),
            arrow_of(np.where(sends, port, ephemeral), pa.int32()),
            self.proto.slice(at, count),
            self.length.slice(at, count),
            self.tcp_flags.slice(at, count),
        ]
        return pa.RecordBatch.from_arrays(columns, schema=SCHEMA)


class Draws:
    """Uniform numbers of one partition, column after column."""

    def __init__(self, seed: int, partition: int) -> None:
        self._seed, self._partition, self._column = seed, partition, 100

    def bits(self, count: int) -> npt.NDArray[np.uint64]:
        self._column += 1
        return random_bits(stream_of(self._seed, self._partition, self._column), 0, count)

    def uniform(self, count: int) -> npt.NDArray[np.float64]:
        """In [0, 1)."""
        return (self.bits(count) >> np.uint64(11)).astype(np.float64) * 2.0**-53

    def exponential(self, count: int) -> npt.NDArray[np.float64]:
        """With mean 1."""
        return (-np.log1p(-self.uniform(count))).astype(np.float64, copy=False)


def draw_sessions(draws: Draws, hosts: int) -> Sessions:
    """Sessions whose packets add up to exactly CYCLE_ROWS."""
    count = CYCLE_ROWS // 8
    shares = np.cumsum([app.share for app in APPS])
    app = np.searchsorted(shares / shares[-1], draws.uniform(count), side="right").astype(np.int64)
    tcp = np.array([a.proto == TCP for a in APPS])[app]
    least = np.where(tcp, SHORTEST_TCP, np.minimum(2, np.array([a.packets for a in APPS])[app]))
    packets = (least + (np.array([a.packets for a in APPS])[app] - least) * draws.exponential(count)).astype(np.int64)
    kept = int(np.searchsorted(np.cumsum(packets), CYCLE_ROWS - SHORTEST_TCP))
    # The last session fills the cycle: it is TCP and as long as need be, at least a whole session.
    app[kept], packets[kept] = 0, CYCLE_ROWS - int(packets[:kept].sum())
    used = kept + 1
    assert used <= count, "the mean session is longer than 8 packets, so `count` sessions always fill the cycle"
    noise = app == len(APPS) - 1
    port = np.where(noise, 1024 + draws.bits(count) % np.uint64(60000), np.array([a.port for a in APPS])[app]).astype(np.int32)
    # A second of traffic at the default rate is a sixth of a cycle or so: most sessions are short, some last for half a cycle.
    duration = np.minimum(0.002 * packets**0.5 * draws.exponential(count), 0.5)
    servers = max(hosts // 10, 1)
    return Sessions(
        app=app[:used],
        packets=packets[:used],
        client=zipf_ranks_once(draws.bits(used), hosts, 1.1),
        server=zipf_ranks_once(draws.bits(used), servers, 1.2),
        port=port[:used],
        ephemeral=(draws.bits(used) % np.uint64(EPHEMERAL_PORTS)).view(np.int64),
        start=draws.uniform(used),
        duration=duration[:used],
        reset=draws.uniform(used) < 0.06,
    )


def draw_headers(
    draws: Draws, s: Sessions, session: npt.NDArray[np.int64], index: npt.NDArray[np.int64]
) -> tuple[npt.NDArray[np.bool_], npt.NDArray[np.int32], npt.NDArray[np.int16]]:
    """(from_client, length, tcp_flags) of packet `index` of its session, in session order."""
    rows = len(session)
    app, count = s.app[session], s.packets[session]
    tcp = np.array([a.proto == TCP for a in APPS])[app]
    left = count - 1 - index
    answers = draws.uniform(rows) < np.array([a.answer for a in APPS])[app]
    opening = {0: (True, SYN, 60), 1: (False, SYN | ACK, 60), 2: (True, ACK, 52)}
    closing = {2: (True, FIN | ACK, 52), 1: (False, FIN | ACK, 52), 0: (True, ACK, 52)}
    from_client = np.where(count == 2, index == 0, ~answers | (index == 3) | (count == 1))
    full = draws.uniform(rows) < np.where(from_client, 0.1, 0.6)
    size = np.where(full, 1500, 60 + 500 * draws.uniform(rows) ** 2).astype(np.int32)
    length = np.where(tcp, size, np.where(full & (count > 2), 1280, size // 2 + 40)).astype(np.int32)
    flags = np.where(tcp, np.where(full, ACK, ACK | PSH), 0).astype(np.int16)
    for position, table in ((index, opening), (left, closing)):
        for at, (client, flag, bytes_) in table.items():
            here = tcp & (position == at)
            from_client[here], flags[here], length[here] = client, flag, bytes_
    aborted = tcp & s.reset[session]
    flags[aborted & (left == 0)] = RST
    plain = aborted & ((left == 1) | (left == 2))
    flags[plain] = ACK
    return from_client, length, flags


def draw_cycle(seed: int, partition: int, hosts: int) -> Cycle:
    """All packets of one partition's cycle; every column twice over, so that every run of CYCLE_ROWS rows is one slice."""
    draws = Draws(seed, partition)
    s = draw_sessions(draws, hosts)
    session = np.repeat(np.arange(len(s.packets)), s.packets)
    first = np.cumsum(s.packets) - s.packets
    index = np.arange(CYCLE_ROWS) - first[session]
    from_client, length, flags = draw_headers(draws, s, session, index)
    gaps = np.cumsum(draws.exponential(CYCLE_ROWS))
    elapsed = gaps - gaps[first][session]
    span = gaps[first + s.packets - 1] - gaps[first]
    time = s.start[session] + s.duration[session] * elapsed / np.maximum(span, 1e-9)[session]
    turn = np.floor(time)
    order = np.argsort(time - turn, kind="stable")
    order = np.concatenate([order, order])
    owner, client_sends = session[order], from_client[order]
    clients, servers = address_texts(hosts)
    ends = pa.concat_arrays([clients, servers])
    client_end, server_end = s.client[owner], s.server[owner] + hosts
    return Cycle(
        src=ends.take(pa.array(np.where(client_sends, client_end, server_end))),
        dst=ends.take(pa.array(np.where(client_sends, server_end, client_end))),
        proto=arrow_of(np.array([a.proto for a in APPS], np.int8)[s.app[owner]], pa.int8()),
        length=arrow_of(length[order], pa.int32()),
        tcp_flags=arrow_of(flags[order], pa.int16()),
        port=s.port[owner],
        ephemeral=s.ephemeral[owner],
        from_client=client_sends,
        session_turn=turn[order].astype(np.int64),
    )


def address_texts(hosts: int) -> tuple[pa.Array, pa.Array]:
    """Addresses of the clients (10.0.0.0/8) and the servers (198.18.0.0/15, reserved for tests): the same in every partition."""
    client = [f"10.{n >> 16 & 255}.{n >> 8 & 255}.{n & 255}" for n in range(1, hosts + 1)]
    server = [f"198.{18 + (n >> 16 & 1)}.{n >> 8 & 255}.{n & 255}" for n in range(1, max(hosts // 10, 1) + 1)]
    return pa.array(client), pa.array(server)


class PacketsReader(MadeReader):
    """One partition. Costs about 20 ns per row; a cycle is made when it is opened, which takes about 20 ms and 20 MB."""

    most_rows = CYCLE_ROWS // 2

    def __init__(self, source: PacketsSource, partition: int, of: int) -> None:
        super().__init__(source, partition, of)
        self._cycle = draw_cycle(source.seed, partition, source.hosts)

    def _rows(self, first: int, count: int) -> pa.RecordBatch:
        return self._cycle.packets(first, self._pace.take(count))


@dataclass(frozen=True)
class PacketsSource(MadeSource):
    """See `evenflow.sources.packets`. hosts: clients; there is a server for every ten."""

    kind: ClassVar[str] = "packets"
    columns: ClassVar[pa.Schema] = SCHEMA
    reader: ClassVar[type[MadeReader]] = PacketsReader
    rate: int | None = 20_000
    hosts: int = 2000
    seed: int = 0
    rows: int | None = None
    count: int | None = None
    begin_us: int | None = field(default=None, kw_only=True)

    option_owner: ClassVar[str] = "packets source"
    MAY: ClassVar[Mapping[str, May]] = {**MadeSource.MAY, "hosts": whole(1, (1 << 20) - 1)}
