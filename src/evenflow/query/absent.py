"""Methods of PySpark's DataFrames that streams do not have, and what to write in their place."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

_LEAVE: Final = "leave it out: rows are dealt out by their keys, and nothing is computed twice"
_ENDLESS: Final = (
    "a stream has no end: send its rows to a sink, .to(ef.sinks.console()) or .to(ef.sinks.memory('out')); on rows of a test, "
    "evenflow.testing.run"
)
_BY_SQL: Final = "write it with ef.sql"
_IN_BATCHES: Final = ".flat_map(f, 'columns and types') calls f with Arrow batches"
_BY_KEY: Final = ".key_by(...).process(ef.Processor) keeps state of your own per key"
METHODS: Final[Mapping[str, str]] = {
    **dict.fromkeys(("cache", "persist", "unpersist", "checkpoint", "localCheckpoint", "coalesce", "hint", "withMetadata"), _LEAVE),
    **dict.fromkeys(("repartitionByRange", "repartitionById", "sortWithinPartitions"), _LEAVE),
    **dict.fromkeys(("show", "collect", "count", "head", "first", "take", "tail", "isEmpty", "foreach", "toLocalIterator"), _ENDLESS),
    **dict.fromkeys(("toPandas", "toArrow", "describe", "summary", "approxQuantile", "stat"), _ENDLESS),
    **dict.fromkeys(("write", "writeStream", "writeTo"), ".to(ef.sinks.parquet(path)) or another sink, and engine.start(stream.flow)"),
    **dict.fromkeys(("limit", "offset"), ".top(n, order_by=...) has the first rows of a window; ef.sql in complete mode takes LIMIT"),
    "orderBy": "a stream has no end to sort at: .sort() sorts by event time; ef.sql in complete mode takes ORDER BY",
    **dict.fromkeys(("rollup", "cube", "groupingSets"), f"{_BY_SQL}: GROUP BY ROLLUP (a, b)"),
    "pivot": f"{_BY_SQL}: FROM t PIVOT (sum(x) FOR k IN ('a', 'b')); or sum of CASE WHEN k = 'a' THEN x END",
    "crossJoin": f"{_BY_SQL}, or .join(table, condition=...) with columns that are equal",
    "lateralJoin": f"{_BY_SQL}: LATERAL",
    **dict.fromkeys(("sample", "sampleBy", "randomSplit"), "take rows by a hash of theirs: .where('pmod(hash(id), 100) < 5')"),
    **dict.fromkeys(("mapInPandas", "mapInArrow"), _IN_BATCHES),
    **dict.fromkeys(("applyInPandas", "applyInArrow", "apply", "applyInPandasWithState", "transformWithState"), _BY_KEY),
    **dict.fromkeys(("transformWithStateInPandas", "cogroup"), _BY_KEY),
    "observe": "what it counts is a query of its own: .agg(...) of the same stream",
    **dict.fromkeys(("createOrReplaceTempView", "createTempView"), "ef.sql(text, {'name': stream}) names it"),
    **dict.fromkeys(("printSchema", "dtypes"), "stream.schema and stream.columns say it, and repr(stream) does"),
    "explain": "stream.flow.explain() does",
    "colRegex": "choose from stream.columns",
    **dict.fromkeys(("rdd", "sparkSession"), "there is none"),
    "isStreaming": "every stream is",
}  # fmt: skip


def absent(owner: str, name: str, columns: list[str]) -> str:
    """The message of an AttributeError."""
    if name in METHODS:
        return f"{owner} has no {name}: {METHODS[name]}"
    if name in columns:
        return f"{owner} has no attribute {name!r}: {by_name(name)}"
    return f"{owner!r} object has no attribute {name!r}"


def by_name(column: object) -> str:
    """How a column is said, to who looks for it in its stream."""
    return f"write the column as text, {column!r}, or as F.col({column!r})"


__all__ = ["METHODS", "absent", "by_name"]
