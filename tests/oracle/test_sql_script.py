"""SQL on streams gives what the same text gives in batch Spark SQL."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import evenflow as ef
from evenflow.query.planner import layout
from evenflow.site.options import FlowOptions
from evenflow.world.sim.world import SimWorld
from tests.drawn import one_in
from tests.oracle.running import CUTS, Answer, Cut, assert_same_rows, newest_per_key

pytestmark = [pytest.mark.oracle, pytest.mark.one_in(2)]


@dataclass(frozen=True)
class Asked:
    """sql: for both. newest: columns of whose equal values the newest row counts, where rows are states so far."""

    sql: str
    newest: tuple[str, ...] = ()


ASKED = {
    "columns": Asked(
        "SELECT K AS key, n * 2 AS twice, CASE WHEN x > 0.5 THEN 'big' ELSE 'small' END AS size, t.ts FROM t WHERE n > 3 AND k <> 'k1'"
    ),
    "no case": Asked("SELECT T.N, a.X AS y FROM T JOIN (SELECT k, x FROM t) AS A ON T.K = a.k WHERE T.n > 18 AND A.x > 0.9"),
    "nulls": Asked("SELECT k, n, coalesce(n, -1) AS m FROM t WHERE n IS NULL OR n = 7"),
    "in, between, like": Asked("SELECT k, n FROM t WHERE k IN ('k1', 'k2') AND n BETWEEN 3 AND 8 AND k LIKE '%1'"),
    "running groups": Asked(
        "SELECT k, count(*) AS c, count(n) AS cn, sum(n) AS s, avg(x) AS m, min(ts) AS first FROM t GROUP BY k", ("k",)
    ),
    "groups by expression": Asked("SELECT n % 3 AS r, upper(k) AS u, max(x) AS m FROM t GROUP BY n % 3, upper(k)", ("r", "u")),
    "groups by alias and number": Asked("SELECT n % 3 AS r, k, max(x) + 1 AS m FROM t GROUP BY r, 2", ("r", "k")),
    "all rows": Asked("SELECT count(*) AS c, sum(n) / count(n) AS mean FROM t"),
    "filter": Asked(
        "SELECT k, count(*) FILTER (WHERE n > 5) AS c, sum(n) FILTER (WHERE x > 0.5) AS s, sum(x) AS sx FROM t GROUP BY k", ("k",)
    ),
    "having": Asked(
        "SELECT k, sum(n) AS s, window.start AS w FROM t GROUP BY k, window(ts, '10 seconds') HAVING count(*) > 6 AND max(n) < 19"
    ),
    "tumbling": Asked("SELECT window.end AS e, k, avg(n) AS m FROM t GROUP BY window(ts, '10 seconds'), k"),
    "sliding": Asked("SELECT k, window.start AS s, count(*) AS c FROM t GROUP BY k, window(ts, '20 seconds', '5 seconds')"),
    "sessions": Asked(
        """SELECT k, session_window.start AS s, session_window.end AS e, count(*) AS c FROM t
           GROUP BY k, session_window(ts, '1 second')"""
    ),
    "sessions with gaps of their own": Asked(
        """SELECT k, session_window.start AS s, session_window.end AS e, count(*) AS c, session_window AS w FROM t
           GROUP BY k, session_window(ts, CASE WHEN n < 5 THEN '4 seconds' WHEN n < 15 THEN concat(n, ' milliseconds') END)"""
    ),
    "window of windows": Asked(
        """SELECT starts, ends, max(c) AS most, count(*) AS keys, sum(s) AS s FROM
           (SELECT k, count(*) AS c, sum(n) AS s, window.start AS starts, window.end AS ends FROM t
            GROUP BY k, window(ts, '20 seconds', '5 seconds'))
           GROUP BY starts, ends"""
    ),
    "window of windows, by its end": Asked(
        """SELECT e, big, count(*) AS keys, max(e) AS again FROM
           (SELECT k, count(*) > 9 AS big, window.end AS e FROM t GROUP BY k, window(ts, '10 seconds')) GROUP BY e, big"""
    ),
    "distinct counts": Asked(
        """SELECT k, window.start AS s, count(*) AS c, count(DISTINCT n) AS d, count(DISTINCT n) FILTER (WHERE x > 0.5) AS db,
           count(DISTINCT n % 3) AS d3, max(k) AS mk FROM t GROUP BY k, window(ts, '20 seconds', '10 seconds')"""
    ),
    "distinct counts without windows": Asked(
        """SELECT k, count(DISTINCT n) AS d, count(DISTINCT n) FILTER (WHERE x > 0.5) AS db, count(DISTINCT n, x > 0.5) AS two,
           sum(DISTINCT n) AS s, avg(DISTINCT n) AS a, max(DISTINCT n) AS m, count(*) AS c FROM t GROUP BY k""",
        ("k",),
    ),
    "distinct counts in sessions": Asked(
        """SELECT k, session_window.start AS s, count(DISTINCT n) AS d, sum(DISTINCT n) AS t FROM t
           GROUP BY k, session_window(ts, '1 second')"""
    ),
    "distinct counts in uneven windows": Asked(
        "SELECT k, window.start AS s, count(DISTINCT n) AS d FROM t GROUP BY k, window(ts, '5 seconds', '2 seconds')"
    ),
    "shares and what is there most often": Asked(
        """SELECT k, window.start AS s, percentile(n, array(0.1, 0.5)) AS p, percentile_approx(n, array(0.5, 0.9), 10000) AS q,
           percentile(n, 0.5, 2) AS f, percentile_cont(0.25) WITHIN GROUP (ORDER BY x DESC) AS pc,
           percentile_disc(0.25) WITHIN GROUP (ORDER BY x) AS pd, percentile_disc(0.25) WITHIN GROUP (ORDER BY n DESC) AS dd,
           mode(n, true) AS m, mode() WITHIN GROUP (ORDER BY n DESC) AS md, try_avg(n) AS ta, try_sum(n) AS ts, try_sum(x) AS tx
           FROM t GROUP BY k, window(ts, '10 seconds')"""
    ),
    "texts in order": Asked(
        """SELECT window.start AS s, listagg(k, ',') WITHIN GROUP (ORDER BY k) AS l, listagg(k) WITHIN GROUP (ORDER BY k DESC) AS d,
           string_agg(n, '-') WITHIN GROUP (ORDER BY n) AS n FROM t GROUP BY window(ts, '10 seconds')"""
    ),
    "distinct counts alone": Asked("SELECT window.end AS e, count(DISTINCT k) AS d FROM t GROUP BY window(ts, '10 seconds')"),
    "distinct counts of nulls": Asked(
        """SELECT k, window.end AS e, count(DISTINCT nullif(n, n)) AS none, count(DISTINCT n) FILTER (WHERE n < 0) AS few FROM t
           GROUP BY k, window(ts, '1 second')"""
    ),
    "distinct counts of nulls alone": Asked(
        "SELECT k, window.end AS e, count(DISTINCT CASE WHEN n < 0 THEN n END) AS d FROM t GROUP BY k, window(ts, '1 second')"
    ),
    "a join on distinct counts of nulls": Asked(
        """SELECT a.k, a.e, a.none, b.c FROM
           (SELECT k, window.end AS e, count(DISTINCT nullif(n, n)) AS none FROM t GROUP BY k, window(ts, '10 seconds')) a
           JOIN (SELECT k, window.end AS e, count(*) AS c FROM t GROUP BY k, window(ts, '10 seconds')) b ON a.k = b.k AND a.e = b.e"""
    ),
    "distinct counts of guarded values": Asked(
        """SELECT k, window.start AS s, count(DISTINCT CASE WHEN n <> 0 THEN 10 / n END) AS d,
           count(DISTINCT CASE WHEN n > 3 THEN 10 div n END) AS f,
           count(DISTINCT CASE WHEN n <> 0 AND n < 9 THEN 10 div n END) AS g FROM t GROUP BY k, window(ts, '10 seconds')"""
    ),
    "guarded values": Asked(
        """SELECT k, window.start AS s, sum(CASE WHEN n <> 0 THEN 10 / n END) AS a, max(10 / n) FILTER (WHERE n <> 0) AS b,
           count(CASE WHEN n = 0 THEN null WHEN 10 / n > 1 THEN 1 END) AS c FROM t GROUP BY k, window(ts, '10 seconds')"""
    ),
    "guarded conditions": Asked("SELECT k, n, 10 / n AS q FROM t WHERE n <> 0 AND 10 / n > 1 AND NOT (n = 1 OR 10 / (n - 1) > 4)"),
    "guarded conditions of a join": Asked(
        """SELECT a.k, a.n, b.m FROM t a JOIN u b ON a.k = b.k AND b.ts >= a.ts AND b.ts < a.ts + INTERVAL 1 SECOND
           AND a.n <> 0 AND 10 / a.n > 1 AND b.m <> 0 AND a.n / b.m > 1"""
    ),
    "union all": Asked("SELECT k, n AS v, 't' AS src FROM t WHERE n > 10 UNION ALL SELECT k, m, 'u' FROM u"),
    "distinct": Asked("SELECT DISTINCT k, n FROM t"),
    "cte": Asked(
        """WITH a AS (SELECT k, n FROM t WHERE n > 5), b (key, total) AS (SELECT k, n + 1 FROM a)
           SELECT b.key, b.total, 1 AS one FROM b WHERE total < 12"""
    ),
    "inner join in time": Asked(
        """SELECT a.k, a.n, b.m, b.ts AS at FROM t AS a JOIN u AS b
           ON a.k = b.k AND b.ts BETWEEN a.ts - INTERVAL 2 SECONDS AND a.ts + INTERVAL 1 SECOND AND b.m > a.n"""
    ),
    "left join": Asked(
        """SELECT a.k, a.n, b.m FROM t a LEFT JOIN u b ON a.k = b.k AND b.ts >= a.ts AND b.ts < a.ts + INTERVAL 1 SECOND
           WHERE b.m IS NULL OR b.m > 2"""
    ),
    "full join": Asked("SELECT a.n, b.m FROM t a FULL OUTER JOIN u b ON a.k = b.k AND a.ts = b.ts"),
    "semi join": Asked("SELECT k, n FROM t LEFT SEMI JOIN u ON t.k = u.k AND t.ts BETWEEN u.ts AND u.ts + INTERVAL 1 SECOND"),
    "anti join": Asked("SELECT k, n FROM t LEFT ANTI JOIN u ON t.k = u.k AND t.ts BETWEEN u.ts AND u.ts + INTERVAL 1 SECOND"),
    "using": Asked("SELECT k, n, m FROM t JOIN u USING (k) WHERE n > 17 AND m > 17"),
    "comma": Asked("SELECT a.n, b.m FROM t a, u b WHERE a.k = b.k AND a.n = b.m + 1 AND a.n > 15"),
    "rows before": Asked(
        """SELECT k, n, ts, lag(n) OVER (PARTITION BY k ORDER BY ts, n, x) AS a, lag(x, 3) OVER (PARTITION BY k ORDER BY ts, n, x) AS b,
           lag(n, 2, n + 1) OVER (PARTITION BY k ORDER BY ts, n, x) + 1 AS c FROM t"""
    ),
    "commas in any order": Asked(
        "SELECT a.n, b.m, c.name FROM t a, names c, u b WHERE upper(b.k) = c.id AND a.k = b.k AND a.n = b.m + 1 AND a.n > 15"
    ),
    "a key in each branch of an OR": Asked(
        "SELECT a.n, b.m FROM t a, u b WHERE (a.k = b.k AND a.n = b.m AND a.n > 15) OR (a.n = b.m AND a.k = b.k AND a.x > 0.9)"
    ),
    "three tables": Asked(
        "SELECT a.n, b.m, c.name FROM t a JOIN u b ON a.k = b.k AND a.ts = b.ts JOIN names c ON upper(a.k) = c.id WHERE c.name <> 'name 2'"
    ),
    "best rows": Asked(
        """SELECT k, n, x, place FROM (SELECT *, row_number() OVER (PARTITION BY k ORDER BY n DESC, x) AS place FROM t) WHERE place <= 3""",
        ("k", "place"),
    ),
    "best rows of windows": Asked(
        """SELECT b.place, k, c, starts, b.e FROM (
             SELECT *, row_number() OVER (PARTITION BY e ORDER BY c DESC, k) AS place FROM (
               SELECT k, count(*) AS c, window.start AS starts, window.end AS e FROM t
               GROUP BY k, window(ts, '20 seconds', '10 seconds'))) AS b
           WHERE place <= 3"""
    ),
    "best rows of groups": Asked(
        """SELECT k, w FROM (
             SELECT k, window.end AS w, row_number() OVER (PARTITION BY window.end ORDER BY count(*) DESC, k) AS place
             FROM t GROUP BY k, window(ts, '10 seconds')) WHERE place = 1"""
    ),
    "best rows of windows and keys, and their windows again": Asked(
        """SELECT e, count(*) AS rows, sum(c) AS s FROM (
             SELECT odd, c, e FROM (
               SELECT odd, c, e, row_number() OVER (PARTITION BY e, odd % 2 ORDER BY c, odd) AS place FROM (
                 SELECT n AS odd, count(*) AS c, window.end AS e FROM t GROUP BY n, window(ts, '10 seconds')))
             WHERE place <= 2)
           GROUP BY e"""
    ),
    "best rows by ascending nulls": Asked(
        """SELECT b.place, b.n, b.x FROM (SELECT n, x, row_number() OVER (ORDER BY n, x DESC) AS place FROM t WHERE k <> 'k1') AS b
           WHERE b.place < 9""",
        ("place",),
    ),
    "first row": Asked(
        """SELECT k, odd, ts, y FROM (SELECT k, ts, x AS y, n % 2 AS odd, row_number() OVER (PARTITION BY upper(t.k), n % 2 ORDER BY x) p
           FROM t) WHERE p = 1""",
        ("k", "odd"),
    ),
    "aggregate of a running aggregate": Asked(
        """SELECT k, count(*) AS c, sum(most) AS s, avg(most) AS a, count(most) AS cm FROM
           (SELECT k, n % 5 AS r, max(n) AS most FROM t GROUP BY k, n % 5) GROUP BY k""",
        ("k",),
    ),
    "rollup": Asked(
        """SELECT k, n % 3 AS r, count(*) AS c, sum(n) AS s, grouping_id() AS g, grouping(k) AS gk FROM t
           GROUP BY ROLLUP (k, n % 3)""",
        ("k", "r", "g"),
    ),
    "cube in windows": Asked(
        """SELECT window.end AS e, k, n, count(x) AS c, max(k) AS m FROM t WHERE n < 5 OR n IS NULL
           GROUP BY window(ts, '10 seconds'), CUBE (k, n) HAVING grouping(n) = 0 OR count(*) > 3"""
    ),
    "grouping sets": Asked(
        "SELECT k, n, sum(n) AS s, grouping_id(k, n) AS g FROM t GROUP BY k, n GROUPING SETS ((k, n), (n), ())", ("k", "n", "g")
    ),
    "rollup beside its key": Asked(
        "SELECT k, n % 3 AS r, count(*) AS c, grouping_id() AS g FROM t GROUP BY window(ts, '100 seconds'), ROLLUP (n % 3), k, ROLLUP (k)"
    ),
    "a set that is there twice": Asked(
        "SELECT k, n, count(*) AS c, grouping_id() AS g FROM t GROUP BY window(ts, '100 seconds'), GROUPING SETS ((k), (n), (k))"
    ),
    "rows of arrays": Asked(
        """SELECT k, n, p, y, e FROM t LATERAL VIEW posexplode(array(n, n + 1)) a AS p, y
           LATERAL VIEW OUTER explode(filter(array(y), v -> v > 9)) b AS e WHERE n > 6"""
    ),
    "rows of maps and structures": Asked(
        """SELECT k, key, value, who, q FROM t LATERAL VIEW explode(map('n', n, 'm', n * 2)) m
           LATERAL VIEW inline(array(struct(k AS who, n AS q))) i WHERE n = 7"""
    ),
    "rows in the list of columns": Asked("SELECT k, explode(array(n, -n)) AS v FROM t WHERE n > 17"),
    "rows of a number of values": Asked("SELECT k, what, v FROM t LATERAL VIEW stack(2, 'n', n, 'm', n + 1) s AS what, v WHERE n > 16"),
    "parts of JSON": Asked(
        """SELECT k, a, b FROM t LATERAL VIEW json_tuple(concat('{"a":', n, ',"b":"', k, '"}'), 'a', 'b') j AS a, b WHERE n > 16"""
    ),
    "windows as columns": Asked("SELECT k, n, window(ts, '10 seconds') AS w FROM t WHERE n > 15"),
    "sliding windows as columns": Asked("SELECT n, window(ts, '20 seconds', '5 seconds') FROM t WHERE n > 17"),
    "a window that is selected": Asked("SELECT window, k, count(*) AS c FROM t GROUP BY window(ts, '10 seconds'), k"),
    "filter of aggregates that are made of others": Asked(
        """SELECT k, count_if(n > 5) FILTER (WHERE x > 0.5) AS c, var_pop(n) FILTER (WHERE n > 3) AS v,
           max_by(n, x) FILTER (WHERE n < 9) AS m, median(n) FILTER (WHERE x < 0.9) AS d FROM t GROUP BY k, window(ts, '20 seconds')"""
    ),
    "regression": Asked(
        """SELECT k, regr_slope(x, n) AS s, regr_intercept(x, n) AS i, regr_r2(x, n) AS r, regr_avgx(x, n) AS ax, regr_avgy(x, n) AS ay,
           regr_sxx(x, n) AS xx, regr_syy(x, n) AS yy, regr_sxy(x, n) AS xy, percentile_approx(n, 0.5) AS p, try_sum(n) AS t
           FROM t GROUP BY k, window(ts, '20 seconds')"""
    ),
    "null-safe join": Asked(
        """SELECT a.k, a.n, b.m FROM t a JOIN u b ON a.n <=> b.m AND a.k = b.k
           AND b.ts BETWEEN a.ts - INTERVAL 2 SECONDS AND a.ts + INTERVAL 2 SECONDS"""
    ),
    "in a query": Asked(
        """SELECT k, n FROM t WHERE n > 3 AND k IN (SELECT k FROM u WHERE m > 5
           AND u.ts BETWEEN t.ts AND t.ts + INTERVAL 1 SECOND)"""
    ),
    "exists": Asked(
        """SELECT k, n FROM t WHERE EXISTS (SELECT 1 FROM u WHERE u.k = t.k AND m > 5
           AND u.ts BETWEEN t.ts AND t.ts + INTERVAL 1 SECOND)"""
    ),
    "not exists": Asked(
        """SELECT k, n FROM t WHERE NOT EXISTS (SELECT 1 FROM u WHERE u.k = t.k
           AND u.ts BETWEEN t.ts AND t.ts + INTERVAL 1 SECOND)"""
    ),
    "rows": Asked(
        """SELECT k, n, ts, avg(n) OVER (PARTITION BY k ORDER BY ts, n, x ROWS BETWEEN 4 PRECEDING AND CURRENT ROW) AS m,
           max(x) OVER (PARTITION BY k ORDER BY ts, n, x ROWS BETWEEN 4 PRECEDING AND CURRENT ROW) + 1 AS mx FROM t"""
    ),
    "spans of time": Asked(
        """SELECT k, n, ts, avg(n) OVER (PARTITION BY k ORDER BY ts RANGE BETWEEN INTERVAL 2 SECONDS PRECEDING AND CURRENT ROW) AS m,
           max(x) OVER (PARTITION BY k ORDER BY ts RANGE BETWEEN INTERVAL 3 SECONDS PRECEDING AND INTERVAL '700' MILLISECONDS PRECEDING)
           + 1 AS mx, count(*) OVER (PARTITION BY n % 3, k ORDER BY ts RANGE INTERVAL '1' MINUTE PRECEDING) AS c FROM t"""
    ),
    "rows that follow": Asked(
        """SELECT k, n, x, ts, lead(n) OVER w AS a, lead(x, 3, -1) OVER w AS b, lag(x) OVER w AS c, ts - lead(ts) OVER w AS e,
           sum(n) OVER (PARTITION BY k ORDER BY ts, n, x ROWS BETWEEN 2 PRECEDING AND 1 FOLLOWING) AS d,
           last_value(x) OVER (PARTITION BY k ORDER BY ts, n, x ROWS BETWEEN 1 FOLLOWING AND 4 FOLLOWING) AS f,
           min(n) OVER (PARTITION BY n % 3 ORDER BY ts RANGE BETWEEN CURRENT ROW AND CURRENT ROW) AS g
           FROM t WINDOW w AS (PARTITION BY k ORDER BY ts, n, x)"""
    ),
    "windows by the time of the row that follows": Asked(
        """SELECT window.start AS s, k, count(*) AS c, max(gap) AS g FROM
           (SELECT k, lead(ts) OVER w AS until, n - lead(n) OVER w AS gap FROM t WINDOW w AS (PARTITION BY k ORDER BY ts, n, x))
           GROUP BY window(until, '10 seconds'), k"""
    ),
    "all rows so far": Asked(
        """SELECT k, n, x, ts, sum(n) OVER (PARTITION BY k ORDER BY ts) AS a, avg(x) OVER w AS b, max(x) OVER w AS c, count(n) OVER w AS d,
           row_number() OVER w AS e, rank() OVER (PARTITION BY k ORDER BY ts, n) AS f, dense_rank() OVER (PARTITION BY k ORDER BY ts) AS g,
           first_value(n) OVER w AS h, sum(x) OVER (PARTITION BY k ORDER BY ts, n, x ROWS BETWEEN UNBOUNDED PRECEDING AND 2 PRECEDING) AS i,
           sum(x) FILTER (WHERE n > 5) OVER w AS m, count(*) FILTER (WHERE n IS NULL) OVER w AS o,
           min(n) OVER (ORDER BY ts RANGE BETWEEN UNBOUNDED PRECEDING AND INTERVAL 1 SECOND PRECEDING) AS j,
           sum(x) OVER (PARTITION BY n ORDER BY ts, k, x ROWS BETWEEN UNBOUNDED PRECEDING AND 1 FOLLOWING) AS l
           FROM t WINDOW w AS (PARTITION BY k ORDER BY ts, n, x)"""
    ),
    "deviations": Asked(
        """SELECT k, n, x, ts, stddev(x) OVER w AS a, var_pop(n) OVER (PARTITION BY k ORDER BY ts) AS b, variance(x) FILTER (WHERE n > 5)
           OVER (PARTITION BY k ORDER BY ts RANGE BETWEEN INTERVAL 2 SECONDS PRECEDING AND CURRENT ROW) AS c,
           stddev_pop(n) OVER (PARTITION BY k ORDER BY ts, n, x ROWS BETWEEN 3 PRECEDING AND 2 FOLLOWING) AS d, bool_and(n > 3) OVER w AS e,
           max_by(x, n) OVER (PARTITION BY k ORDER BY ts RANGE BETWEEN INTERVAL 2 SECONDS PRECEDING AND CURRENT ROW) IS NULL AS f,
           regr_count(x, n) OVER w AS g FROM t WINDOW w AS (PARTITION BY k ORDER BY ts, n, x)"""
    ),
    "two different OVER": Asked(
        """SELECT k, n, ts, sum(n) OVER (PARTITION BY k ORDER BY ts, n, x ROWS 3 PRECEDING) AS a,
           max(x) OVER (PARTITION BY k ORDER BY ts, n, x ROWS 1 PRECEDING) AS b, lag(x) OVER (PARTITION BY n ORDER BY ts, k, x) AS c
           FROM t"""
    ),
    "spans of time ahead": Asked(
        """SELECT k, n, ts,
           avg(n) OVER (PARTITION BY k ORDER BY ts RANGE BETWEEN INTERVAL 2 SECONDS PRECEDING AND INTERVAL 1 SECOND FOLLOWING) AS m,
           max(x) OVER (PARTITION BY k ORDER BY ts RANGE BETWEEN INTERVAL '700' MILLISECOND FOLLOWING AND INTERVAL 3 SECOND FOLLOWING) AS y,
           count(*) OVER (PARTITION BY k ORDER BY ts RANGE BETWEEN CURRENT ROW AND INTERVAL '1' MINUTE FOLLOWING) AS c FROM t"""
    ),
    "best rows, nulls last": Asked(
        "SELECT k, n, x, p FROM (SELECT *, row_number() OVER (PARTITION BY k ORDER BY n DESC NULLS FIRST, x) AS p FROM t) WHERE p <= 9",
        ("k", "p"),
    ),
    "having by name": Asked("SELECT k, count(*) AS c, max(n) AS n FROM t GROUP BY k, window(ts, '9 seconds') HAVING c > 6 AND max(n) < 19"),
    "group by all": Asked("SELECT k, n % 2 AS odd, count(*) AS c, 1 AS one FROM t GROUP BY ALL", ("k", "odd")),
    "windows that begin before": Asked(
        "SELECT window.start AS s, window.end AS e, count(*) AS c FROM t GROUP BY window(ts, '10 seconds', '4 seconds', '-3 seconds')"
    ),
    "windows of rows": Asked(
        """SELECT k, n, window(ts, '10 seconds', '10 seconds', '-1 second').start AS s, n + 1 AS m FROM t
           WHERE window(ts, '1 minute').end > TIMESTAMP_NTZ '2023-01-01 00:00:00' AND n > 5"""
    ),
    "sliding windows of rows": Asked(
        "SELECT k, window(ts, '10 seconds', '4 seconds').start AS s, window(ts, '10 seconds', '4 seconds').end AS e FROM t WHERE n > 15"
    ),
    "in an order": Asked(
        """SELECT k, window.start AS s, listagg(CAST(n AS STRING), ',') WITHIN GROUP (ORDER BY n DESC, ts) AS names,
           listagg(CAST(n AS STRING)) WITHIN GROUP (ORDER BY n % 3, n DESC NULLS FIRST) FILTER (WHERE x > 0.3) AS part,
           listagg(DISTINCT k, '|') WITHIN GROUP (ORDER BY k DESC) AS ks,
           percentile_cont(0.3) WITHIN GROUP (ORDER BY x DESC) FILTER (WHERE n > 3) AS p,
           listagg(CAST(n AS STRING), ',') WITHIN GROUP (ORDER BY n DESC NULLS FIRST) AS f
           FROM t GROUP BY k, window(ts, '10 seconds')"""
    ),
    "rows of the text": Asked(
        """SELECT t.k, n, v.name, w.col1 FROM t
           LEFT JOIN VALUES (1, 'one'), (2, NULL), (7, 'seven'), (7, 'again') AS v(id, name) ON n = v.id
           CROSS JOIN (VALUES (1.5), (2)) AS w WHERE t.k LIKE ANY ('k1', '%2') AND t.k NOT LIKE ALL ('k1', 'x')"""
    ),
    "rows of the text by name": Asked("SELECT k, name FROM t JOIN VALUES (1, 'one'), (7L, 'seven') AS v(n, name) USING (n) WHERE x > .2"),
    "of bits, tops and intervals": Asked(
        """SELECT k, hex(bitmap_construct_agg(bitmap_bit_position(n))) AS b, hex(bitmap_or_agg(CAST(k AS BINARY))) AS o,
           hex(bitmap_and_agg(CAST(k AS BINARY))) AS a, approx_top_k(n, 3)[0].count AS often, size(approx_top_k(n, 2)) AS tops,
           sum(ts - TIMESTAMP '2023-11-14 22:00:00') AS s, avg(ts - TIMESTAMP '2023-11-14 22:00:00') FILTER (WHERE n > 3) AS m,
           schema_of_variant_agg(CAST(IF(n > 17, x, n) AS VARIANT)) AS v
           FROM t WHERE n IS NOT NULL GROUP BY k, window(ts, '20 seconds')"""
    ),
    "of distinct values": Asked(
        """SELECT k, median(DISTINCT n) AS m, stddev(DISTINCT n) AS d, var_pop(DISTINCT n) AS v, count_if(DISTINCT n > 3) AS c,
           count(n, x) AS two, any(n > 17) AS a, sum(DISTINCT n) AS s FROM t GROUP BY k, window(ts, '20 seconds')"""
    ),
    "several in a query": Asked(
        """SELECT k, n, x FROM t WHERE n > 3 AND (t.k, n) IN (SELECT k, m FROM u WHERE u.m < 15
           AND u.ts BETWEEN t.ts AND t.ts + INTERVAL 3 SECONDS)"""
    ),
    "several in a list": Asked(
        """SELECT k, n, struct(k, n) IN (struct('k1', 3L), struct('k2', nullif(n, 4))) AS r FROM t
           WHERE (k, n) IN (('k1', 3L), ('k2', 4L)) OR (k, n) NOT IN (('k3', 7L), ('k1', 8L), ('k0', 9L)) AND x > 0.9"""
    ),
    "over windows, beside them": Asked(
        """SELECT k, window.end AS e, count(*) - lag(count(*)) OVER (PARTITION BY k ORDER BY window.end) AS more,
           sum(max(n)) OVER (PARTITION BY k ORDER BY window.end ROWS BETWEEN 1 PRECEDING AND CURRENT ROW) AS s
           FROM t GROUP BY k, window(ts, '10 seconds')"""
    ),
    "rows by what is over them": Asked(
        """SELECT k, n, ts FROM t WHERE x > 0.1
           QUALIFY max(x) OVER (PARTITION BY k ORDER BY ts, n, x ROWS BETWEEN 4 PRECEDING AND CURRENT ROW) < 0.8 AND n > 3"""
    ),
    "the best of windows by their condition": Asked(
        """SELECT k, c, e FROM (SELECT k, count(*) AS c, window.end AS e FROM t GROUP BY k, window(ts, '10 seconds'))
           QUALIFY row_number() OVER (PARTITION BY e ORDER BY c DESC, k) <= 2"""
    ),
    "the best by their condition": Asked(
        "SELECT k, n % 2 AS odd, x, n FROM t QUALIFY row_number() OVER (PARTITION BY k, odd ORDER BY n DESC, x) = 1", ("k", "odd")
    ),
    "places of windows in a query": Asked(
        """SELECT k, window.end AS e, sum(p * c) AS s, max(q) AS q FROM (SELECT k, window.end AS e, count(*) AS c,
           rank() OVER (PARTITION BY k ORDER BY window.end) AS p, row_number() OVER (PARTITION BY k ORDER BY window.end) AS q
           FROM t GROUP BY k, window(ts, '5 seconds')) GROUP BY k, window(e, '20 seconds')"""
    ),
    "several orders that wait for rows": Asked(
        """SELECT k, n, x, ts, lead(n, 2) OVER (PARTITION BY k ORDER BY ts, n, x) AS a,
           lead(x, 1, -1) OVER (PARTITION BY n ORDER BY ts, k, x) AS b,
           sum(x) OVER (PARTITION BY n % 3, k ORDER BY ts, x, n ROWS BETWEEN 2 PRECEDING AND 2 FOLLOWING) AS c, lead(k) OVER w AS d,
           max(k) OVER w AS e, count(*) OVER (PARTITION BY k ORDER BY ts) AS f FROM t WINDOW w AS (ORDER BY ts, k, n, x)"""
    ),
    "all rows so far of decimals and texts": Asked(
        """SELECT k, n, x, sum(CAST(n AS DECIMAL(12, 3))) OVER w AS a, avg(CAST(x AS DECIMAL(20, 9))) OVER w AS b,
           max(concat(k, n)) OVER w AS c,
           min(concat(k, n)) OVER (PARTITION BY n % 5 ORDER BY ts, k, x ROWS BETWEEN UNBOUNDED PRECEDING AND 1 FOLLOWING) AS d,
           nth_value(k, 4) OVER (PARTITION BY n ORDER BY ts, k, x ROWS UNBOUNDED PRECEDING) AS e, max(struct(n, k)) OVER w AS f,
           min(CAST(n AS DECIMAL(38, 10))) OVER (ORDER BY ts RANGE BETWEEN UNBOUNDED PRECEDING AND INTERVAL 1 SECOND PRECEDING) AS g,
           last_value(array(n)) OVER w AS h, avg(n + 9007199254740990) OVER (PARTITION BY k ORDER BY ts) AS i
           FROM t WINDOW w AS (PARTITION BY k ORDER BY ts, n, x ROWS UNBOUNDED PRECEDING)"""
    ),
}  # fmt: skip


def rows_of(seed: int, count: int, value: str) -> pa.Table:
    """Half a second apart in the middle, shuffled by up to a second; one in ten values is null."""
    random = np.random.default_rng(seed)
    times = np.arange(count) * 100_000 // 100_000 * 100_000 + 1_700_000_000_000_000
    order = np.argsort(np.arange(count) + random.integers(0, 10, count), kind="stable")
    values = random.integers(0, 20, count)
    columns = {
        "ts": pa.array(times[order], pa.timestamp("us")),
        "k": pa.array([f"k{i}" for i in random.integers(0, 8, count)]),
        value: pa.array([None if null else int(v) for v, null in zip(values, random.random(count) < 0.1)], pa.int64()),
        "x": pa.array(random.random(count)),
    }
    return pa.table(columns)


T, U = rows_of(1, 600, "n"), rows_of(2, 300, "m").drop_columns(["x"])
NAMES = pa.table({"id": [f"K{i}" for i in range(6)], "name": [f"name {i}" for i in range(6)]})


@pytest.fixture(scope="module", autouse=True)
def tables(spark: Any) -> None:
    # Row by row: pandas would make a number with nulls a double.
    for name, table in (("t", T), ("u", U), ("names", NAMES)):
        types = {pa.timestamp("us"): "timestamp", pa.string(): "string", pa.int64(): "bigint", pa.float64(): "double"}
        schema = ", ".join(f"{f.name} {types[f.type]}" for f in table.schema)
        spark.createDataFrame([tuple(row.values()) for row in table.to_pylist()], schema).createOrReplaceTempView(name)


def run(sql: str, cut: Cut) -> pa.Table:
    flow = ef.Dataflow("q")

    def stream(name: str, table: pa.Table) -> ef.Stream:
        parts = [table.take(list(range(i, table.num_rows, cut.inputs))).combine_chunks().to_batches() for i in range(cut.inputs)]
        rows = flow.source(ef.sources.memory(parts), name=name)
        return rows.with_watermark("ts", "2 seconds") if "ts" in table.schema.names else rows

    named = {"t": T, "u": U, "names": NAMES}
    read = {
        name: stream(name, table) for name, table in named.items() if f" {name} " in f"{sql} ".replace("\n", " ").replace(")", " ").lower()
    }
    ef.sql(sql, read).to(ef.sinks.memory("out"), name="out")
    planned = layout(flow.network, sites=cut.sites, partitions=cut.partitions)
    rows = min(cut.epoch_rows, 97)
    world = SimWorld(planned, sites=cut.sites, seed=cut.seed, options=FlowOptions(epoch_rows=rows, linger_ms=1), read_rows=rows)
    world.run_until_quiet()
    return world.output("out")


@pytest.mark.parametrize("name", one_in(6, ASKED))
def test_a_text_gives_what_batch_spark_gives(spark: Any, name: str) -> None:
    asked = ASKED[name]
    expected = Answer.of(spark.sql(asked.sql))
    assert expected.rows, "a query without rows proves nothing"
    for cut in CUTS[1:]:
        got = run(asked.sql, cut)
        if name == "all rows":
            got = got.slice(got.num_rows - 1)
        assert_same_rows(newest_per_key(got, asked.newest) if asked.newest else got, expected)


OF_NOTHING = (
    "SELECT count(*) AS c, sum(n) AS s, avg(x) AS m, min(k) AS low, max(ts) AS late, stddev(n) AS d, count(n) + 1 AS more FROM t",
    "SELECT count(*) AS c, coalesce(max(n), -1) AS m FROM t HAVING count(*) < 5",
    "SELECT count(*) AS c FROM t HAVING count(*) > 5",
    "SELECT k, count(*) AS c FROM t GROUP BY k",
    "SELECT count(*) AS ks, sum(c) AS c FROM (SELECT k, count(*) AS c FROM t GROUP BY k)",
    "SELECT first(n) AS f, last(k) AS l, approx_count_distinct(k) AS a FROM t",
    "SELECT count(*) AS c, sum(c) AS s FROM (SELECT k, count(*) AS c FROM t GROUP BY k HAVING count(*) % 2 = 1)",
)


@pytest.mark.parametrize("given", [0, 1, 600])
def test_totals_of_whatever_there_is_are_one_row_in_complete_mode(spark: Any, given: int) -> None:
    """Of no rows, too, and of groups that were all taken back."""
    rows = T.sort_by("k").slice(0, given)
    spark.table("t").createOrReplaceTempView("all_rows")
    try:
        values = [tuple(row.values()) for row in rows.to_pylist()]
        spark.createDataFrame(values, spark.table("all_rows").schema).createOrReplaceTempView("t")
        for sql in OF_NOTHING:
            if "first(" in sql and given > 1:
                continue  # A table has no order.
            flow = ef.Dataflow("q")
            source = ef.sources.memory([rows.combine_chunks().to_batches()], schema=T.schema)
            made = ef.sql(sql, {"t": flow.source(source, name="t").with_watermark("ts", "2 seconds")}, output_mode="complete")
            made.to(ef.sinks.memory("out"), name="out")
            world = SimWorld(layout(flow.network, sites=3), sites=3, replicas=2, options=FlowOptions(epoch_rows=97), read_rows=97)
            world.run_until_quiet()
            expected = spark.sql(sql)
            got = world.output("out")
            wanted = expected.count()
            assert got.num_rows >= wanted, sql
            if wanted:
                assert_same_rows(got.slice(got.num_rows - wanted), expected)
            elif given == 0:
                assert got.num_rows == 0, sql
    finally:
        spark.table("all_rows").createOrReplaceTempView("t")
