"""Nodes of Spark's plans by their kinds: for which of them a stream keeps something, which are joins of what kind, and what to do about
those that have no box."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from evenflow.errors import NotPortable, QueryError
from evenflow.query.ported.tree import Attribute, Plan
from evenflow.stream.collations import INSTEAD, collation_of

STATEFUL: Final = frozenset({
    "Aggregate", "Deduplicate", "DeduplicateWithinWatermark", "Distinct", "EventTimeWatermark", "GlobalLimit", "LocalLimit", "Sort",
    "FlatMapGroupsWithState", "FlatMapGroupsInPandasWithState", "TransformWithState", "TransformWithStateInPySpark", "Tail", "Offset",
    "MapGroups", "CoGroup", "FlatMapGroupsInPandas", "FlatMapGroupsInArrow", "FlatMapCoGroupsInPandas", "FlatMapCoGroupsInArrow",
})  # fmt: skip
"""What Spark's streams keep something for. A join is among them if both its sides are streams."""
REMEDIES: Final = {
    **dict.fromkeys(
        ("GlobalLimit", "LocalLimit"),
        "a stream has no end; leave limit() out, keep the best rows of a key with .top(...), or use output_mode='complete', in which it "
        "stands last",
    ),
    "Sort": "a stream has no end to sort at; leave orderBy() out, use .sort() behind the ported stream, or output_mode='complete', in "
            "which it stands last",
    "FlatMapGroupsWithState": "port it to a Processor: .key_by(...).process(...)",
    "TransformWithState": "port it to a Processor: .key_by(...).process(...)",
    "TransformWithStateInPySpark": "port the StatefulProcessor to an ef.Processor: .key_by(...).process(...)",
    "Generate": "do it in Spark, before withWatermark, or use .explode(...) behind the ported stream",
    "MapInPandas": "do it in Spark, before withWatermark, or use .flat_map(...) behind the ported stream",
    "MapInArrow": "do it in Spark, before withWatermark, or use .flat_map(...) behind the ported stream",
    "CollectMetrics": "leave observe() out; what it counts is a query of its own: .agg(...) of the same stream",
    "Intersect": "join it with how='left_semi' and dropDuplicates(), or write it with ef.sql and output_mode='changelog'",
    "Except": "join it with how='left_anti' and dropDuplicates(), or write it with ef.sql and output_mode='changelog'",
    "Sample": "a replayed row must give the same result: take rows by a hash of theirs, where('pmod(hash(id), 100) < 5')",
    "LateralJoin": "do it in Spark, before withWatermark, or use .explode(...) or .flat_map(...) behind the ported stream",
}  # fmt: skip
"""What takes the place of a node that is not ported."""
HOW: Final = {
    "Inner": "inner", "Cross": "inner", "LeftOuter": "left", "RightOuter": "right", "FullOuter": "full", "LeftSemi": "semi",
    "LeftAnti": "anti",
}  # fmt: skip
"""The joins, and what each is called here."""
MIRRORED: Final = {"inner": "inner", "right": "left"}
"""Joins that are the same with the sides changed."""


def check_told(plan: Plan) -> None:
    """QueryError for what the JSON of a node does not tell: what a cast does with a value that it cannot cast, and options of functions."""
    if plan.kind not in ("Project", "Filter", "Aggregate", "Join"):
        return
    if plan.tries and not plan.fields.get("modes"):
        raise QueryError("Evenflow has no try_cast here; do it before withWatermark, or right above it")
    if plan.has_options:
        raise QueryError("functions of JSON and CSV have no options here; write it before withWatermark, or with ef.sql")


def check_collations(columns: Iterable[Attribute]) -> None:
    """QueryError for a column that comes from Spark with a collation, of which nothing would be left here."""
    for column in columns:
        if (collation := collation_of(column.type)) is not None:
            raise QueryError(f"column {column.name!r} is a string collate {collation}, and {INSTEAD}")


def check_policy(plan: Plan, policy: str) -> None:
    """One watermark is the least and the greatest of all; several are not."""
    marks = [node for node in plan.walk() if node.kind == "EventTimeWatermark"]
    if policy != "min" and len(marks) > 1:
        message = (
            f"spark.sql.streaming.multipleWatermarkPolicy is {policy!r}, and there are {len(marks)} watermarks; streams that come "
            "together wait here for the slowest (min), or for those that are not silent, with idle='30 seconds' in with_watermark; "
            f"set the policy to min; in {marks[0].shown}"
        )
        raise NotPortable(message, marks[0].shown, marks[0].kind)


__all__ = ["HOW", "MIRRORED", "REMEDIES", "STATEFUL", "check_collations", "check_policy", "check_told"]
