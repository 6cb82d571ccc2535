"""The catalogue of functions: what each name of Spark SQL builds from its arguments."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from typing import Final

import pyarrow as pa

from evenflow.errors import ExpressionError
from evenflow.query.sql import (
    arrays,
    ciphers,
    collected,
    conditions,
    csvs,
    dates,
    decimal_math,
    digests,
    encodings,
    gaps,
    json_read,
    jsons,
    likeness,
    nested,
    number_forms,
    numbers,
    reals,
    steps,
    strings,
    tallies,
    texts,
    times,
    variant_changes,
    variants,
    vectors,
    xpaths,
)
from evenflow.query.sql.folding import MOST_STEPS, estimated
from evenflow.query.sql.foreign import INSTEAD
from evenflow.query.sql.node import Node, literal
from evenflow.query.sql.signature import Signature
from evenflow.query.sql.types import NULL
from evenflow.query.sql.untyped import null_of
from evenflow.query.user.scope import called_name, is_known

FUNCTIONS: Final[dict[str, Signature]] = {
    **arrays.FUNCTIONS, **collected.FUNCTIONS, **conditions.FUNCTIONS,
    **decimal_math.FUNCTIONS, **jsons.FUNCTIONS, **nested.FUNCTIONS, **numbers.FUNCTIONS, **strings.FUNCTIONS, **times.FUNCTIONS,
    **dates.FUNCTIONS, **encodings.FUNCTIONS, **reals.FUNCTIONS, **texts.FUNCTIONS, **json_read.FUNCTIONS,
    **csvs.FUNCTIONS, **number_forms.FUNCTIONS, **vectors.FUNCTIONS, **likeness.FUNCTIONS, **steps.FUNCTIONS, **ciphers.FUNCTIONS,
    **digests.FUNCTIONS, **gaps.FUNCTIONS, **variants.FUNCTIONS, **variant_changes.FUNCTIONS, **xpaths.FUNCTIONS, **tallies.FUNCTIONS,
}  # fmt: skip

AGGREGATES: Final = {
    "count": "count", "sum": "sum", "min": "min", "max": "max", "avg": "avg", "mean": "avg", "stddev": "stddev",
    "stddev_samp": "stddev", "std": "stddev", "approx_count_distinct": "approx_count_distinct", "first": "first",
    "first_value": "first", "last": "last", "last_value": "last", "collect_list": "collect_list", "array_agg": "collect_list",
}  # fmt: skip
"""Names of the aggregates, and the function that each is."""

IMPURE: Final = frozenset({
    "rand", "randn", "random", "uuid", "now", "current_timestamp", "current_date", "current_time", "curdate", "localtimestamp",
    "monotonically_increasing_id", "shuffle", "spark_partition_id", "input_file_name",
})  # fmt: skip


UNASKED: Final[dict[str, tuple[int, ...]]] = {
    **dict.fromkeys((
        "unix_date", "unix_seconds", "unix_millis", "unix_micros", "trunc", "soundex", "mask", "str_to_map", "try_to_binary",
        "json_array_length", "json_object_keys", "get_json_object",
        "xpath", *(f"xpath_{kind}" for kind in ("boolean", "double", "float", "int", "long", "number", "short", "string")),
        "parse_json", "try_parse_json", "schema_of_variant", "is_valid_variant", "is_variant_null", "variant_strip_nulls",
        *(f"{attempt}variant_{change}" for attempt in ("", "try_") for change in ("get", "insert", "set", "array_append")),
    ), (0,)),
    **dict.fromkeys(("date_add", "date_sub", "dateadd", "format_number"), (0, 1)),
    **dict.fromkeys(("parse_url", "try_parse_url"), (0, 1, 2)),
    "array_join": (1,), "array_repeat": (1,),
}  # fmt: skip
"""Arguments for which Spark takes a null where they have no type, and never asks them, though they would raise: assert_true, raise_error.
Its other functions cast such a one, and ask it. Held to Spark by tests/oracle/test_more_functions.py."""
_NOTHING: Final = pa.scalar(None, NULL)
_GROUPED: Final = {
    "window": "a window is said behind the keys, group_by(...).window('1 minute'), or in a query of ef.sql",
    "session_window": "a session is said behind the keys, group_by(...).session('10 seconds'), or in a query of ef.sql",
}
"""What a query of SQL has, and an expression by itself has not."""


def aggregate_named(name: str) -> str | None:
    """The built-in aggregate function of that name; None if there is none, or it is the name of a function of the user's."""
    return None if is_known(name) else AGGREGATES.get(called_name(name))


def is_function(name: str) -> bool:
    """Whether a call of that name can mean something: a function, an aggregate, or one of the user's."""
    return called_name(name) in FUNCTIONS or called_name(name) in AGGREGATES or is_known(name)


def build_function(name: str, args: Sequence[Node], text: str = "") -> Node:
    """The node of a call. ExpressionError if there is no such function or it does not take that many arguments."""
    signature = FUNCTIONS.get(name)
    if signature is None:
        instead = INSTEAD.get(name) or _GROUPED.get(name)
        if instead is not None and not is_known(name):
            raise ExpressionError(f"{text or name!r}: there is no function {name!r}; {instead}")
        public = [each for each in (*FUNCTIONS, *AGGREGATES) if not each.startswith("_")]
        near = difflib.get_close_matches(name, public, n=4, cutoff=0.6)
        hint = f"; near names are {', '.join(near)}" if near else ""
        if is_known(name):
            raise ExpressionError(
                f"the function {name!r} is yours, and cannot be called in the condition of a join or in a pattern; "
                "compute a column with it before"
            )
        yours = f"A Python function of yours can be called by a name, functions={{{name!r}: f}} of ef.sql or ef.expr(..., {name}=f)"
        raise ExpressionError(f"there is no function {name!r}{hint}. {yours}, and a callable that takes the batch can be passed instead")
    if not signature.least <= len(args) <= signature.most:
        raise ExpressionError(f"{text or name!r}: {name} takes {signature.counts()}, not {len(args)}")
    if estimated(name, [node.constant for node in args]) > MOST_STEPS:
        at = 1 if name in ("format_string", "printf") else 0  # The form must be known.
        args = [_unknown(node) if place == at else node for place, node in enumerate(args)]
    given = null_of(name, len(args), tuple(at for at, node in enumerate(args) if node.type == NULL))
    if given is not None and not any(node.raises for node in args):
        return literal(pa.scalar(None, given))
    if (places := UNASKED.get(name)) is not None:
        args = [
            literal(_NOTHING, node.text) if at in places and node.type == NULL and node.raises else node for at, node in enumerate(args)
        ]
    return signature.build(*args)


def _unknown(node: Node) -> Node:
    """The same, but nothing is computed of it before rows are there."""
    return Node(node.type, node.run, None, node.raises, node.text)
