"""As much of Prometheus as the rules for alerts use, over series as `promtool test rules` has them: alerts are tried on every machine.

What is not here raises. Where `promtool` is, it judges the same cases, and so this file, too. Rates are extrapolated as Prometheus does.
"""

from __future__ import annotations

import itertools
import math
import operator
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import promql_parser as promql

Labels = frozenset[tuple[str, str]]
Vector = list[tuple[Labels, float]]
Series = Mapping[Labels, Sequence[float]]
"""A value a minute, from 0 on."""

STEP_S: Final = 60.0
LOOKBACK_S: Final = 300.0
NAME: Final = "__name__"
COMPARED: Final[Mapping[str, Callable[[float, float], bool]]] = {
    "==": operator.eq, "!=": operator.ne, "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge,
}  # fmt: skip
UNITS: Final = {"s": 1, "m": 60, "h": 3600}


def series_of(written: Sequence[Mapping[str, Any]]) -> dict[Labels, list[float]]:
    """`values` are `1x40`, `0+6x40` or several of these: the first value and so many more."""
    found = dict[Labels, list[float]]()
    for each in written:
        selector = promql.parse(each["series"])
        labels = {NAME: selector.name, **{matcher.name: matcher.value for matcher in selector.matchers.matchers}}
        values = found.setdefault(frozenset(labels.items()), [])
        for part in str(each["values"]).split():
            match = re.fullmatch(r"([\d.]+)(?:\+([\d.]+))?x(\d+)", part)
            assert match is not None, f"this notation is not read here: {part}"
            values += [float(match[1]) + n * float(match[2] or 0) for n in range(int(match[3]) + 1)]
    return found


def evaluate(expression: Any, series: Series, at_s: float) -> Any:
    """A vector, or a number. Raises NotImplementedError for what is not known here."""
    match expression:
        case promql.NumberLiteral():
            return float(expression.val)
        case promql.VectorSelector():
            return [(labels, past[-1][1]) for labels, past in samples(expression, series, at_s, LOOKBACK_S) if past]
        case promql.Call() if expression.func.name == "rate":
            (matrix,) = expression.args
            range_s = matrix.range.total_seconds()
            found = samples(matrix.vector_selector, series, at_s, range_s)
            return [(unnamed(labels), rate(past, at_s, range_s)) for labels, past in found if len(past) > 1]
        case promql.Call() if expression.func.name == "histogram_quantile":
            share, buckets = (evaluate(each, series, at_s) for each in expression.args)
            return histogram_quantile(share, buckets)
        case promql.AggregateExpr() if str(expression.op) in ("sum", "max"):
            groups = dict[Labels, list[float]]()
            for labels, value in evaluate(expression.expr, series, at_s):
                groups.setdefault(only(labels, expression.modifier.labels), []).append(value)
            fold = sum if str(expression.op) == "sum" else max
            return [(labels, fold(values)) for labels, values in groups.items()]
        case promql.BinaryExpr():
            left, right = evaluate(expression.lhs, series, at_s), evaluate(expression.rhs, series, at_s)
            return together(str(expression.op), left, right, expression.modifier)
    raise NotImplementedError(f"{type(expression).__name__}: {expression.prettify()}")


def samples(selector: Any, series: Series, at_s: float, range_s: float) -> list[tuple[Labels, list[tuple[float, float]]]]:
    """(labels, (when, value) of the last so many seconds) of all that are meant."""
    assert all(str(each.op) == "MatchOp.Equal" for each in selector.matchers.matchers)
    wanted = {(NAME, selector.name), *((each.name, each.value) for each in selector.matchers.matchers)}
    return [
        (labels, [(n * STEP_S, value) for n, value in enumerate(values) if at_s - range_s < n * STEP_S <= at_s])
        for labels, values in series.items()
        if wanted <= labels
    ]


def rate(past: Sequence[tuple[float, float]], at_s: float, range_s: float) -> float:
    """Per second, of a counter. It may begin anew."""
    (first_s, first), (last_s, _) = past[0], past[-1]
    values = [value for _, value in past]
    grown = sum(now - before if now >= before else now for before, now in itertools.pairwise(values))
    covered_s = last_s - first_s
    mean_s = covered_s / (len(past) - 1)
    before_s, behind_s = first_s - (at_s - range_s), at_s - last_s
    if grown > 0:
        before_s = min(before_s, covered_s * first / grown)  # A counter was never below 0.
    before_s, behind_s = (each if each < 1.1 * mean_s else mean_s / 2 for each in (before_s, behind_s))
    return grown * (covered_s + before_s + behind_s) / covered_s / range_s


