"""Syntax tree to node: one walk, at build time. Each kind of syntax has one handler in the table at the end."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Mapping, Sequence
from decimal import Decimal
from types import MappingProxyType
from typing import Any, Final

import pyarrow as pa
from sqlglot import exp

from evenflow.errors import ExpressionError, QueryError, TypeMismatch, UnknownColumn
from evenflow.query.sql import nested, variants
from evenflow.query.sql import operators as op
from evenflow.query.sql.casts import cast, of_unit
from evenflow.query.sql.collated import REFUSED
from evenflow.query.sql.functions import AGGREGATES, IMPURE, build_function
from evenflow.query.sql.intervals import interval, last_unit
from evenflow.query.sql.lambdas import HIGHER, is_higher
from evenflow.query.sql.moves import moved
from evenflow.query.sql.node import Node, choose, literal, spread
from evenflow.query.sql.parser import render, span_of, struct_call
from evenflow.query.sql.type_texts import type_of
from evenflow.query.sql.types import BINARY, DOUBLE, INT, INTERVAL, LONG, NULL, STRING, bounds, common, name_of
from evenflow.query.user.calling import Called
from evenflow.query.user.scope import aggregate_of, built_in, called_by, called_name
from evenflow.stream.schema import VARIANT

MAX_DIGITS: Final = 38


class Walker:
    """Walks the syntax tree once. used: columns seen, in order (a dict for its order). called: the user's functions, by name.

    functions: those that are known besides the ones in scope.
    """

    def __init__(self, schema: pa.Schema, functions: Mapping[str, Called] = MappingProxyType({})) -> None:
        self.schema, self.used, self._functions = schema, dict[str, None](), functions
        self.called: dict[str, Called] = {}
        self.variables: Mapping[str, tuple[str, pa.DataType]] = {}

    def within(self, variables: Mapping[str, tuple[str, pa.DataType]]) -> Walker:
        """For the body of a lambda. variables: what they are called in its batch, and their types, by name."""
        inner = Walker(self.schema, self._functions)
        inner.variables = {**self.variables, **variables}
        return inner

    def variable(self, tree: exp.Identifier) -> Node:
        """A variable of a lambda."""
        if tree.name.lower() not in self.variables:
            raise ExpressionError(f"{render(tree)!r} is no variable of a function around it")
        hidden, type = self.variables[tree.name.lower()]
        self.used[hidden] = None
        return Node(type, lambda batch: batch.column(hidden))

    def user_function(self, name: str) -> Called | None:
        """The user's function of that name, which is remembered."""
        found = self._functions.get(name) or called_by(name)
        if found is not None:
            self.called[name] = found
        return found

    def node(self, tree: exp.Expr) -> Node:
        """The node of a tree, with its text for messages. Errors that do not say where yet are given the fragment."""
        if isinstance(tree, exp.Collate):
            raise ExpressionError(f"{render(tree)!r}: {REFUSED}")
        handler = HANDLERS.get(type(tree))
        if handler is None:
            raise ExpressionError(f"{render(tree)!r}: this syntax is not available; a Python callable can be passed instead")
        try:
            built = handler(self, tree)
        except QueryError as error:
            if (found := span_of(tree)) is not None:
                error.at(*found)
            raise
        return Node(built.type, built.run, built.constant, built.raises, render(tree), built.unit)

    def nodes(self, trees: Iterable[exp.Expr]) -> list[Node]:
        return [self.node(t) for t in trees]

    def column(self, tree: exp.Column) -> Node:
        if tree.table:
            return self._of_structure(tree)
        if (bounds := self._bounds(tree.name)) is not None:
            edges = [part for edge, column in bounds.items() for part in (exp.Literal.string(edge), exp.column(column, quoted=True))]
            return self.node(exp.Anonymous(this=built_in("named_struct"), expressions=edges))
        name = resolve(tree.name, self.schema)
        self.used[name] = None
        found = self.schema.field(name).type
        plain = STRING if pa.types.is_large_string(found) else found
        if plain != found:
            return Node(plain, lambda batch: batch.column(name).cast(STRING))
        return Node(found, lambda batch: batch.column(name))

    def _bounds(self, name: str) -> dict[str, str] | None:
        """The columns of start and end of `window`, or `session_window`, which are two columns where the builder has made the groups."""
        names = self.schema.names
        edges = {edge: f"window_{edge}" for edge in ("start", "end")}
        made = name.lower() in ("window", "session_window") and {*edges.values()} <= {*names} and name.lower() not in map(str.lower, names)
        return edges if made else None

    def _of_structure(self, tree: exp.Column) -> Node:
        """`a.b.c`: the parser takes the names in front for those of a table, and here they are a column and its fields."""
        owner, *fields = [part.name for part in tree.parts]
        if (bounds := self._bounds(owner)) is not None and len(fields) == 1 and fields[0].lower() in bounds:
            return self.node(exp.column(bounds[fields[0].lower()], quoted=True))
        if bounds is None and owner.lower() not in (name.lower() for name in self.schema.names):
            raise ExpressionError(f"{render(tree)!r}: there is no column {owner!r} that has fields, and columns have no qualifier here; "
                                  f"write `{tree.name}`")  # fmt: skip
        node = self.node(exp.column(owner, quoted=True))
        for name in fields:
            found = nested.field_of(node, name)
            node = Node(found.type, found.run, found.constant, found.raises, f"{node.text}.{name}")
        return node


