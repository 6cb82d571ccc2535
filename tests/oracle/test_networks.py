"""Whole networks give what the same query gives in batch Spark SQL, however the run is cut up.

The simulator runs the same machines and operators as Spark sites; tests/spark runs some of these networks on real executors.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import pytest

import evenflow as ef
from tests.drawn import one_in
from tests.oracle.running import CUTS, Answer, Cut, assert_same_rows, newest_per_key, run

pytestmark = [pytest.mark.oracle, pytest.mark.one_in(2)]


@dataclass(frozen=True)
class Query:
    """A network and its SQL over the table `t`. keys: of an update-mode result, whose newest rows count."""

    name: str
    build: Callable[[Any], ef.Dataflow]
    sql: str
    keys: tuple[str, ...] = ()


def flow_of(source: Any, make: Callable[[ef.Stream], ef.Stream]) -> ef.Dataflow:
    flow = ef.Dataflow("q")
    make(flow.source(source, name="t")).to(ef.sinks.memory("out"), name="out")
    return flow


def query(name: str, make: Callable[[ef.Stream], ef.Stream], sql: str, *keys: str) -> Query:
    return Query(name, lambda source: flow_of(source, make), sql, keys)


def union_of_protocols(t: ef.Stream) -> ef.Stream:
    tcp = t.where("proto = 6").select("src", "length", "'tcp' as kind")
    udp = t.where("proto = 17").select("src", "length", "'udp' as kind")
    return tcp.union(udp).group_by("kind", "src").agg(n="count(*)", total="sum(length)")


def minutes_per_source(t: ef.Stream) -> ef.Stream:
    per_minute = t.with_watermark("ts", "10 seconds").group_by("src").window("1 minute").agg(bytes="sum(length)")
    return per_minute.group_by("src").agg(minutes="count(*)", most="max(bytes)", mean="avg(bytes)")


def tumbling(t: ef.Stream) -> ef.Stream:
    return t.with_watermark("ts", "30 seconds").group_by("proto").window("1 minute").agg(n="count(*)", mean="avg(length)")


PACKETS = (
    query(
        "running",
        lambda t: t.group_by("src").agg(
            n="count(*)", total="sum(length)", low="min(length)", high="max(length)", mean="avg(length)", sd="stddev(length)"
        ),
        """SELECT src, count(*) n, sum(length) total, min(length) low, max(length) high, avg(length) mean, stddev(length) sd
           FROM t GROUP BY src""",
        "src",
    ),
    query(
        "filtered expression",
        lambda t: (
            t.where("tcp_flags & 1 = 1 OR length BETWEEN 100 AND 200")
            .select("least(sport, dport) as port", "length * 8 as bits", "CASE WHEN proto = 6 THEN 'tcp' ELSE 'udp' END as kind")
            .group_by("kind", "port")
            .agg(n="count(*)", bits="sum(bits)")
        ),
        """SELECT CASE WHEN proto = 6 THEN 'tcp' ELSE 'udp' END kind, least(sport, dport) port, count(*) n, sum(length * 8) bits FROM t
           WHERE tcp_flags & 1 = 1 OR length BETWEEN 100 AND 200 GROUP BY 1, 2""",
        "kind",
        "port",
    ),
    query(
        "tumbling",
        tumbling,
        """SELECT proto, window.start window_start, window.end window_end, count(*) n, avg(length) mean FROM t
           GROUP BY proto, window(ts, '1 minute')""",
    ),
    query(
        "sliding",
        lambda t: t.with_watermark("ts", "1 second").group_by("dport").window("5 minutes", slide="1 minute").agg(most="max(length)"),
        """SELECT dport, window.start window_start, window.end window_end, max(length) most FROM t
           GROUP BY dport, window(ts, '5 minutes', '1 minute')""",
    ),
    query(
        "row windows",
        lambda t: t.with_watermark("ts", "1 second").group_by("src").rows(100, slide=10).agg(mean="avg(length)", most="max(length)"),
        """SELECT src, ts, mean, most FROM (SELECT src, ts, row_number() OVER w n, avg(length) OVER h mean, max(length) OVER h most FROM t
           WINDOW w AS (PARTITION BY src ORDER BY ts, dst, sport, dport, proto, length, tcp_flags),
                  h AS (PARTITION BY src ORDER BY ts, dst, sport, dport, proto, length, tcp_flags
                        ROWS BETWEEN 99 PRECEDING AND CURRENT ROW))
           WHERE n % 10 = 0""",
    ),
    query(
        "union",
        union_of_protocols,
        "SELECT IF(proto = 6, 'tcp', 'udp') kind, src, count(*) n, sum(length) total FROM t GROUP BY 1, 2",
        "kind",
        "src",
    ),
    query(
        "two stages",
        minutes_per_source,
        """SELECT src, count(*) minutes, max(bytes) most, avg(bytes) mean FROM
           (SELECT src, sum(length) bytes FROM t GROUP BY src, window(ts, '1 minute')) GROUP BY src""",
        "src",
    ),
    query(
        "first, last, collect",
        lambda t: (
            t.where("dport = 53")
            .with_watermark("ts", "1 second")
            .group_by("src")
            .agg(first_dst="first(dst)", last_length="last(length)", lengths="collect_list(length)")
        ),
        """SELECT src, element_at(l, 1).dst first_dst, element_at(l, -1).length last_length, transform(l, x -> x.length) lengths FROM
           (SELECT src, sort_array(collect_list(struct(ts, src, dst, sport, dport, proto, length, tcp_flags))) l
            FROM t WHERE dport = 53 GROUP BY src)""",
        "src",
    ),
)

REQUESTS = (
    query(
        "status per hour",
        lambda t: (
            t.with_watermark("ts", "1 second")
            .group_by("response")
            .window("1 hour")
            .agg(n="count(*)", bytes="sum(bytes)", largest="max(bytes)")
        ),
        """SELECT response, window.start window_start, window.end window_end, count(*) n, sum(bytes) bytes, max(bytes) largest FROM t
           GROUP BY response, window(ts, '1 hour')""",
    ),
    query(
        "directories",
        lambda t: (
            t.where("method = 'GET' AND response = 200")
            .select("regexp_extract(url, '^/([^/]*)', 1) as dir", "host", "bytes")
            .group_by("dir")
            .agg(n="count(*)", bytes="sum(bytes)", first_host="min(host)")
        ),
        """SELECT regexp_extract(url, '^/([^/]*)', 1) dir, count(*) n, sum(bytes) bytes, min(host) first_host FROM t
           WHERE method = 'GET' AND response = 200 GROUP BY 1""",
        "dir",
    ),
)


@pytest.fixture(scope="module")
def packet_table(packets: Path) -> pa.Table:
    return pyarrow.parquet.read_table(packets)


@pytest.fixture(scope="module")
def request_table(http_requests: Path) -> pa.Table:
    names = ["host", "logname", "time", "method", "url", "response", "bytes"]
    options = pyarrow.csv.ParseOptions(delimiter="\t", quote_char=False, invalid_row_handler=lambda row: "skip")
    table = pyarrow.csv.read_csv(http_requests, parse_options=options).select(names)
    time = pa.compute.multiply(table.column("time").cast(pa.int64()), 1_000_000).cast(pa.timestamp("us"))
    return table.drop_columns(["time", "logname"]).append_column("ts", time)


class Batch:
    """What batch Spark gives for each query over one table, each asked once however often a stream is cut up."""

    def __init__(self, spark: Any, table: pa.Table) -> None:
        self.table = table
        self._spark, self._found = spark, dict[str, Answer]()

    def gives(self, asked: Query) -> Answer:
        if asked.name not in self._found:
            if not self._found:
                # Arrow's columns go over as they are; by way of pandas and rows it takes longer than all the queries.
                self._spark.createDataFrame(self.table).cache().createOrReplaceTempView("t")
            self._found[asked.name] = Answer.of(self._spark.sql(asked.sql))
        return self._found[asked.name]


@pytest.fixture(scope="module")
def packet_batch(spark: Any, packet_table: pa.Table) -> Batch:
    return Batch(spark, packet_table)


@pytest.fixture(scope="module")
def request_batch(spark: Any, request_table: pa.Table) -> Batch:
    return Batch(spark, request_table)


def check(batch: Batch, asked: Query, cut: Cut) -> None:
    expected = batch.gives(asked)
    got = run(asked.build, batch.table, cut)
    assert_same_rows(newest_per_key(got, asked.keys) if asked.keys else got, expected)


@pytest.mark.parametrize("cut", CUTS, ids=str)
@pytest.mark.parametrize("asked", one_in(2, PACKETS), ids=lambda q: q.name)
def test_packets(packet_batch: Batch, asked: Query, cut: Cut) -> None:
    check(packet_batch, asked, cut)


@pytest.mark.parametrize("cut", CUTS[1:], ids=str)
@pytest.mark.parametrize("asked", REQUESTS, ids=lambda q: q.name)
def test_requests(request_batch: Batch, asked: Query, cut: Cut) -> None:
    check(request_batch, asked, cut)


@pytest.mark.parametrize("name", ["tumbling", "two stages"])
def test_a_backfill_and_then_what_is_live(packet_batch: Batch, name: str) -> None:
    """Goal: the same as of all rows at once. Method: half of the table is a source that ends, of fewer partitions."""
    asked, table = next(query for query in PACKETS if query.name == name), packet_batch.table
    half = table.num_rows // 2

    def build(_: Any) -> ef.Dataflow:
        flow = ef.Dataflow("q")
        backfill = ef.sources.memory([table.slice(0, half)], partitions=1)
        live = ef.sources.memory([table.slice(half + i * 500, 500) for i in range((table.num_rows - half) // 500 + 1)], partitions=2)
        make = minutes_per_source if name == "two stages" else tumbling
        make(flow.source(backfill).then(live)).to(ef.sinks.memory("out"), name="out")
        return flow

    got = run(build, table.slice(0, 8), CUTS[1])
    assert_same_rows(newest_per_key(got, asked.keys) if asked.keys else got, packet_batch.gives(asked))
