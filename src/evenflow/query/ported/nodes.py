"""Nodes of Spark's plans by their kinds: for which of them a stream keeps something, which are joins of what kind, and what to do about
those that have no box."""

from __future__ import annotations

from typing import Final

STATEFUL: Final = frozenset({
    "Aggregate", "Deduplicate", "DeduplicateWithinWatermark", "Distinct", "EventTimeWatermark", "GlobalLimit", "LocalLimit", "Sort",
    "FlatMapGroupsWithState", "FlatMapGroupsInPandasWithState", "TransformWithState", "TransformWithStateInPySpark", "Tail", "Offset",
    "MapGroups", "CoGroup", "FlatMapGroupsInPandas", "FlatMapGroupsInArrow", "FlatMapCoGroupsInPandas", "FlatMapCoGroupsInArrow",
})  # fmt: skip
"""What Spark's streams keep something for. A join is among them if both its sides are streams."""
REMEDIES: Final = {
    "GlobalLimit": "a stream has no end; leave limit() out, keep the best rows of a key with .top(...), or use output_mode='complete'",
    "LocalLimit": "a stream has no end; leave limit() out, keep the best rows of a key with .top(...), or use output_mode='complete'",
    "Sort": "a stream has no end to sort at; leave orderBy() out, use .sort() behind the ported stream, or output_mode='complete'",
    "FlatMapGroupsWithState": "port it to a Processor: .key_by(...).process(...)",
    "FlatMapGroupsInPandasWithState": "port the function to a Processor: .key_by(...).process(...)",
    "TransformWithState": "port it to a Processor: .key_by(...).process(...)",
    "TransformWithStateInPySpark": "port the StatefulProcessor to an ef.Processor: .key_by(...).process(...)",
    "Generate": "do it in Spark, before withWatermark, or use .explode(...) behind the ported stream",
    "MapInPandas": "do it in Spark, before withWatermark, or use .flat_map(...) behind the ported stream",
    "MapInArrow": "do it in Spark, before withWatermark, or use .flat_map(...) behind the ported stream",
}  # fmt: skip
"""What takes the place of a node that is not ported."""
HOW: Final = {
    "Inner": "inner", "Cross": "inner", "LeftOuter": "left", "RightOuter": "right", "FullOuter": "full", "LeftSemi": "semi",
    "LeftAnti": "anti",
}  # fmt: skip
"""The joins, and what each is called here."""
MIRRORED: Final = {"inner": "inner", "right": "left"}
"""Joins that are the same with the sides changed."""

__all__ = ["HOW", "MIRRORED", "REMEDIES", "STATEFUL"]