def resolve(name: str, schema: pa.Schema) -> str:
    """The schema's spelling of a column, whatever the case. UnknownColumn if it has none, ExpressionError if it has several."""
    matches = [n for n in schema.names if n.lower() == name.lower()]
    if len(matches) == 1:
        return str(matches[0])
    if matches:
        raise ExpressionError(f"column {name!r} is ambiguous: it could be {', '.join(map(repr, matches))}; rename one of them")
    near = difflib.get_close_matches(name.lower(), [n.lower() for n in schema.names], n=1)
    hint = next((f" (did you mean {n!r}?)" for n in schema.names if near and n.lower() == near[0]), "")
    raise UnknownColumn(f"there is no column {name!r}{hint}; the columns are {', '.join(schema.names) or '(none)'}")


# Leaves


def _number(walker: Walker, tree: exp.Literal) -> Node:
    text = tree.this
    if tree.is_string:
        return literal(pa.scalar(text, STRING))
    if not text.isdigit():
        return literal(pa.scalar(float(text), DOUBLE)) if "e" in text.lower() else _exact(text)
    value = int(text)
    for type in (INT, LONG):
        if value <= bounds(type)[1]:
            return literal(pa.scalar(value, type))
    return _exact(text)


def _exact(text: str) -> Node:
    """A number with a point, or one that no bigint holds: a decimal of as many digits as it has, as in Spark. 1.5D is a double."""
    value = Decimal(text)
    scale = max(0, -int(value.as_tuple().exponent))
    precision = max(scale, len(value.as_tuple().digits))
    if precision > MAX_DIGITS:
        raise ExpressionError(f"the number {text} has more than {MAX_DIGITS} digits")
    return literal(pa.scalar(value, pa.decimal128(precision, scale)))


def _negative(walker: Walker, tree: exp.Neg) -> Node:
    """-9223372036854775808 is a bigint though 9223372036854775808 is not, and -128Y a tinyint."""
    inner = tree.this
    if isinstance(inner, exp.Cast) and isinstance(inner.this, exp.Literal) and not inner.this.is_string and inner.this.this.isdigit():
        target = type_of(inner.args["to"])
        if pa.types.is_integer(target) and int(inner.this.this) == -bounds(target)[0]:
            return literal(pa.scalar(bounds(target)[0], target))
    if isinstance(inner, exp.Literal) and not inner.is_string and inner.this.isdigit():
        for type in (INT, LONG):
            if int(inner.this) <= -bounds(type)[0]:
                return literal(pa.scalar(-int(inner.this), type))
    return op.negate(walker.node(inner))


