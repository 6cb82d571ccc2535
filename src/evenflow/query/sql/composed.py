"""Aggregates that are made of others: what the parser writes in their place.

`count_if(c)` is a count, `var_samp(x)` the square of `stddev(x)`. Those that need all values of a group (`median`, `skewness`,
`collect_set`) are a function of `collect_list(x)`, in `collected`: their state is the values, so on a stream they belong into windows.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from sqlglot import exp

from evenflow.query.user.scope import is_known

_BOTH: Final = "CASE WHEN {0} IS NOT NULL AND {1} IS NOT NULL THEN CAST({%d} AS DOUBLE) END"
_PAIR: Final = f"collect_list({_BOTH % 0}), collect_list({_BOTH % 1})"
_POP: Final = "if(count({0}) = 1, 0.0D * avg({0}), stddev({0}) * stddev({0}) * (count({0}) - 1) / nullif(count({0}), 0))"
_LIST: Final = "collect_list(CAST({0} AS DOUBLE))"

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
    "max_by": (2, "max(CASE WHEN {1} IS NOT NULL THEN named_struct('by', {1}, 'value', {0}) END).value"),
    "min_by": (2, "min(CASE WHEN {1} IS NOT NULL THEN named_struct('by', {1}, 'value', {0}) END).value"),
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
    "try_sum": (1, "_try_sum(collect_list({0}))"),
    "listagg": (2, "if(count({0}) = 0, NULL, array_join(collect_list({0}), {1}))"),
    "string_agg": (2, "if(count({0}) = 0, NULL, array_join(collect_list({0}), {1}))"),
    "regr_count": (2, "count(CASE WHEN {0} IS NOT NULL AND {1} IS NOT NULL THEN 1 END)"),
}
"""By name: how many arguments it takes, and what it is."""


def calls(read: Callable[[str], exp.Expr]) -> dict[str, Callable[[Sequence[exp.Expr]], exp.Expr]]:
    """What the parser makes of calls of these names. read: parses an expression."""
    return {name.upper(): _call(name, count, text, read) for name, (count, text) in COMPOSED.items()}


def _call(name: str, count: int, text: str, read: Callable[[str], exp.Expr]) -> Callable[[Sequence[exp.Expr]], exp.Expr]:
    made: list[exp.Expr] = []

    def build(given: Sequence[exp.Expr]) -> exp.Expr:
        if is_known(name) or len(given) != count or any(isinstance(each, exp.Distinct | exp.Star) for each in given):
            return exp.Anonymous(this=name, expressions=list(given))  # The user's own of that name; else it is refused by it.
        if not made:
            made.append(read(text.format(*(f"`\0{at}`" for at in range(count)))))
        places = {f"\0{at}": each for at, each in enumerate(given)}
        return made[0].transform(lambda node: places[node.name].copy() if isinstance(node, exp.Column) and node.name in places else node)

    return build
