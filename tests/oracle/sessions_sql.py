"""The network of examples/network_sessions.py as batch Spark SQL over a view `packets`, with the same order and tie-breaks."""

from __future__ import annotations

from collections.abc import Mapping

SESSIONS = """
WITH numbered AS (
  SELECT *,
         CASE WHEN (coalesce(tcp_flags, 0) & 5) <> 0 THEN 1 ELSE 0 END AS ends,
         row_number() OVER (PARTITION BY src, dst ORDER BY ts, sport, dport, length, tcp_flags) AS n
  FROM packets
  WHERE proto = 6
), parts AS (
  SELECT *,
         coalesce(sum(ends) OVER (PARTITION BY src, dst ORDER BY n ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING), 0) AS session
  FROM numbered
), ended AS (
  SELECT src, dst, min(ts) AS start, max(ts) AS ts, count(*) AS packets, sum(coalesce(length, 0)) AS bytes,
         max_by(least(coalesce(sport, 0), coalesce(dport, 0)), n) AS port
  FROM parts
  GROUP BY src, dst, session
  HAVING max(ends) = 1
)
SELECT {app} AS app, src, dst, timestampdiff(MICROSECOND, start, ts) / 1000000D AS dur, packets, bytes, ts
FROM ended
"""

STATISTICS = """
WITH sessions AS ({sessions}), windows AS (
  SELECT app, src, ts,
         max(dur) OVER latest AS max_dur,
         avg(dur) OVER latest AS avg_dur,
         row_number() OVER (PARTITION BY app, src ORDER BY ts, dst, dur, packets, bytes) AS n
  FROM sessions
  WINDOW latest AS (PARTITION BY app, src ORDER BY ts, dst, dur, packets, bytes ROWS BETWEEN {before} PRECEDING AND CURRENT ROW)
)
SELECT app, src, ts, max_dur, avg_dur FROM windows WHERE n % {slide} = 0
"""


def sessions_sql(applications: Mapping[int, str]) -> str:
    """One row per session, with the columns of `SessionTracker.output`. applications: name by port; "other" for the rest."""
    cases = " ".join(f"WHEN {port} THEN '{name}'" for port, name in applications.items())
    return SESSIONS.format(app=f"CASE port {cases} ELSE 'other' END")


def statistics_sql(applications: Mapping[int, str], *, history: int = 100, slide: int = 10) -> str:
    """The whole network: app, src, ts, max_dur, avg_dur after every `slide` sessions of (app, src), over the last `history`."""
    return STATISTICS.format(sessions=sessions_sql(applications), before=history - 1, slide=slide)