def _cast(walker: Walker, tree: exp.Cast) -> Node:
    """CAST, `::`, typed literals (DATE '...') and suffixes (5L), which sqlglot also makes casts."""
    target = type_of(tree.args["to"])
    given, tried = walker.node(tree.this), isinstance(tree, exp.TryCast)
    if VARIANT in (given.type, target) and given.type not in (target, NULL):
        return variants.cast(given, target, tried)
    node = cast(given, target, try_=tried)
    if target == INTERVAL and (fields := tree.args["to"].this.args.get("unit")) is not None:
        node = of_unit(node, last_unit((fields.expression if isinstance(fields, exp.IntervalSpan) else fields).name))
    if isinstance(tree.this, exp.Literal) and node.constant is None:
        raise ExpressionError(f"{render(tree)!r} is not a valid {name_of(target)}")
    return node


def _bytes_of(tree: exp.HexString) -> bytes:
    """X'0aff'. One digit more than whole bytes stands in front."""
    digits = format(int(tree.this), "x") if str(tree.this).isdigit() and tree.args.get("is_integer") else str(tree.this)
    try:
        return bytes.fromhex("0" * (len(digits) % 2) + digits)
    except ValueError:
        raise ExpressionError(f"{render(tree)!r} has something else than hexadecimal digits") from None


def _property(tree: exp.Expr) -> exp.Expr:
    """A field of a tuple: a variable of a lambda has its name there, as a column has."""
    return exp.PropertyEQ(this=exp.to_identifier(tree.name), expression=tree) if isinstance(tree, exp.Identifier) else tree


# Inner nodes


def _binary(build: Callable[[Node, Node], Node]) -> Callable[[Walker, Any], Node]:
    return lambda walker, tree: build(walker.node(tree.this), walker.node(tree.expression))


def _named(build: Callable[[str, Node, Node], Node], name: str) -> Callable[[Walker, Any], Node]:
    return lambda walker, tree: build(name, walker.node(tree.this), walker.node(tree.expression))


def _sum(name: str) -> Callable[[Walker, Any], Node]:
    def build(walker: Walker, tree: Any) -> Node:
        found = moved(name, tree, walker.node)
        return found if found is not None else op.arithmetic(name, walker.node(tree.this), walker.node(tree.expression))

    return build


def _unary(build: Callable[[Node], Node]) -> Callable[[Walker, Any], Node]:
    return lambda walker, tree: build(walker.node(tree.this))


def _named_call(name: str, *parts: str) -> Callable[[Walker, Any], Node]:
    """Special syntax that is a function: its parts are the arguments, in order, those that are there."""
    return lambda walker, tree: build_function(name, walker.nodes(tree.args[p] for p in parts if tree.args.get(p) is not None))


def _call(walker: Walker, tree: exp.Anonymous) -> Node:
    if (made := walker.user_function(tree.name.lower())) is not None:
        return _user_call(made, walker.nodes(tree.expressions))
    name = called_name(tree.name)
    if name in AGGREGATES or aggregate_of(tree.name) is not None:
        raise ExpressionError(f"{render(tree)!r}: {name} is an aggregate; use it in agg(...) after group_by(...)")
    if name in IMPURE:
        raise ExpressionError(f"{render(tree)!r}: {name} gives something else each time, and a replayed row must give the same result; "
                              "take the value from a column")  # fmt: skip
    if is_higher(tree, tree.expressions):
        return HIGHER[name](walker, tree, tree.expressions)
    if any(isinstance(a, exp.Distinct | exp.Star) for a in tree.expressions):
        raise ExpressionError(f"{render(tree)!r}: only an aggregate can take * or DISTINCT")
    return build_function(name, walker.nodes(tree.expressions), render(tree))


