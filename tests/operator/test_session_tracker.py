"""The session tracker of the example against plain Python, on made-up and on real packets."""

from __future__ import annotations

import importlib.util
from collections import defaultdict
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from hypothesis import given, settings
from hypothesis import strategies as st

from evenflow.kernels.hash import hash_columns
from evenflow.operator.user.process import Process
from evenflow.stream.epoch import NO_WATERMARK, Tick
from evenflow.stream.rows import Rows
from evenflow.stream.schema import parse_ddl

ROOT = Path(__file__).resolve().parents[2]
SCHEMA = parse_ddl("ts timestamp, src string, dst string, sport int, dport int, proto int, length int, tcp_flags int")


def example() -> Any:
    spec = importlib.util.spec_from_file_location("network_sessions", ROOT / "examples" / "network_sessions.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


EXAMPLE = example()


def rows_of(batch: pa.RecordBatch) -> Rows:
    hashes = hash_columns(batch, ("src", "dst"))
    return Rows(batch, (hashes % np.uint64(8)).astype(np.int32), hashes)


def sessions_of(packets: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
    """What a reader of the thesis would write down."""
    open_: dict[Any, list[dict[str, Any]]] = defaultdict(list)
    found = []
    for packet in packets:
        session = open_[packet["src"], packet["dst"]]
        session.append(packet)
        if packet["tcp_flags"] & 5:
            app = EXAMPLE.APPLICATIONS.get(min(packet["sport"], packet["dport"]), "other")
            us = (packet["ts"] - session[0]["ts"]) // np.timedelta64(1, "us").item()
            size = sum(p["length"] for p in session)
            found.append((app, packet["src"], packet["dst"], us / 1e6, len(session), size, packet["ts"]))
            del open_[packet["src"], packet["dst"]]
    return found


def run(batches: list[pa.RecordBatch]) -> tuple[list[tuple[Any, ...]], Process]:
    operator = Process(("src", "dst"), EXAMPLE.SessionTracker(), batches[0].schema if batches else SCHEMA, "sessions")
    found: list[tuple[Any, ...]] = []
    for epoch, batch in enumerate(batches, 1):
        made = operator.process(rows_of(batch), Tick(epoch, epoch, NO_WATERMARK, NO_WATERMARK))[0]
        found.extend(zip(*(column.to_pylist() for column in made.batch.columns), strict=True))
    return found, operator


packet = st.tuples(
    st.sampled_from("ab"), st.sampled_from("xy"), st.sampled_from([22, 80, 4000]), st.sampled_from([443, 9999]), st.integers(40, 1500),
    st.sampled_from([0, 2, 16, 1, 4, 5, 17]),
)  # fmt: skip


@settings(max_examples=100, deadline=None)
@given(packets=st.lists(packet, max_size=60), cuts=st.lists(st.integers(0, 60), max_size=4))
def test_equals_plain_python_wherever_epochs_are_cut(packets: list[tuple[Any, ...]], cuts: list[int]) -> None:
    columns: list[Any] = [list(range(0, 1_500_000 * len(packets), 1_500_000)), *zip(*packets, strict=True)] if packets else [[]] * 7
    ts, src, dst, sport, dport, length, flags = columns
    values = [ts, src, dst, sport, dport, [6] * len(packets), length, flags]
    batch = pa.RecordBatch.from_arrays([pa.array(v, f.type) for v, f in zip(values, SCHEMA, strict=True)], schema=SCHEMA)
    points = [0, *sorted(min(cut, len(packets)) for cut in cuts), len(packets)]
    found, _ = run([batch.slice(a, b - a) for a, b in pairwise(points)])
    assert found == sessions_of(batch.to_pylist())


def test_real_packets_and_purged_state(packets: Path) -> None:
    table = pq.read_table(packets)
    tcp = table.filter(pa.compute.equal(table["proto"], 6)).combine_chunks().to_batches()[0]
    found, operator = run([tcp.slice(a, 997) for a in range(0, tcp.num_rows, 997)])
    plain = tcp.to_pylist()
    assert found == sessions_of(plain)
    last = {(p["src"], p["dst"]): p["tcp_flags"] & 5 for p in plain}
    assert operator._table.count == sum(not ended for ended in last.values())
