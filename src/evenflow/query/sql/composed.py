"""Aggregates that are made of others: what the parser writes in their place.

`count_if(c)` is a count, `var_samp(x)` the square of `stddev(x)`. Those that need all values of a group (`median`, `skewness`,
`collect_set`) are a function of `collect_list(x)`, in `collected`: their state is the values, so on a stream they belong into windows.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from sqlglot import exp

from evenflow.query.sql import in_order
from evenflow.query.sql.in_order import put
from evenflow.query.user.scope import built_in, called_name, is_known, nothing_known

_BOTH: Final = "CASE WHEN {0} IS NOT NULL AND {1} IS NOT NULL THEN CAST({%d} AS DOUBLE) END"
_PAIR: Final = f"collect_list({_BOTH % 0}), collect_list({_BOTH % 1})"
_POP: Final = "if(count({0}) = 1, 0.0D * avg({0}), stddev({0}) * stddev({0}) * (count({0}) - 1) / nullif(count({0}), 0))"
_LIST: Final = "collect_list(CAST({0} AS DOUBLE))"

_LISTED: Final = ("listagg", "string_agg")
_JOINED: Final = "_listed(collect_list(_listable({0})), %s)"
_JOINED_DISTINCT: Final = "_listed(array_distinct(collect_list(_listable({0}))), %s)"
_ALL: Final = "flatten(collect_list(array({0})))"

COMPOSED: Final[Mapping[str, tuple[int, str]]] = {
    "count_if": (1, "count(CASE WHEN {0} THEN 1 END)"),
    "bool_and": (1, "CAST(min(CAST({0} AS INT)) AS BOOLEAN)"),
    "every": (1, "CAST(min(CAST({0} AS INT)) AS BOOLEAN)"),
    "bool_or": (1, "CAST(max(CAST({0} AS INT)) AS BOOLEAN)"),
    "any": (1, "CAST(max(CAST({0} AS INT)) AS BOOLEAN)"),
    "some": (1, "CAST(max(CAST({0} AS INT)) AS BOOLEAN)"),
    "any_value": (1, "first({0})"),
    "variance": (1, "(stddev({0}) * stddev({0}))"),
    "var_samp": (1, "(stddev({0}) * stddev({0}))"),
    "var_pop": (1, _POP),
    "stddev_pop": (1, f"sqrt({_POP})"),
    "max_by": (2, "(max(CASE WHEN {1} IS NOT NULL THEN named_struct('by', {1}, 'value', {0}) END).value)"),
    "min_by": (2, "(min(CASE WHEN {1} IS NOT NULL THEN named_struct('by', {1}, 'value', {0}) END).value)"),
    "collect_set": (1, "array_distinct(collect_list({0}))"),
    "skewness": (1, f"_skewness({_LIST})"),
    "kurtosis": (1, f"_kurtosis({_LIST})"),
    "median": (1, f"_percentile({_LIST}, 0.5D)"),
    "percentile": (2, f"_percentile({_LIST}, {{1}})"),
    "product": (1, f"_product({_LIST})"),
    "bit_and": (1, "_bit_and(collect_list({0}))"),
    "bit_or": (1, "_bit_or(collect_list({0}))"),
    "bit_xor": (1, "_bit_xor(collect_list({0}))"),
    "corr": (2, f"_corr({_PAIR})"),
    "covar_pop": (2, f"_covar_pop({_PAIR})"),
    "covar_samp": (2, f"_covar_samp({_PAIR})"),
    **{f"regr_{what}": (2, f"_regr_{what}({_PAIR})") for what in ("avgx", "avgy", "sxx", "syy", "sxy", "slope", "r2", "intercept")},
    "percentile_approx": (2, "_quantile(collect_list({0}), {1})"),
    "approx_percentile": (2, "_quantile(collect_list({0}), {1})"),
    "try_sum": (1, "_try_total(sum(_high({0})), sum(_low({0})))"),
    "try_avg": (1, "avg(_tried({0}))"),
    "mode": (1, "_mode(collect_list({0}))"),
    "bitmap_construct_agg": (1, "_bitmap(collect_list({0}))"),
    "bitmap_or_agg": (1, "_bitmap_or(collect_list({0}))"),
    "bitmap_and_agg": (1, "_bitmap_and(collect_list({0}))"),
    "approx_top_k": (1, f"_top_k({_ALL})"),
    "schema_of_variant_agg": (1, "_schema_of_variants(collect_list({0}))"),
    "vector_sum": (1, "_vector_sum(collect_list({0}))"),
    "vector_avg": (1, "_vector_avg(collect_list({0}))"),
    **dict.fromkeys(_LISTED, (2, _JOINED % "{1}")),
    "regr_count": (2, "count(CASE WHEN {0} IS NOT NULL AND {1} IS NOT NULL THEN 1 END)"),
}
"""By name: how many arguments it takes, and what it is."""
_TRIED: Final = ("_high", "_tried")
"""Around what is added up where a sum of decimals that has no room is null, and no error."""
OTHER_FORMS: Final[Mapping[str, tuple[int, str]]] = {
    "percentile_approx": (3, "_quantile(collect_list({0}), {1}, {2})"),
    "approx_percentile": (3, "_quantile(collect_list({0}), {1}, {2})"),
    "percentile": (3, f"_percentile({_LIST}, {{1}}, collect_list(CASE WHEN {{0}} IS NOT NULL THEN CAST({{2}} AS BIGINT) END))"),
    "mode": (2, "_mode(collect_list({0}), {1})"),
    "any_value": (2, "first({0}, {1})"),
    "approx_top_k": (2, f"_top_k({_ALL}, {{1}})"),
    **dict.fromkeys(_LISTED, (1, _JOINED % "NULL")),
}
"""With another number of arguments."""
_VALUES: Final = "array_distinct(collect_list({0}))"
_REALS: Final = f"array_distinct({_LIST})"
OF_DISTINCT: Final[Mapping[str, tuple[int, str]]] = {
    "median": (1, f"_percentile({_REALS}, 0.5D)"),
    **dict.fromkeys(("var_samp", "variance"), (1, f"_covar_samp({_REALS}, {_REALS})")),
    **dict.fromkeys(("stddev", "stddev_samp", "std"), (1, f"sqrt(_covar_samp({_REALS}, {_REALS}))")),
    "var_pop": (1, f"_covar_pop({_REALS}, {_REALS})"), "stddev_pop": (1, f"sqrt(_covar_pop({_REALS}, {_REALS}))"),
    "skewness": (1, f"_skewness({_REALS})"), "kurtosis": (1, f"_kurtosis({_REALS})"),
    "count_if": (1, "max(CASE WHEN {0} THEN 1L ELSE 0L END)"),
    "sum": (1, f"_total_of({_VALUES})"), "avg": (1, f"_mean_of({_VALUES})"), "mean": (1, f"_mean_of({_VALUES})"),
    "min": (1, "min({0})"), "max": (1, "max({0})"), "collect_list": (1, _VALUES), "collect_set": (1, _VALUES), "array_agg": (1, _VALUES),
    "try_sum": (1, f"_try_total_of({_VALUES})"), "try_avg": (1, f"_mean_of({_VALUES})"),
    **dict.fromkeys(_LISTED, (2, _JOINED_DISTINCT % "{1}")),
}  # fmt: skip
"""Of the distinct values only: sum(DISTINCT x)."""
OTHER_OF_DISTINCT: Final[Mapping[str, tuple[int, str]]] = dict.fromkeys(_LISTED, (1, _JOINED_DISTINCT % "NULL"))
DISTINCT_COUNT: Final = f"CAST(size({_VALUES}) AS BIGINT)"
"""count(DISTINCT x) where no window says when all values are there: its state is the values."""
WITHIN: Final[Mapping[str, tuple[int, str]]] = {
    "percentile_cont": (2, f"_percentile({_LIST.format('{1}')}, if({{2}}, {{0}}, 1 - {{0}}))"),
    "percentile_disc": (2, f"_discrete({_LIST.format('{1}')}, {{0}}, {{2}})"),
    "mode": (1, "_mode(collect_list({0}), {1})"),
}
"""Aggregates behind which WITHIN GROUP (ORDER BY x) stands: how many arguments they have with x. The last one is whether it ascends."""
WITH_NULLS: Final[Mapping[str, str]] = {"collect_list": _ALL, "array_agg": _ALL, "collect_set": f"array_distinct({_ALL})"}
"""Behind which RESPECT NULLS says that nulls are among the values. Other aggregates leave them out all the same."""


Read = Callable[[str], exp.Expr]
GIVEN: Final = "given"
"""Where a composed call has its name and what it was given, for WITHIN GROUP behind it."""
WRITTEN: Final = "written"
"""Where it has the call as it was written."""


def calls(read: Read) -> dict[str, Callable[[Sequence[exp.Expr]], exp.Expr]]:
    """What the parser makes of calls of these names. read: parses an expression."""
    made = {name.upper(): _call(name, read) for name in {**COMPOSED, **OF_DISTINCT, **WITHIN, **dict.fromkeys(in_order.NAMES)}}
    return {**made, "COUNT": count_call}


def count_call(given: Sequence[exp.Expr]) -> exp.Expr:
    """count(x, y): of the rows in which none is null."""
    if len(given) < 2 or any(isinstance(each, exp.Distinct | exp.Star) for each in given):
        return exp.Anonymous(this="count", expressions=list(given))
    there = exp.and_(*(exp.Not(this=exp.Is(this=each, expression=exp.Null())) for each in given))
    return exp.Anonymous(this=built_in("count"), expressions=[exp.Case(ifs=[exp.If(this=there, true=exp.Literal.number(1))])])


def _call(name: str, read: Read) -> Callable[[Sequence[exp.Expr]], exp.Expr]:
    forms = {count: text for table in (COMPOSED, OTHER_FORMS) if name in table for count, text in (table[name],)}
    distinct = {count: text for table in (OF_DISTINCT, OTHER_OF_DISTINCT) if name in table for count, text in (table[name],)}

    def build(given: Sequence[exp.Expr]) -> exp.Expr:
        plain = exp.Anonymous(this=name, expressions=list(given))  # The user's own of that name; else it is refused by it.
        plain.meta[GIVEN] = (name, list(given))
        if is_known(name):
            return plain
        if given and isinstance(given[-1], exp.Order):  # The order stands behind the last argument.
            order = given[-1]
            return in_order.ordered(name, [*given[:-1], order.this], order.expressions, read) or plain
        if given and isinstance(given[0], exp.Distinct):
            given = [*given[0].expressions, *given[1:]]
            text = distinct.get(len(given))
        else:
            text = forms.get(len(given))
        if text is None or any(isinstance(each, exp.Distinct | exp.Star) for each in given):
            return plain
        found = filled(text, given, read)
        found.meta[GIVEN], found.meta[WRITTEN] = plain.meta[GIVEN], plain
        return found

    return build


def is_tried(argument: exp.Expr) -> bool:
    """Whether it is what try_sum or try_avg adds up, or that with a condition around it, as FILTER makes it."""
    return any(isinstance(each, exp.Anonymous) and each.name.lower() in _TRIED for each in argument.walk())


_PARSED: Final[dict[str, exp.Expr]] = {}


def filled(text: str, given: Sequence[exp.Expr], read: Read) -> exp.Expr:
    """The expression of a text, with these in its places."""
    if text not in _PARSED:
        with nothing_known():
            _PARSED[text] = read(text.format(*(f"`\0{at}`" for at in range(len(given)))))
    return put(_PARSED[text], {f"\0{at}": each for at, each in enumerate(given)})


def with_nulls(tree: exp.Expr | None, read: Read) -> exp.Expr | None:
    """agg(x) RESPECT NULLS, or agg(x) FILTER (...) RESPECT NULLS, as what it is made of. None if nulls make no difference there."""
    call = tree.this if isinstance(tree, exp.Filter) else tree
    name, given = ("", []) if call is None else call.meta.get(GIVEN, ("", []))
    if name not in WITH_NULLS or is_known(name) or len(given) != 1:
        return None
    distinct = isinstance(given[0], exp.Distinct)
    values = given[0].expressions if distinct else given
    if len(values) != 1 or isinstance(values[0], exp.Order | exp.Star):
        return None
    made = _of(name, given, filled(WITH_NULLS["collect_set" if distinct else name], values, read))
    return exp.Filter(this=made, expression=tree.expression) if isinstance(tree, exp.Filter) else made


def made_of_others(tree: exp.Expr) -> str | None:
    """The name of the aggregate, where it is written as others and nulls are no matter of theirs: all but any_value, which is `first`."""
    call = tree.this if isinstance(tree, exp.Filter) else tree
    name: str = call.meta.get(GIVEN, ("", []))[0]
    made = name and not (isinstance(call, exp.Anonymous) and called_name(call.name) in (name, "first"))
    return name if made else None


def within_group(tree: exp.WithinGroup, read: Read) -> exp.Expr:
    """agg(...) WITHIN GROUP (ORDER BY x): what it is made of, or the tree as it is, which is refused."""
    name, given = tree.this.meta.get(GIVEN, ("", []))
    order = tree.expression.expressions
    if name in _LISTED and not is_known(name):
        made = in_order.ordered(name, given, order, read)
        return tree if made is None else _within(tree, name, given, made)
    if name not in WITHIN or is_known(name) or len(order) != 1 or any(isinstance(each, exp.Distinct) for each in given):
        return tree
    key = order[0].this if isinstance(order[0], exp.Ordered) else order[0]
    ascends = exp.Boolean(this=not (isinstance(order[0], exp.Ordered) and order[0].args.get("desc")))
    count, text = WITHIN[name]
    if len(given) + 1 != count:
        return tree
    return _within(tree, name, [*given, key], filled(text, [*given, key, ascends], read))


def _within(tree: exp.WithinGroup, name: str, given: Sequence[exp.Expr], made: exp.Expr) -> exp.Expr:
    """What was made of a call with WITHIN GROUP, which says so."""
    call = tree.this.meta.get(WRITTEN, tree.this)
    made.meta[WRITTEN] = exp.WithinGroup(this=call.copy(), expression=tree.expression.copy())
    return _of(name, given, made)


def _of(name: str, given: Sequence[exp.Expr], made: exp.Expr) -> exp.Expr:
    """What was made of a call, which says so."""
    made.meta[GIVEN] = (name, list(given))
    return made
