"""Estimates: totals of rows of which some may have been left out, with an error bound, by rewriting (Horvitz and Thompson 1952).

    count(*)   sum(w)                      1.96 sqrt(sum(w (w - 1)))
    sum(x)     sum(w x)                    1.96 sqrt(sum(w (w - 1) x^2))
    avg(x)     R = sum(w x) / sum(w)       1.96 sqrt(sum(w (w - 1) (x - R)^2)) / sum(w)

w is what a row stands for (`stream.weight`). Rows stay or go each for itself, so w (w - 1) x^2 is right in the mean for the variance that
x adds; an average's is that of its linear part. Where nothing is left out, w is 1, the estimate is the total and its error 0.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from evenflow.errors import QueryError
from evenflow.query.aggregates import SessionWindow, TimeWindow
from evenflow.query.handle import HandledStream
from evenflow.query.lineage import passed_on
from evenflow.query.user.scope import built_in
from evenflow.stream.weight import WEIGHT

ERROR: Final = "_error"
"""Behind the name of an estimate, that of its error."""
PASSING: Final = ("select", "filter", "watermark", "union", "key_by", "repartition")
_CALL: Final = re.compile(r"\s*(\w+)\s*\(\s*(.*)\)\s*", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Estimate:
    """An aggregate that is estimated. text: count(*), count(x), sum(x) or avg(x)."""

    text: str


def estimate(expression: str) -> Estimate:
    """An aggregate that stays right, within a bound, when rows are left out under overload: `.agg(n=ef.estimate("count(*)"))`.

    expression: count(*), count(x), sum(x) or avg(x). Gives two columns of type double: `n`, and `n_error`, half of the interval around it
    that holds the total of all rows with a probability of 95%; 0 where nothing was left out. The source must say what rows stand for,
    `flow.source(..., weights=True)`, and that column, `_w`, must reach the aggregate. Raises QueryError for what cannot be estimated.
    """
    _parts("estimate", expression)
    return Estimate(expression)


def rewritten(
    stream: HandledStream, over: object, mode: str, positional: Sequence[Any], named: dict[str, Any]
) -> tuple[dict[str, Any], bool]:
    """The aggregates by name, with those that are estimated written out, and whether there are such. Raises QueryError."""
    box = stream.flow.free("aggregate")
    if any(isinstance(each, Estimate) for each in positional):
        raise QueryError(f"box {box!r}: an estimate has no name; write agg(n=estimate('count(*)'))")
    if not any(isinstance(each, Estimate) for each in named.values()):
        return named, False
    exact = [*map(str, positional), *(name for name, each in named.items() if not isinstance(each, Estimate))]
    if exact:
        why = "rows may be left out before estimates, and what is not estimated would be wrong"
        raise QueryError(f"box {box!r}: {exact[0]!r} is beside an estimate; {why}: give it an aggregate of its own")
    check_estimable(box, stream, over, mode)
    texts: dict[str, Any] = {}
    for name, each in named.items():
        total, error = written_out(box, each.text)
        for column, text in ((name, total), (name + ERROR, error)):
            if column in texts:
                raise QueryError(f"box {box!r} has two results {column!r}; give the estimate another name")
            texts[column] = text
    return texts, True


def written_out(box: str, text: str) -> tuple[str, str]:
    """An estimate, and its error, of aggregates over columns and weights. Raises QueryError for what cannot be estimated."""
    total, deviation = _written(*_parts(box, text))
    return total, f"1.96 * {deviation}"


def check_estimable(box: str, stream: HandledStream, over: object, mode: str) -> None:
    """Raise QueryError where rows before such an aggregate of the stream may not be left out one by one."""
    if isinstance(over, SessionWindow) or not (over is None or isinstance(over, TimeWindow)):
        what = "where sessions begin and end" if isinstance(over, SessionWindow) else "which rows are the last ones"
        raise QueryError(f"box {box!r}: {what} would depend on the rows that are left out; estimate windows of time, or totals so far")
    if mode != "update" or (isinstance(over, TimeWindow) and over.mode == "changelog"):
        raise QueryError(f"box {box!r}: estimates are not put out as a changelog; leave out the mode")
    _check_above(box, stream)


def _parts(box: str, text: str) -> tuple[str, str]:
    """The function, and what it is of."""
    found = _CALL.fullmatch(text) if isinstance(text, str) else None
    if found is None:
        raise QueryError(f"box {box!r}: {text!r} cannot be estimated; write estimate('count(*)'), or of count(x), sum(x), avg(x)")
    function, argument = found[1].lower(), found[2].strip()
    if argument[:9].lower() == "distinct ":
        why = "a value that was left out leaves no trace; count the rows, or leave qos out, so that none goes"
    elif function in ("min", "max"):
        why = "the outermost value may be among the rows left out; estimate avg, or leave qos out, so that none goes"
    elif function not in ("count", "sum", "avg") or not argument or (argument == "*" and function != "count"):
        why = "only count(*), count(x), sum(x) and avg(x) can be"
    else:
        return function, argument
    raise QueryError(f"box {box!r}: {text!r} cannot be estimated: {why}")


def _written(function: str, x: str) -> tuple[str, str]:
    """Of an aggregate: its estimate, and the deviation of that."""
    total, root = built_in("sum"), built_in("sqrt")
    w, v = WEIGHT, f"{WEIGHT} * ({WEIGHT} - 1.0)"
    if x == "*":
        return f"{total}({w})", f"{root}({total}({v}))"
    if function == "count":
        known = f"({x}) is not null"
        return f"{total}(case when {known} then {w} else 0.0D end)", f"{root}({total}(case when {known} then {v} else 0.0D end))"
    x = f"cast({x} as double)"
    if function == "sum":
        return f"{total}({w} * {x})", f"{root}({total}({v} * {x} * {x}))"
    n, s = f"{total}(case when {x} is not null then {w} end)", f"{total}(case when {x} is not null then {v} end)"
    ratio = f"({total}({w} * {x}) / {n})"
    square = f"({total}({v} * {x} * {x}) - 2.0D * {ratio} * {total}({v} * {x}) + {ratio} * {ratio} * {s})"
    return ratio, f"{root}(case when {square} > 0.0D then {square} when {square} is not null then 0.0D end) / {n}"


def _check_above(box: str, stream: HandledStream) -> None:
    """Raise QueryError unless rows come with their weights, through boxes that keep no state."""
    network = stream.flow.network
    waiting = [(stream.box.name, stream.port)]
    while waiting:
        name, port = waiting.pop()
        up = network.box(name)
        if up.kind == "source":
            if not up.params.get("weights"):
                raise QueryError(f"box {box!r} estimates rows of {name!r}, which does not say what they stand for; add weights=True there")
            continue
        if up.kind not in PASSING or port:
            why = "only the first aggregate behind sources can be estimated, with boxes between that keep no state"
            raise QueryError(f"box {box!r} is behind {name!r}: {why}; estimate before {name!r}")
        above = {number for number, column in passed_on(network, up, port, WEIGHT) if column == WEIGHT}
        if len(above) < len(up.inputs) and WEIGHT in network.input_schemas(up)[0].names:
            raise QueryError(f"box {name!r} does not hand on {WEIGHT!r}, by which {box!r} estimates; select it there")
        waiting += up.inputs
