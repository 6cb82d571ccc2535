"""Queries that are written as SQL."""

from __future__ import annotations

from typing import Any

from evenflow.bench.corpus.query import Chapter, Inputs, sql

chapter = Chapter("SQL")


def timely(given: Inputs, text: str) -> Any:
    """The query over views of the inputs; `timely` is `events` with its watermark."""
    given.events.withWatermark("ts", "10 seconds").createOrReplaceTempView("timely")
    given.impressions.withWatermark("shown", "10 seconds").createOrReplaceTempView("shown")
    given.clicks.withWatermark("clicked", "20 seconds").createOrReplaceTempView("clicked")
    return sql(given, text)


@chapter
def a_selection(given: Inputs) -> Any:
    return sql(given, "SELECT id, device, reading * 1.8 + 32 AS fahrenheit FROM events WHERE kind = 'temp'")


@chapter
def windows(given: Inputs) -> Any:
    return timely(
        given,
        "SELECT window, device, count(*) AS n, avg(reading) AS m FROM timely GROUP BY window(ts, '30 seconds'), device HAVING count(*) > 1",
    )


@chapter
def bounds_of_windows(given: Inputs) -> Any:
    return timely(
        given, "SELECT window.start AS at, kind, sum(level) AS s FROM timely GROUP BY window(ts, '20 seconds', '10 seconds'), kind"
    )


@chapter
def sessions(given: Inputs) -> Any:
    return timely(
        given, "SELECT session_window.start AS at, device, count(*) AS n FROM timely GROUP BY session_window(ts, '5 seconds'), device"
    )


@chapter
def a_join(given: Inputs) -> Any:
    return timely(
        given,
        "SELECT s.ad, site, person FROM shown s JOIN clicked c ON s.ad = c.ad AND clicked BETWEEN shown AND shown + INTERVAL 15 SECONDS",
    )


@chapter
def an_outer_join(given: Inputs) -> Any:
    return timely(
        given,
        "SELECT s.ad, shown, person FROM shown s LEFT JOIN clicked c "
        "ON s.ad = c.ad AND clicked BETWEEN shown AND shown + INTERVAL 15 SECONDS",
    )


@chapter
def a_table(given: Inputs) -> Any:
    return timely(given, "SELECT /*+ BROADCAST(d) */ id, owner FROM timely t JOIN devices d ON t.device = d.device WHERE reading > top")


@chapter
def with_names(given: Inputs) -> Any:
    return timely(
        given,
        "WITH warm AS (SELECT * FROM timely WHERE reading > 20), n AS (SELECT window, count(*) AS n FROM warm "
        "GROUP BY window(ts, '30 seconds')) "
        "SELECT window.end AS at, n FROM n WHERE n > 2",
    )


@chapter
def a_union(given: Inputs) -> Any:
    return timely(given, "SELECT ad, shown AS at FROM shown UNION ALL SELECT ad, clicked FROM clicked WHERE person IS NOT NULL")


@chapter
def distinct_rows(given: Inputs) -> Any:
    return timely(given, "SELECT DISTINCT device, kind FROM timely")


@chapter
def lambdas(given: Inputs) -> Any:
    return timely(
        given,
        "SELECT id, transform(filter(marks, x -> x IS NOT NULL), x -> x * 10) AS t, "
        "aggregate(marks, 0L, (a, x) -> a + coalesce(x, 0)) AS s FROM timely WHERE id < 60",
    )


@chapter
def a_query_in_a_query(given: Inputs) -> Any:
    return timely(
        given,
        "SELECT device, max(m) AS most, window.start AS at FROM (SELECT window_time(window) AS t, device, m FROM "
        "(SELECT window, device, avg(reading) AS m FROM timely "
        "GROUP BY window(ts, '10 seconds'), device)) GROUP BY device, window(t, '1 minute')",
    )


@chapter
def many_functions(given: Inputs) -> Any:
    return timely(
        given,
        "SELECT id, date_format(ts, 'HH:mm:ss') AS t, regexp_replace(label, '[^a-z]', '') AS r, get_json_object(body, '$.deep.ok') AS ok, "
        "array_join(tags, ',') AS tags, if(level > 3, 'a', 'b') AS c, nvl(amount, 0) AS a FROM timely WHERE id BETWEEN 3 AND 70",
    )


@chapter
def exploded(given: Inputs) -> Any:
    return timely(
        given,
        "SELECT window.start AS at, tag, count(*) AS n FROM timely LATERAL VIEW explode(tags) x AS tag "
        "GROUP BY window(ts, '30 seconds'), tag",
    )


@chapter
def a_subquery_as_condition(given: Inputs) -> Any:
    return timely(given, "SELECT id, device FROM timely WHERE device IN (SELECT device FROM devices WHERE top > 20)")


@chapter.update("device")
def running(given: Inputs) -> Any:
    return sql(given, "SELECT device, sum(level) AS s, count(DISTINCT kind) FILTER (WHERE false) AS none FROM events GROUP BY device")


@chapter.update("kind")
def running_with_a_condition(given: Inputs) -> Any:
    return sql(given, "SELECT kind, count(*) AS n, count(*) FILTER (WHERE level > 3) AS high FROM events GROUP BY kind")


@chapter.complete
def the_whole(given: Inputs) -> Any:
    return sql(given, "SELECT kind, count(*) AS n FROM events GROUP BY kind ORDER BY n DESC, kind LIMIT 2")


@chapter
def pipes(given: Inputs) -> Any:
    return timely(
        given,
        "FROM timely |> WHERE level > 2 |> EXTEND level * 2 AS twice "
        "|> AGGREGATE sum(twice) AS s GROUP BY window(ts, '30 seconds') AS w |> SELECT w.start AS at, s",
    )
