"""estimate(count(*)) and estimate_error(count(*)): written out as the sums that they are made of, see `query.estimates`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final, TypeVar

from sqlglot import exp

from evenflow.query.estimates import check_estimable, written_out
from evenflow.query.sql.parser import parse, to_sql
from evenflow.query.user.scope import is_known
from evenflow.stream.weight import WEIGHT

if TYPE_CHECKING:
    from evenflow.query.builder import Stream
    from evenflow.query.grouped import GroupedStream, SessionStream, WindowedStream
    from evenflow.query.script.lowering import Lower

    Over = TypeVar("Over", bound=GroupedStream[Stream] | WindowedStream[Stream] | SessionStream[Stream])

WORDS: Final = ("estimate", "estimate_error")
ESTIMATED: Final = "estimated"
"""Of a node of an estimate that is written out, in its `meta`."""


def of_estimates(lower: Lower, columns: Sequence[str], tree: exp.Expr) -> exp.Expr | None:
    """What an estimate, or the error of one, is made of; None of anything else, a function of the user's of that name included. columns:
    that come to it."""
    if not isinstance(tree, exp.Anonymous) or tree.name.lower() not in WORDS or is_known(tree.name):
        return None
    if WEIGHT not in columns:
        why = "of a source it comes by weights (in OPTIONS, or weights=True), and every SELECT between has to name it"
        lower.script.fail(tree, f"an estimate needs the column {WEIGHT}, by which rows say how many they stand for; {why}")
    [call, *more] = tree.expressions or [exp.Null()]
    if more or not isinstance(call, exp.Anonymous):
        lower.script.fail(tree, f"{tree.name} takes one count(*), count(x), sum(x) or avg(x); a FILTER of it goes into WHERE")
    with lower.script.at(tree):
        total, error = written_out(tree.name, to_sql(call))
    made = exp.Paren(this=parse(error if tree.name.lower() == WORDS[1] else total))
    for node in made.walk():
        node.meta[ESTIMATED] = True
    return made


def estimating(lower: Lower, over: Over, kinds: Mapping[bool, exp.Expr]) -> Over:
    """The groups, where their aggregates are estimates. kinds: an aggregate call that is of an estimate, and one that is not."""
    if True not in kinds:
        return over
    if False in kinds:
        why = "rows may be left out before estimates, and what is not estimated would be wrong: give it a query of its own"
        lower.script.fail(kinds[False], f"{to_sql(kinds[False])} is beside an estimate; {why}")
    with lower.script.at(kinds[True]):
        mode = "changelog" if lower.changes else "update"
        check_estimable(over.stream.flow.free("aggregate"), over.stream, over.over, mode)
    return replace(over, sampled=True)
