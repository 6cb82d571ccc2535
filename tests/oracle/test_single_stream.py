"""The operators on one stream give what the same query gives in batch Spark SQL, however the run is cut up."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest

import evenflow as ef
from tests.drawn import one_in
from tests.oracle.running import Cut, assert_same_rows, newest_per_key, run
from tests.oracle.test_networks import Query, query

pytestmark = pytest.mark.oracle

ROWS = 20_000
CUTS = (Cut(4, 64, 1_000, 3), Cut(3, 7, 20_000, 2, seed=1))
OTHERS = "dst, sport, dport, proto, length, tcp_flags"


def connections(t: ef.Stream) -> ef.Stream:
    """Bursts of a host, and per minute the largest of them."""
    bursts = t.with_watermark("ts", "1 minute").group_by("src").session("2 seconds").agg(n="count(*)", bytes="sum(length)")
    return bursts.group_by().window("1 minute").top(2, order_by=["bytes desc", "src"])


class Bursts(ef.BatchProcessor):
    """Sessions, told by a timeout."""

    output = "src string, window_start timestamp, window_end timestamp, n bigint, total bigint"

    def open(self, store: Any) -> None:
        store.timeout("over", "3 seconds")
        store.value("start", "timestamp")
        store.value("n", "bigint", default=0)
        store.value("total", "bigint", default=0)

    def process(self, rows: pa.RecordBatch, groups: ef.Groups, state: Any) -> None:  # type: ignore[override]
        state.start.put(rows["ts"].to_numpy(zero_copy_only=False)[groups.starts], ~state.start.exists())
        state.n.put(state.n.get() + groups.counts)
        state.total.put(state.total.get() + np.add.reduceat(rows["length"].cast(pa.int64()).to_numpy(), groups.starts))

    def expired(self, timers: ef.Timers, state: Any) -> Any:  # type: ignore[override]
        made = {
            "src": timers.keys["src"],
            "window_start": state.start.get(),
            "window_end": timers.times,
            "n": state.n.get(),
            "total": state.total.get(),
        }
        for name in ("start", "n", "total"):
            getattr(state, name).clear()
        return made, np.arange(len(timers))


def case_of_sizes(t: ef.Stream) -> ef.Stream:
    small, large, rest = t.case("length < 60", "length > 1000 OR dport = 53")
    named = (small.select("src", "'small' as size"), large.select("src", "'large' as size"), rest.select("src", "'rest' as size"))
    return named[0].union(*named[1:]).group_by("size", "src").agg(n="count(*)")


def ends(batch: pa.RecordBatch) -> Any:
    """The two ends of each packet."""
    both = pa.concat_arrays([batch["src"], batch["dst"]])
    return {"host": both, "length": pa.concat_arrays([batch["length"]] * 2)}, [*range(batch.num_rows)] * 2


QUERIES: tuple[Query, ...] = (
    query(
        "sessions",
        lambda t: (
            t.with_watermark("ts", "1 minute")
            .group_by("src", "proto")
            .session("3 seconds")
            .agg(
                n="count(*)",
                total="sum(length)",
                low="min(length)",
                high="max(length)",
                mean="avg(length)",
                sd="stddev(length)",
                peer="min(dst)",
            )
        ),
        """SELECT src, proto, session_window.start window_start, session_window.end window_end, count(*) n, sum(length) total,
                  min(length) low, max(length) high, avg(length) mean, stddev(length) sd, min(dst) peer
           FROM t GROUP BY src, proto, session_window(ts, '3 seconds')""",
    ),
    query(
        "sessions with gaps of their own",
        lambda t: (
            t.with_watermark("ts", "1 minute")
            .group_by("src")
            .session("CASE WHEN dport = 53 THEN '200 milliseconds' WHEN length > 1000 THEN concat(length % 7, ' seconds') END")
            .agg(n="count(*)", total="sum(length)", low="min(dst)", mean="avg(length)", least="min(ts)")
        ),
        """SELECT src, session_window.start window_start, session_window.end window_end, count(*) n, sum(length) total,
                  min(dst) low, avg(length) mean, min(ts) least
           FROM t GROUP BY src, session_window(ts,
             CASE WHEN dport = 53 THEN '200 milliseconds' WHEN length > 1000 THEN concat(length % 7, ' seconds') END)""",
    ),
    query(
        "sessions by a timeout",
        lambda t: t.with_watermark("ts", "1 minute").key_by("src").process(Bursts()),
        """SELECT src, session_window.start window_start, session_window.end window_end, count(*) n, sum(length) total
           FROM t GROUP BY src, session_window(ts, '3 seconds')""",
    ),
    query(
        "sessions in order",
        lambda t: (
            t.with_watermark("ts", "1 second")
            .where("dport = 53")
            .group_by("src")
            .session("1 second")
            .agg(first_dst="first(dst)", sizes="collect_list(length)")
        ),
        f"""SELECT src, window_start, window_end, element_at(l, 1).dst first_dst, transform(l, x -> x.length) sizes FROM
            (SELECT src, session_window.start window_start, session_window.end window_end,
                    sort_array(collect_list(struct(ts, src, {OTHERS}))) l
             FROM t WHERE dport = 53 GROUP BY src, session_window(ts, '1 second'))""",
    ),
    query(
        "top of sessions",
        connections,
        """SELECT window_start, window_end, rank, src, n, bytes FROM
           (SELECT window(last, '1 minute').start window_start, window(last, '1 minute').end window_end, src, n, bytes,
                   row_number() OVER (PARTITION BY window(last, '1 minute') ORDER BY bytes DESC, src, n) rank
            FROM (SELECT src, count(*) n, sum(length) bytes, session_window.end - INTERVAL 1 MICROSECOND last
                  FROM t GROUP BY src, session_window(ts, '2 seconds'))) WHERE rank <= 2""",
    ),
    query(
        "top",
        lambda t: t.with_watermark("ts", "1 second").group_by("src").window("1 minute").top(3, order_by=["length desc", "ts"]),
        f"""SELECT src, window_start, window_end, rank, ts, {OTHERS} FROM
            (SELECT *, window(ts, '1 minute').start window_start, window(ts, '1 minute').end window_end, row_number() OVER
                    (PARTITION BY src, window(ts, '1 minute') ORDER BY length DESC, ts, {OTHERS}) rank FROM t) WHERE rank <= 3""",
    ),
    query(
        "duplicates",
        lambda t: t.select("src", "dst", "dport").drop_duplicates(),
        "SELECT DISTINCT src, dst, dport FROM t",
    ),
    query(
        "earliest of duplicates",
        lambda t: t.with_watermark("ts", "1 second").drop_duplicates(["src", "dport"], order="event_time"),
        f"""SELECT ts, src, {OTHERS} FROM (SELECT *, row_number() OVER (PARTITION BY src, dport ORDER BY ts, {OTHERS}) n FROM t)
            WHERE n = 1""",
    ),
    query(
        "resampled",
        lambda t: t.with_watermark("ts", "1 second").group_by("src").resample("1 second", "length", max_gap="10 seconds"),
        f"""SELECT src, g ts, before + (length - before) * (unix_micros(g) - unix_micros(b)) / (unix_micros(ts) - unix_micros(b)) length
            FROM (SELECT *, explode(sequence(date_trunc('second', b) + INTERVAL 1 SECOND, date_trunc('second', ts), INTERVAL 1 SECOND)) g
                  FROM (SELECT src, ts, length, lag(ts) OVER w b, lag(length) OVER w before FROM t
                        WINDOW w AS (PARTITION BY src ORDER BY ts, {OTHERS}))
                  WHERE ts - b <= INTERVAL 10 SECONDS AND date_trunc('second', b) < date_trunc('second', ts))
            UNION ALL
            SELECT src, ts, CAST(length AS double) FROM
                  (SELECT src, ts, length, lag(ts) OVER (PARTITION BY src ORDER BY ts, {OTHERS}) b FROM t)
            WHERE (b IS NULL OR ts - b > INTERVAL 10 SECONDS) AND ts = date_trunc('second', ts)""",
    ),
    query(
        "exploded",
        lambda t: (
            t.with_watermark("ts", "1 second")
            .group_by("src")
            .window("1 minute")
            .agg(ports="collect_list(dport)")
            .explode("ports", into="port", position="at")
            .group_by("port")
            .agg(n="count(*)", last="max(at)")
        ),
        f"""SELECT p.dport port, count(*) n, max(at) last FROM
            (SELECT posexplode(sort_array(collect_list(struct(ts, src, {OTHERS})))) AS (at, p) FROM t GROUP BY src, window(ts, '1 minute'))
            GROUP BY 1""",
        "port",
    ),
    query(
        "unpivot",
        lambda t: t.unpivot(["src", "proto"], ["sport", "dport"], "end", "port").group_by("src", "end").agg(n="count(*)", most="max(port)"),
        """SELECT src, end, count(*) n, max(port) most FROM
           (SELECT src, proto, sport, dport FROM t) UNPIVOT INCLUDE NULLS (port FOR end IN (sport, dport)) GROUP BY src, end""",
        "src",
        "end",
    ),
    query(
        "flat map",
        lambda t: t.flat_map(ends, "host string, length int").group_by("host").agg(n="count(*)", bytes="sum(length)"),
        "SELECT host, count(*) n, sum(length) bytes FROM (SELECT explode(array(src, dst)) host, length FROM t) GROUP BY host",
        "host",
    ),
    query(
        "case",
        case_of_sizes,
        """SELECT CASE WHEN length < 60 THEN 'small' WHEN length > 1000 OR dport = 53 THEN 'large' ELSE 'rest' END size, src, count(*) n
           FROM t GROUP BY 1, 2""",
        "size",
        "src",
    ),
    query("sorted", lambda t: t.with_watermark("ts", "1 second").key_by("src").sort(), f"SELECT ts, src, {OTHERS} FROM t"),
    query("nearly sorted", lambda t: t.key_by("src").bsort("length", 5), f"SELECT ts, src, {OTHERS} FROM t"),
)


@pytest.fixture(scope="module")
def part(packets: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The first packets, as a file that both sides read."""
    path = tmp_path_factory.mktemp("oracle") / "part.parquet"
    pyarrow.parquet.write_table(pyarrow.parquet.read_table(packets).slice(0, ROWS), path)
    return path


@pytest.mark.parametrize("asked", one_in(3, QUERIES), ids=lambda q: q.name)
def test_packets(spark: Any, part: Path, asked: Query) -> None:
    spark.read.parquet(str(part)).createOrReplaceTempView("t")
    expected = spark.sql(asked.sql).cache()
    for cut in CUTS:
        got = run(asked.build, pyarrow.parquet.read_table(part), cut)
        assert got.num_rows
        assert_same_rows(newest_per_key(got, asked.keys) if asked.keys else got, expected)