def _user_call(made: Called, arguments: Sequence[Node]) -> Node:
    """A call of the user's function, which is given whole columns, constants too. It may refuse some value."""

    def run(batch: pa.RecordBatch) -> pa.Array:
        return made.apply([spread(argument.run(batch), batch.num_rows) for argument in arguments], batch.num_rows)

    return Node(made.type, run, None, True)


def _if(walker: Walker, tree: exp.If) -> Node:
    return build_function("if", walker.nodes(tree.args[p] for p in ("this", "true", "false") if tree.args.get(p) is not None))


def _case(walker: Walker, tree: exp.Case) -> Node:
    subject = walker.node(tree.this) if tree.this is not None else None
    conditions, values = [], []
    for branch in tree.args["ifs"]:
        test = walker.node(branch.this)
        if subject is None and test.type == NULL:
            raise TypeMismatch(f"CASE WHEN needs a boolean, but {test.text} is void; cast it")
        conditions.append(op.truth(test, "CASE WHEN") if subject is None else op.compare("=", subject, test))
        values.append(walker.node(branch.args["true"]))
    default = tree.args.get("default")
    other = walker.node(default) if default is not None else literal(pa.scalar(None, NULL))
    type = common([*(v.type for v in values), other.type], "the values of CASE")
    return choose([(c, cast(v, type)) for c, v in zip(conditions, values)], cast(other, type))


def _is(walker: Walker, tree: exp.Is) -> Node:
    node, right = walker.node(tree.this), tree.expression
    if isinstance(right, exp.Null):
        return op.is_null(node)
    if isinstance(right, exp.Boolean):
        return op.null_safe_equal(op.truth(node, "IS TRUE"), literal(pa.scalar(bool(right.this))))
    raise ExpressionError(f"{render(tree)!r}: IS takes NULL, TRUE or FALSE")


def _between(walker: Walker, tree: exp.Between) -> Node:
    node, low, high = walker.nodes((tree.this, tree.args["low"], tree.args["high"]))
    return op.both(op.compare(">=", node, low), op.compare("<=", node, high))


def _in(walker: Walker, tree: exp.In) -> Node:
    if not tree.expressions:
        raise ExpressionError(f"{render(tree)!r}: IN takes a list of values; a subquery cannot run on a stream")
    return op.member(walker.node(tree.this), walker.nodes(tree.expressions))


def _pattern(name: str) -> Callable[[Walker, Any], Node]:
    def build(walker: Walker, tree: exp.Expr) -> Node:
        result = build_function(name, walker.nodes((tree.this, tree.args["expression"])))
        return op.negation(result) if tree.args.get("negate") else result

    return build


def _escape(walker: Walker, tree: exp.Escape) -> Node:
    inner = tree.this
    name = "ilike" if isinstance(inner, exp.ILike) else "like"
    result = build_function(name, walker.nodes((inner.this, inner.expression, tree.expression)))
    return op.negation(result) if inner.args.get("negate") else result


def _trim(walker: Walker, tree: exp.Trim) -> Node:
    name = {"LEADING": "ltrim", "TRAILING": "rtrim"}.get(str(tree.args.get("position") or ""), "btrim")
    nodes = walker.nodes(t for t in (tree.this, tree.args.get("expression")) if t is not None)
    # The functions ltrim and rtrim take the characters first, btrim takes them last.
    return build_function(name, nodes if name == "btrim" else nodes[::-1])


def _concat(walker: Walker, tree: exp.Concat) -> Node:
    """'a' 'b': string literals in a row are one string."""
    return build_function("concat", walker.nodes(tree.expressions))


def _position(walker: Walker, tree: exp.StrPosition) -> Node:
    """POSITION(part IN text), and position(part, text[, start])."""
    parts = (tree.args.get(p) for p in ("substr", "this", "position"))
    return build_function("locate", walker.nodes(p for p in parts if p is not None))


def _extract(walker: Walker, tree: exp.Extract) -> Node:
    return build_function("extract", [literal(pa.scalar(tree.this.name, STRING)), walker.node(tree.expression)])