def histogram_quantile(share: float, buckets: Vector) -> Vector:
    groups = dict[Labels, list[tuple[float, float]]]()
    for labels, count in buckets:
        end = float(dict(labels)["le"])
        groups.setdefault(frozenset(each for each in labels if each[0] not in ("le", NAME)), []).append((end, count))
    found = Vector()
    for labels, ends in groups.items():
        ends.sort()
        assert math.isinf(ends[-1][0]), "a histogram ends with +Inf"
        rank = share * ends[-1][1]
        if not ends[-1][1]:
            found.append((labels, math.nan))
            continue
        place = next(n for n, (_, count) in enumerate(ends) if count >= rank)
        if place == len(ends) - 1:
            found.append((labels, ends[-2][0]))
            continue
        begin, below = ends[place - 1] if place else (0.0, 0.0)
        end, count = ends[place]
        found.append((labels, begin + (end - begin) * (rank - below) / (count - below)))
    return found


def together(op: str, left: Any, right: Any, modifier: Any) -> Vector:
    on = None if modifier is None or modifier.matching is None else list(modifier.matching.labels)

    def key(labels: Labels) -> Labels:
        return unnamed(labels) if on is None else only(labels, on)

    if op == "and":
        there = {key(labels) for labels, _ in right}
        return [(labels, value) for labels, value in left if key(labels) in there]
    if op not in COMPARED:
        raise NotImplementedError(op)
    if isinstance(right, float):
        return [(labels, value) for labels, value in left if COMPARED[op](value, right)]
    others = {key(labels): value for labels, value in right}
    return [(labels, value) for labels, value in left if key(labels) in others and COMPARED[op](value, others[key(labels)])]


def unnamed(labels: Labels) -> Labels:
    return frozenset(each for each in labels if each[0] != NAME)


def only(labels: Labels, names: Sequence[str]) -> Labels:
    return frozenset(each for each in labels if each[0] in names)


# ---------------------------------------------------------------- alerts


def seconds_of(text: str) -> float:
    return sum(int(count) * UNITS[unit] for count, unit in re.findall(r"(\d+)([smh])", text))


def raised(rule: Mapping[str, Any], series: Series, at_s: float) -> list[tuple[dict[str, str], dict[str, str]]]:
    """(labels, annotations) of the alerts of a rule at a moment, which is judged every minute until then."""
    expression, since, now = promql.parse(rule["expr"]), dict[Labels, float](), Vector()
    for minute in range(int(at_s / STEP_S) + 1):
        now = evaluate(expression, series, minute * STEP_S)
        since = {unnamed(labels): since.get(unnamed(labels), minute * STEP_S) for labels, _ in now}
    found = []
    for labels, value in now:
        if at_s - since[unnamed(labels)] >= seconds_of(rule["for"]):
            own = dict(unnamed(labels))
            found.append(({**own, **rule["labels"]}, {name: said(text, own, value) for name, text in rule["annotations"].items()}))
    return found


def said(text: str, labels: Mapping[str, str], value: float) -> str:
    """A template of an annotation."""

    def one(match: re.Match[str]) -> str:
        what, _, way = (part.strip() for part in match[1].partition("|"))
        if what.startswith("$labels."):
            return labels[what.removeprefix("$labels.")]
        assert what == "$value", what
        return {"": "{:g}".format, "humanize": humanized, "humanizeDuration": duration, "humanizePercentage": "{:.4g}%".format}[way](
            value * 100 if way == "humanizePercentage" else value
        )

    return re.sub(r"\{\{(.*?)\}\}", one, text)


def humanized(value: float) -> str:
    assert value == 0 or 1 <= abs(value) < 1000, "no prefixes here"
    return f"{value:.4g}"


def duration(value: float) -> str:
    if value < 60:
        return f"{value:.4g}s"
    minutes, seconds = divmod(int(value), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}h {minutes}m {seconds}s" if hours else f"{minutes}m {seconds}s"
