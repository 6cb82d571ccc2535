"""Expressions drawn from the catalogue: every function, operator, syntax and cast that Evenflow has, over all kinds of arguments.

What a function takes nobody writes down here: arguments are drawn at random, and what Evenflow compiles is an expression. A new function
or a new kind of syntax is drawn from the day on which it is in the catalogue.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Final

import pyarrow as pa
from sqlglot import exp

from evenflow.errors import EvenflowError
from evenflow.query.expression import Compiled, compile_expression
from evenflow.query.sql.functions import FUNCTIONS
from evenflow.query.sql.type_texts import CAST_TYPES
from evenflow.query.sql.types import name_of
from tests.oracle.edge_values import LITERALS

SYNTAX: Final[dict[type[exp.Expr], Sequence[str]]] = {
    exp.Column: ("{0}",),
    exp.Literal: ("12", "1e3", "9223372036854775807", "'it''s'", '"two"'),
    exp.RawString: ("r'a\\b'",),
    exp.HexString: ("x'0aFF'", "X'aff'", "x''"),
    exp.Tuple: ("({0}, {1})", "({0}, {1}, {2}).col2"),
    exp.Boolean: ("true", "false"),
    exp.Null: ("null",),
    exp.Interval: ("interval 3 days", "interval '2' hour", "interval '1 02:03' day to minute", "interval '-1:02.5' minute to second"),
    exp.Paren: ("({0})",),
    exp.Dot: ("named_struct('a', {0}, 'b', {1}).b", "(struct({0}, {1})).col1"),
    exp.Bracket: ("array({0}, {0}, {1})[1]", "map('one', {0}, 'two', {1})['two']"),
    exp.Cast: (),
    exp.TryCast: (),
    exp.Neg: ("-{0}", "- -{0}"),
    exp.Not: ("not {0}",),
    exp.And: ("{0} and {1}", "{0} and {1} and {2}"),
    exp.Or: ("{0} or {1}", "{0} or {1} and {2}"),
    exp.EQ: ("{0} = {1}",),
    exp.NEQ: ("{0} <> {1}", "{0} != {1}"),
    exp.LT: ("{0} < {1}",),
    exp.LTE: ("{0} <= {1}",),
    exp.GT: ("{0} > {1}",),
    exp.GTE: ("{0} >= {1}",),
    exp.NullSafeEQ: ("{0} <=> {1}",),
    exp.NullSafeNEQ: ("{0} is distinct from {1}",),
    exp.Add: ("{0} + {1}", "{0} + {1} + {2}"),
    exp.Sub: ("{0} - {1}", "{0} - {1} - {2}"),
    exp.Mul: ("{0} * {1}", "{0} + {1} * {2}"),
    exp.Div: ("{0} / {1}", "{0} / {1} * {2}"),
    exp.IntDiv: ("{0} div {1}",),
    exp.Mod: ("{0} % {1}",),
    exp.BitwiseAnd: ("{0} & {1}",),
    exp.BitwiseOr: ("{0} | {1}", "{0} | {1} & {2}"),
    exp.BitwiseXor: ("{0} ^ {1}", "{0} ^ {1} | {2}"),
    exp.BitwiseNot: ("~{0}",),
    exp.BitwiseLeftShift: ("{0} << {1}",),
    exp.BitwiseRightShift: ("{0} >> {1}",),
    exp.Is: ("{0} is null", "{0} is not null", "{0} is true", "{0} is not false"),
    exp.Between: ("{0} between {1} and {2}", "{0} not between {1} and {2}"),
    exp.In: ("{0} in ({1}, {2})", "{0} not in ({1})", "{0} in ({1}, {2}, {3})"),
    exp.Like: ("{0} like {1}", "{0} not like {1}"),
    exp.ILike: ("{0} ilike {1}", "{0} not ilike {1}"),
    exp.RegexpLike: ("{0} rlike {1}", "{0} regexp {1}"),
    exp.Escape: ("{0} like {1} escape '/'",),
    exp.Case: (
        "case when {0} then {1} when {2} then {3} else {4} end", "case {0} when {1} then {2} else {3} end", "case when {0} then {1} end",
        "case when {0} <> {1} then {2} / {0} end", "case when {0} is not null then {1} end",
    ),
    exp.If: ("if({0}, {1}, {2})", "if({0} = {1}, {2}, {3})"),
    exp.Anonymous: (),
    exp.Transform: ("transform(array({0}, {1}), x -> x)", "transform(array({0}), (x, i) -> i)"),
    exp.Identifier: ("filter(array({0}, {1}), x -> x is not null)", "exists(array({0}, {1}), x -> x = {2})"),
    exp.DPipe: ("{0} || {1}", "{0} || {1} || {2}"),
    exp.Concat: ("'a' 'b'",),
    exp.Trim: ("trim(both {1} from {0})", "trim(leading {1} from {0})", "trim(trailing {1} from {0})", "trim(both from {0})", "trim({0})"),
    exp.Substring: ("substring({0}, {1}, {2})", "substring({0} from {1} for {2})", "substring({0} from {1})"),
    exp.Overlay: ("overlay({0} placing {1} from {2})", "overlay({0} placing {1} from {2} for {3})"),
    exp.StrPosition: ("position({1} in {0})", "position({1}, {0})", "position({1}, {0}, {2})"),
    exp.Extract: tuple(f"extract({unit} from {{0}})" for unit in (
        "year", "quarter", "month", "week", "day", "doy", "dow", "hour", "minute", "second", "dayofweek",
    )),
}  # fmt: skip
"""Per kind of syntax that Evenflow reads, how it is written; that there is one for each is a test."""

LENGTHS: Final = {"repeat": 1, "lpad": 1, "rpad": 1, "array_repeat": 1, "space": 0, "format_number": 1}
"""Functions that make texts of any length, and which argument says it: two thousand million characters are no test, here or in Spark."""
ENDLESS: Final = frozenset({"sequence"})
"""From the least number to the greatest there are too many to be drawn."""
SHORT: Final = ("a", "0", "3", "-1", "9", "'2'", "null", "least(i, 70)", "least(j, 20)")

ARGUMENTS: Final = 4
"""A function of any number of arguments is given up to this many."""


class Drawing:
    """Draws expressions that Evenflow compiles over `schema`. untyped: texts at which it raised what is no error of Evenflow."""

    def __init__(self, schema: pa.Schema, seed: int) -> None:
        self._schema, self._seed = schema, seed
        self.untyped: dict[str, Exception] = {}
        self._simple: dict[str, Compiled] = {}

    def all(self, each: int, every: int = 1) -> dict[str, Compiled]:
        """Casts, calls and syntax, `each` of each pattern; or of one function, cast and way of writing in `every`."""
        casts = dict(list(self.casts().items())[::every])
        return {**casts, **self.functions(each, every), **self.syntax(each, every)}

    def functions(self, each: int, every: int = 1) -> dict[str, Compiled]:
        """Calls of every function, or of one in `every`, `each` of each number of arguments, but of those that only the parser writes."""
        found: dict[str, Compiled] = {}
        known = sorted((name, made) for name, made in FUNCTIONS.items() if not name.startswith("_") and name not in ENDLESS)
        for name, signature in known[::every]:
            for count in range(signature.least, min(signature.most, max(signature.least, ARGUMENTS)) + 1):
                pattern = f"{name}({', '.join(f'{{{k}}}' for k in range(count))})"
                found |= self._of(pattern, each)
        return found

    def syntax(self, each: int, every: int = 1) -> dict[str, Compiled]:
        """Every way of writing every kind of syntax, or one in `every`, `each` times."""
        found: dict[str, Compiled] = {}
        for pattern in [p for patterns in SYNTAX.values() for p in patterns][::every]:
            found |= self._of(pattern, each)
        return found

    def casts(self) -> dict[str, Compiled]:
        """Every column to every type, by cast and by try_cast."""
        found: dict[str, Compiled] = {}
        for type in (*dict.fromkeys(map(name_of, CAST_TYPES.values())), "decimal(5,2)", "decimal(38,0)"):
            for name in self._schema.names:
                for call in ("cast", "try_cast"):
                    self._add(found, f"{call}({name} as {type})")
        return found

    def _of(self, pattern: str, each: int) -> dict[str, Compiled]:
        rng = random.Random(f"{self._seed} {pattern}")
        found: dict[str, Compiled] = {}
        arguments = pattern.count("{")
        for _ in range(20 * each * max(1, arguments)):
            if len(found) == each or (found and not arguments):
                break
            drawn = self._arguments(rng, arguments)
            if (place := LENGTHS.get(pattern.partition("(")[0])) is not None:
                drawn[place] = rng.choice(SHORT)
            self._add(found, pattern.format(*drawn))
        self._simple |= {
            text: made for text, made in found.items() if not pa.types.is_floating(made.type)
        }  # See `same` for their last digits.
        return found

    def _arguments(self, rng: random.Random, least: int) -> list[str]:
        """Mostly of one column or constant each, of which two are often of one type, because many functions want that."""
        drawn = [self._atom(rng) for _ in range(max(5, least))]
        if rng.random() < 0.4:
            same = drawn[0] if drawn[0] in self._schema.names else rng.choice(self._schema.names)
            kind = self._schema.field(same).type
            alike = [f.name for f in self._schema if f.type == kind]
            drawn = [rng.choice(alike) if rng.random() < 0.8 else text for text in drawn]
        return drawn

    def _atom(self, rng: random.Random) -> str:
        chance = rng.random()
        if chance < 0.08 and self._simple:
            return f"({rng.choice(list(self._simple))})"
        return rng.choice(self._schema.names) if chance < 0.7 else rng.choice(LITERALS)

    def _add(self, found: dict[str, Compiled], text: str) -> None:
        if len(text) > 300:
            return
        try:
            found[text] = compile_expression(text, self._schema)
        except EvenflowError:
            pass  # It says that it cannot; what Spark can beyond that is no wrong answer.
        except Exception as error:
            self.untyped[text] = error