def _dot(walker: Walker, tree: exp.Dot) -> Node:
    if not isinstance(tree.expression, exp.Identifier):
        raise ExpressionError(f"{render(tree)!r}: behind a dot there is the name of a field")
    return nested.field_of(walker.node(tree.this), tree.expression.name)


def _bracket(walker: Walker, tree: exp.Bracket) -> Node:
    if len(tree.expressions) != 1 or isinstance(tree.expressions[0], exp.Slice):
        raise ExpressionError(f"{render(tree)!r}: between the brackets there is one place, one key or the name of a field")
    return nested.item_of(walker.node(tree.this), walker.node(tree.expressions[0]))


def _transformed(walker: Walker, tree: exp.Transform) -> Node:
    return HIGHER["transform"](walker, tree, [tree.this, tree.expression])


HANDLERS: Final[dict[type[exp.Expr], Callable[[Walker, Any], Node]]] = {
    exp.Column: Walker.column,
    exp.Identifier: Walker.variable,
    exp.Transform: _transformed,
    exp.Literal: _number,
    exp.RawString: lambda walker, tree: literal(pa.scalar(tree.this, STRING)),
    exp.HexString: lambda walker, tree: literal(pa.scalar(_bytes_of(tree), BINARY)),
    exp.Tuple: lambda walker, tree: walker.node(struct_call([_property(each) for each in tree.expressions])),
    exp.Boolean: lambda walker, tree: literal(pa.scalar(bool(tree.this))),
    exp.Null: lambda walker, tree: literal(pa.scalar(None, NULL)),
    exp.Interval: lambda walker, tree: interval(tree),
    exp.Paren: lambda walker, tree: walker.node(tree.this),
    exp.Cast: _cast,
    exp.TryCast: _cast,
    exp.Neg: _negative,
    exp.Not: _unary(op.negation),
    exp.And: _binary(op.both),
    exp.Or: _binary(op.either),
    exp.EQ: _named(op.compare, "="),
    exp.NEQ: _named(op.compare, "!="),
    exp.LT: _named(op.compare, "<"),
    exp.LTE: _named(op.compare, "<="),
    exp.GT: _named(op.compare, ">"),
    exp.GTE: _named(op.compare, ">="),
    exp.NullSafeEQ: _binary(op.null_safe_equal),
    exp.NullSafeNEQ: _binary(lambda a, b: op.negation(op.null_safe_equal(a, b))),
    exp.Add: _sum("+"),
    exp.Sub: _sum("-"),
    exp.Mul: _named(op.arithmetic, "*"),
    exp.Div: _binary(op.divide),
    exp.IntDiv: _binary(op.whole_divide),
    exp.Mod: _binary(op.remainder),
    exp.BitwiseAnd: _named(op.bitwise, "&"),
    exp.BitwiseOr: _named(op.bitwise, "|"),
    exp.BitwiseXor: _named(op.bitwise, "^"),
    exp.BitwiseNot: _unary(op.complement),
    exp.BitwiseLeftShift: _named(op.shift, "shiftleft"),
    exp.BitwiseRightShift: _named(op.shift, "shiftright"),
    exp.Is: _is,
    exp.Between: _between,
    exp.In: _in,
    exp.Like: _pattern("like"),
    exp.ILike: _pattern("ilike"),
    exp.RegexpLike: _pattern("rlike"),
    exp.Escape: _escape,
    exp.Case: _case,
    exp.If: _if,
    exp.Anonymous: _call,
    exp.DPipe: _named_call("concat", "this", "expression"),
    exp.Concat: _concat,
    exp.Trim: _trim,
    exp.Substring: _named_call("substring", "this", "start", "length"),
    exp.StrPosition: _position,
    exp.Overlay: _named_call("overlay", "this", "expression", "from_", "for_"),
    exp.Extract: _extract,
    exp.Dot: _dot,
    exp.Bracket: _bracket,
}
