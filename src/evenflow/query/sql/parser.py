"""Expression text to syntax tree: Spark's grammar by sqlglot, with function calls left as they were written.

sqlglot normalises calls so that it can translate between dialects; Evenflow wants what Spark would do with that very name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import Any, ClassVar, Final

import sqlglot
from sqlglot import exp
from sqlglot.dialects.spark import Spark
from sqlglot.errors import ParseError, SqlglotError
from sqlglot.parsers.spark import SparkParser
from sqlglot.tokenizer_core import TokenType

from evenflow.errors import EvenflowError, ExpressionError
from evenflow.query.sql import composed
from evenflow.query.sql.collated import collate, collated
from evenflow.query.sql.depth import check_depth, flattened, room
from evenflow.query.user.scope import built_in, is_known

_SPECIAL_SYNTAX: Final = ("CAST", "TRY_CAST", "EXTRACT", "TRIM", "POSITION", "SUBSTRING", "SUBSTR", "OVERLAY")
_OPENED: Final = frozenset({"CASE"})
"""Words that a parenthesis may follow without making a call; a function of that name is called in backquotes."""
_SHIFTS: Final = ((TokenType.LT, exp.BitwiseLeftShift), (TokenType.GT, exp.BitwiseRightShift))


def struct_call(given: list[exp.Expr]) -> exp.Expr:
    """struct(a, b AS c) as named_struct('a', a, 'c', b): a name of its own, or the number of the place, whatever becomes of the columns."""
    if not given or any(isinstance(each, exp.Star) or each.is_star for each in given):
        return exp.Anonymous(this="struct", expressions=given)
    pairs: list[exp.Expr] = []
    for place, each in enumerate(given, 1):
        if isinstance(each, exp.PropertyEQ):  # So the parser has it, where it is a column or has an alias.
            name, value = each.this.name, each.expression
        else:
            name, value = (each.name if isinstance(each, exp.Column) else each.expression.name if isinstance(each, exp.Dot) else ""), each
        pairs += [exp.Literal.string(name or f"col{place}"), value]
    return exp.Anonymous(this=built_in("named_struct"), expressions=pairs)


def _with_unit(name: str, other: str | None) -> Callable[[list[exp.Expr]], exp.Expr]:
    """timestampdiff(SECOND, a, b), whose unit is no column. other: the name of the same call without a unit, of two arguments."""

    def build(given: list[exp.Expr]) -> exp.Expr:
        if len(given) != 3 and other is not None:
            return exp.Anonymous(this=other, expressions=given)
        unit = [exp.Literal.string(each.name) if isinstance(each, exp.Column | exp.Var) else each for each in given[:1]]
        return exp.Anonymous(this=name, expressions=[*unit, *given[1:]])

    return build


_UNITS: Final = {
    "TIMESTAMPDIFF": _with_unit("_timestampdiff", None), "TIMESTAMP_DIFF": _with_unit("_timestampdiff", None),
    "TIMESTAMPADD": _with_unit("_timestampadd", None),
    "DATEADD": _with_unit("_timestampadd", "dateadd"), "DATE_ADD": _with_unit("_timestampadd", "date_add"),
    "DATEDIFF": _with_unit("_timestampdiff", "datediff"), "DATE_DIFF": _with_unit("_timestampdiff", "date_diff"),
}  # fmt: skip


def zip_call(given: list[exp.Expr]) -> exp.Expr:
    """arrays_zip(a, b): its fields are called as the columns are, or by the numbers of their places, from 0."""
    named = [exp.Literal.string(each.name if isinstance(each, exp.Column) else str(at)) for at, each in enumerate(given)]
    return exp.Anonymous(this="_arrays_zip", expressions=[part for pair in zip(named, given, strict=True) for part in pair])


def free_variable(text: str) -> str:
    """A name for the variable of a lambda that takes no column away from an expression beside it, whose text this is."""
    name = "_each"
    while name in text.lower():
        name += "_"
    return name


def dotted(owner: exp.Expr, fields: Iterable[str]) -> exp.Expr:
    """owner.field.field"""
    for name in fields:
        owner = exp.Dot(this=owner, expression=exp.to_identifier(name, quoted=True))
    return owner


def _like(kind: type[exp.Expr]) -> Callable[[Any, exp.Expr | None], exp.Expr | None]:
    """a LIKE b, and a LIKE ANY (b, c), SOME or ALL, which are LIKEs with OR or AND between them. A NOT in front is of each of them."""

    def parse(parser: Any, this: exp.Expr | None) -> exp.Expr | None:
        negated = parser._index > 1 and parser._tokens[parser._index - 2].token_type == TokenType.NOT
        for token in (TokenType.ANY, TokenType.SOME, TokenType.ALL):
            if parser._match_pair(token, TokenType.L_PAREN):
                patterns = parser._parse_csv(parser._parse_bitwise)
                parser._match_r_paren()
                parts = [kind(this=this.copy() if this else None, expression=pattern) for pattern in patterns]
                either = (token == TokenType.ALL) == negated
                return exp.Paren(this=exp.or_(*parts) if either else exp.and_(*parts))
        return parser._parse_escape(parser.expression(kind(this=this, expression=parser._parse_bitwise())))  # type: ignore[no-any-return]

    return parse


def _plus(parser: Any) -> exp.Expr | None:
    """+a, which makes a string a double. A number is itself."""
    this = parser._parse_unary()
    if this is None or isinstance(this, exp.Interval) or isinstance(this, exp.Literal) and not this.is_string:
        return this
    return exp.Anonymous(this=built_in("positive"), expressions=[this])


class ExpressionParser(SparkParser):
    """Spark's grammar, with function calls as they were written."""

    STRICT_CAST = True
    COLON_IS_VARIANT_EXTRACT = True
    FUNCTIONS: ClassVar[Any] = {"STRUCT": struct_call, **_UNITS, "ARRAYS_ZIP": zip_call, "COLLATE": collate}
    ARRAY_CONSTRUCTORS: ClassVar[Any] = {}
    FUNCTION_PARSERS: ClassVar[Any] = {k: v for k, v in SparkParser.FUNCTION_PARSERS.items() if k in _SPECIAL_SYNTAX}
    NO_PAREN_FUNCTIONS: ClassVar[Any] = {}
    NO_PAREN_FUNCTION_PARSERS: ClassVar[Any] = {k: v for k, v in SparkParser.NO_PAREN_FUNCTION_PARSERS.items() if k != "ANY"}
    TYPE_LITERAL_PARSERS: ClassVar[Any] = {
        **SparkParser.TYPE_LITERAL_PARSERS,
        exp.DType.TIME: lambda self, this, _: exp.Anonymous(this="_time", expressions=[this]),
    }
    UNARY_PARSERS: ClassVar[Any] = {**SparkParser.UNARY_PARSERS, TokenType.PLUS: _plus}
    RANGE_PARSERS: ClassVar[Any] = {**SparkParser.RANGE_PARSERS, TokenType.LIKE: _like(exp.Like), TokenType.ILIKE: _like(exp.ILike)}
    TERM: ClassVar[Any] = {**SparkParser.TERM, TokenType.DPIPE: exp.DPipe}

    def _parse_function_call(
        self, functions: Any = None, anonymous: bool = False, optional_parens: bool = True, any_token: bool = False
    ) -> exp.Expr | None:
        """A call by a name that the user has given a function is that function's, whatever else the grammar has of that name."""
        if self._curr and self._next and self._next.token_type == TokenType.L_PAREN and is_known(self._curr.text) and not self._at_cast():
            anonymous, optional_parens = True, self._curr.text.upper() in _OPENED
        return super()._parse_function_call(functions, anonymous, optional_parens, any_token)

    def _at_cast(self) -> bool:
        """CAST(x AS type), which is no call, whatever has that name."""
        if self._curr.text.upper() not in ("CAST", "TRY_CAST"):
            return False
        depth = 0
        for token in self._tokens[self._index + 1 :]:
            depth += {TokenType.L_PAREN: 1, TokenType.R_PAREN: -1}.get(token.token_type, 0)
            if depth == 0 or (depth == 1 and token.token_type == TokenType.ALIAS):
                return depth == 1
        return False

    def _parse_column_parts_fast(self) -> exp.Column | exp.Dot | None:
        return None if self._at_octets() else super()._parse_column_parts_fast()

    def _parse_primary(self) -> exp.Expr | None:
        """X '0aff' is bytes, with a blank before the quote too."""
        if not self._at_octets():
            return super()._parse_primary()
        self._advance(2)
        return self.expression(exp.HexString(this=self._prev.text))

    def _at_octets(self) -> bool:
        now, then = self._curr, self._next
        return bool(now and then and now.token_type == TokenType.VAR and now.text in ("x", "X") and then.token_type == TokenType.STRING)

    def _build_json_extract(
        self, this: exp.Expr | None, path_parts: list[exp.JSONPathPart]
    ) -> tuple[exp.Expr | None, list[exp.JSONPathPart]]:
        """v:a.b[0], a path into a variant."""
        if len(path_parts) == 1:
            return this, path_parts
        steps = [part.this for part in path_parts[1:]]
        if not all(isinstance(step, str | int) for step in steps):
            self.raise_error("a path into a variant has names and places")
        quotes = ['"' if "'" in str(step) else "'" for step in steps]
        path = "".join(f"[{step}]" if isinstance(step, int) else f"[{q}{step}{q}]" for step, q in zip(steps, quotes, strict=True))
        return exp.Anonymous(this=built_in("variant_get"), expressions=[this, exp.Literal.string("$" + path)]), path_parts[:1]

    def _parse_bitwise(self) -> exp.Expr | None:
        """Spark binds shifts tighter than &, & tighter than ^, and ^ tighter than |; sqlglot has them all alike."""
        return self._level((TokenType.PIPE, TokenType.CARET, TokenType.AMP))

    def _level(self, operators: tuple[TokenType, ...]) -> exp.Expr | None:
        if not operators:
            return self._shift()
        this = self._level(operators[1:])
        while self._match(operators[0]):
            this = self.expression(self.BITWISE[operators[0]](this=this, expression=self._level(operators[1:])))
        return this

    def _shift(self) -> exp.Expr | None:
        this = self._parse_term()
        while True:
            for token, node in _SHIFTS:
                if self._match_pair(token, token):
                    if token == TokenType.GT and self._match(TokenType.GT):
                        this = exp.Anonymous(this=built_in("shiftrightunsigned"), expressions=[this, self._parse_term()])
                        break
                    this = self.expression(node(this=this, expression=self._parse_term()))
                    break
            else:
                return this

    def _parse_extract(self) -> exp.Extract | exp.Anonymous:
        """EXTRACT(unit FROM a). With a comma it is a call like others, and its unit a string."""
        begin = self._index
        unit = self._parse_var_or_string(upper=True)
        if self._match(TokenType.FROM):
            return self.expression(exp.Extract(this=unit, expression=self._parse_bitwise()))
        self._retreat(begin)
        return self.expression(exp.Anonymous(this="extract", expressions=self._parse_csv(self._parse_lambda)))

    def _parse_respect_or_ignore_nulls(self, this: exp.Expr | None) -> exp.Expr | None:
        found = super()._parse_respect_or_ignore_nulls(this)
        if isinstance(found, exp.RespectNulls) and (made := composed.with_nulls(this, _read)) is not None:
            return made
        if this is None or found is this or (name := composed.made_of_others(this)) is None:
            return found
        if isinstance(found, exp.IgnoreNulls) and name not in composed.WITH_NULLS:
            self.raise_error(f"{name} has no IGNORE NULLS")
        return this

    def _parse_window(self, this: exp.Expr | None, alias: bool = False) -> exp.Expr | None:
        found = super()._parse_window(this, alias)
        if isinstance(found, exp.Filter | exp.Window) and isinstance(found.this, exp.WithinGroup):
            found.set("this", composed.within_group(found.this, _read))
        return composed.within_group(found, _read) if isinstance(found, exp.WithinGroup) else found


