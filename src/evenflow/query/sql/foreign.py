"""What other systems' SQL has and Spark's has not, and what is written in its place."""

from __future__ import annotations

import re
from typing import Final

_WINDOW: Final = "write GROUP BY window(time, size[, slide]), whose bounds are window.start and window.end"
_NOW: Final = (
    "it gives something else each time, and a replayed row must give the same result; compare columns, or count in windows of event time"
)

INSTEAD: Final[dict[str, str]] = {
    **dict.fromkeys(("tumble", "hop", "tumble_start", "tumble_end", "hop_start", "hop_end"), _WINDOW),
    **dict.fromkeys(("session", "session_start", "session_end"), "write GROUP BY session_window(time, gap), with .start and .end"),
    "cumulate": "write windows of its step, GROUP BY window(time, step), and their sums OVER (PARTITION BY ... ORDER BY ...) around them",
    **dict.fromkeys(("proctime", "mz_now", "mz_logical_timestamp", "current_row_timestamp", "sysdate", "getdate"), _NOW),
    **dict.fromkeys(("json_value", "json_query", "json_extract", "json_extract_scalar", "json_extract_path_text"),
                    "write get_json_object(text, '$.a')"),
    "date_bin": "write time_bucket(size, time[, origin]), or GROUP BY window(time, size) for windows that come once",
    "time_bucket_gapfill": "write FROM GAP_FILL(TABLE t, ...)",
    "string_to_array": "write split(text, pattern)",
    "array_length": "write size(array)",
    "unnest": "write explode(array), or LATERAL VIEW explode(array)",
    "generate_series": "write explode(sequence(first, last))",
    "to_timestamp_millis": "write timestamp_millis(number)",
    "strpos": "write locate(part, text)",
    "regexp_matches": "write regexp_extract_all(text, pattern)",
    "array_agg_distinct": "write collect_set(x)",
    "group_concat": "write listagg(x, ',')",
    "topk": "write approx_top_k(x, n), or row_number() <= n",
    "earliest_by_offset": "write first(x)",
    "latest_by_offset": "write last(x)",
}  # fmt: skip
"""Functions, by name. Spark has none of them."""

_HINTS: Final = tuple((re.compile(pattern, re.IGNORECASE), remedy) for pattern, remedy in (
    (r"\bSESSION\s+WITH\s+GAP\b", "a frame by gaps is not available; write GROUP BY session_window(time, gap)"),
    (r"\bSESSION\s*\(", "write GROUP BY session_window(time, gap), keys, whose bounds are session_window.start and .end"),
    (r"\bWINDOW\s+(TUMBLING|HOPPING)\b", "write GROUP BY window(time, size[, slide])"),
    (r"\bWINDOW\s+SESSION\b", "write GROUP BY session_window(time, gap)"),
    (r"\bWATERMARK\s+\S+\s+DELAY\b", "give the stream a watermark before: with_watermark('time', '10 seconds'), or OPTIONS of a source"),
    (r"\b(FLOOR|CEIL)\s*\([^()]*\bTO\s+[A-Z]+\s*\)", "write date_trunc('HOUR', time)"),
    (r"=>\s*TABLE\b", "write GROUP BY window(time, size[, slide]), whose bounds are window.start and window.end"),
    (r"\bEMIT\b", "what is put out when is output_mode=: 'append' is a window once, 'changelog' every change; leave EMIT out"),
))  # fmt: skip


def hint(text: str) -> str:
    """What is written in place of something in a text that cannot be read, as the end of a message; nothing if nothing is known."""
    return next((f"; {remedy}" for pattern, remedy in _HINTS if pattern.search(text)), "")