def _read(text: str) -> exp.Expr:
    return sqlglot.parse_one(text, dialect=ExpressionDialect)


ExpressionParser.FUNCTIONS.update(composed.calls(_read))


class ExpressionDialect(Spark):
    """Spark's, with function calls as they were written."""

    class Tokenizer(Spark.Tokenizer):
        STRING_ESCAPES: ClassVar[Any] = ["\\", "'", '"']

    Parser = ExpressionParser


def parse(text: str) -> exp.Expr:
    """The syntax tree of one expression. ExpressionError with the position if it is not one."""
    if not isinstance(text, str) or not text.strip():
        raise ExpressionError('the expression is empty; write a Spark SQL expression such as "proto = 6"')
    try:
        with room(text):
            tree = collated(flattened(sqlglot.parse_one(text, dialect=ExpressionDialect)))
    except ParseError as error:
        raise _located(ExpressionError(_message(text, error)), text, error) from None
    except EvenflowError:
        raise
    except (SqlglotError, ValueError, ArithmeticError, TypeError, AttributeError, LookupError) as error:  # The library's, on odd texts.
        raise ExpressionError(f"cannot read the expression {text!r}: {error}; is a quote not closed?") from None
    if isinstance(tree, exp.Block | exp.Command):
        raise ExpressionError(f"{text!r} is not one expression; give one Spark SQL expression without ';' and without a statement")
    check_depth(tree, text)
    return tree


def _message(text: str, error: ParseError) -> str:
    if not error.errors:
        return f"cannot read the expression {text!r}"
    first = error.errors[0]
    reason = str(first["description"]).split(" for <class")[0]
    where = f"line {first['line']}, column {first['col']}"
    return f"cannot read the expression {text!r}: {reason}, at {where}, near {first['highlight']!r}"


def _located(raised: ExpressionError, text: str, error: ParseError) -> ExpressionError:
    raised.expression = text
    if not error.errors:
        return raised
    first = error.errors[0]
    before = sum(len(line) for line in text.splitlines(keepends=True)[: int(first["line"]) - 1])
    end = min(before + int(first["col"]), len(text))
    return raised.at(max(before, end - len(str(first["highlight"]))), end)


def span_of(tree: exp.Expr) -> tuple[int, int] | None:
    """The letters that a part of a tree was read from, from the first up to one behind the last; None if nobody knows."""
    known = [node.meta for node in tree.walk() if "start" in node.meta]
    return (min(meta["start"] for meta in known), max(meta["end"] for meta in known) + 1) if known else None


def length_of(tree: exp.Expr) -> str | None:
    """The text of '10 seconds' and of INTERVAL 10 SECONDS; None of anything else."""
    if isinstance(tree, exp.Literal) and tree.is_string:
        return str(tree.this)
    if isinstance(tree, exp.Interval) and tree.this is not None:
        sign, value = ("-", tree.this.this) if isinstance(tree.this, exp.Neg) else ("", tree.this)
        return f"{sign}{value.name} {tree.args['unit'].name}" if tree.args.get("unit") else str(value.name)
    return None


def to_sql(tree: exp.Expr) -> str:
    """The tree as text that parses to it again."""
    with room(tree.key):
        text: str = tree.sql(dialect=ExpressionDialect, comments=False)
    return text


@lru_cache(maxsize=4_096)
def _column(name: str, quoted: bool) -> str:
    return to_sql(exp.column(name, quoted=quoted))


@lru_cache(maxsize=4_096)
def _literal(value: str, is_string: bool) -> str:
    return to_sql(exp.Literal(this=value, is_string=is_string))


def render(tree: exp.Expr) -> str:
    """The tree as text, for messages. Most of those that are asked for are leaves, which come again and again."""
    if type(tree) is exp.Column and len(tree.parts) == 1 and type(tree.this) is exp.Identifier:
        text = _column(tree.name, bool(tree.this.quoted))
    elif type(tree) is exp.Literal:
        text = _literal(tree.this, tree.is_string)
    else:
        text = to_sql(tree)
    return text if len(text) <= 80 else text[:77] + "..."
