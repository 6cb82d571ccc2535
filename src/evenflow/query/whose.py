"""Whose a column is that was taken from a stream or a DataFrame: `a.join(b, a.k == b.k)`, `joined.where(b.k.isNull())`.

Streams give columns of PySpark that carry the stream's number. Where such a column stands in an expression of another stream, it is what
has become of it on the way there, as long as boxes pass it on as it is: behind a join with a suffix `b.k` is `k_right`. So is a column
behind an alias, `"b.k"` of `stream.alias("b")`, in texts and in columns.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import wraps
from itertools import count
from typing import Concatenate, Final, ParamSpec, TypeVar
from weakref import WeakValueDictionary

from sqlglot import exp

from evenflow.errors import NotPortable, QueryError
from evenflow.query.drawing import Arrow
from evenflow.query.given import spelled
from evenflow.query.join import OutColumn, out_columns
from evenflow.query.lineage import passed_on
from evenflow.query.network import Box, Network
from evenflow.query.spark_column import meaning
from evenflow.query.sql.parser import parse, to_sql

P = ParamSpec("P")
R = TypeVar("R")
S = TypeVar("S", bound=Arrow)

_NUMBERS: Final = count(1)
_NUMBERED: Final[WeakValueDictionary[int, Arrow]] = WeakValueDictionary()


def number_for(stream: Arrow) -> int:
    """A number of its own, which its columns carry."""
    number = next(_NUMBERS)
    _NUMBERED[number] = stream
    return number


def taking_columns(method: Callable[Concatenate[S, P], R]) -> Callable[Concatenate[S, P], R]:
    """A method of a stream whose arguments may have columns of the streams that it comes from."""

    @wraps(method)
    def taking(stream: S, /, *args: P.args, **named: P.kwargs) -> R:
        with columns_in(stream):
            return method(stream, *args, **named)

    return taking


def columns_in(stream: Arrow) -> AbstractContextManager[None]:
    """Expressions that are read meanwhile are of this stream."""
    return meaning(InStream(stream))


@dataclass(frozen=True, slots=True)
class InStream:
    """What columns are called in a stream."""

    stream: Arrow

    def column(self, owner: int | str | None, name: str) -> tuple[str, ...]:
        if isinstance(owner, str):
            found = behind_alias(self.stream, owner, name)
            return () if found is None else (found,)
        return (become(self.stream, owner, name),)

    def text(self, given: str, *, named: bool) -> str:
        if not any(f"{alias}." in given.replace("`", "") for alias in self.stream.flow.aliases):
            return given
        tree = parse(given)
        made = tree.copy().transform(self._unqualified)
        if made == tree:
            return given
        if isinstance(tree, exp.Column) and isinstance(made, exp.Column):
            return f"{to_sql(made)} AS `{tree.name}`" if named and made.name != tree.name else made.name
        return to_sql(made)

    def _unqualified(self, node: exp.Expr) -> exp.Expr:
        if not isinstance(node, exp.Column) or len(node.parts) < 2:
            return node
        alias, name, *fields = (part.name for part in node.parts)
        found = behind_alias(self.stream, alias, name)
        return node if found is None else _field(exp.column(found, quoted=True), fields)


def become(stream: Arrow, number: int | None, name: str) -> str:
    """What a column of the stream of that number is called in this one; of a DataFrame for None. The name as it is where nobody knows.

    Raises NotPortable for a column of a DataFrame that no join above has brought in, or several have.
    """
    found = _of_table(stream, name) if number is None else _of_stream(stream, number, name)
    if number is None and len(found) != 1:
        many = "several joins have" if found else "no join has"
        raise NotPortable(f"{many} brought a column {name!r} of a DataFrame into this stream: write its name as text")
    return name if name in found or not found else found[0]


def behind_alias(stream: Arrow, alias: str, name: str) -> str | None:
    """What column `name` of what the alias stands for is called in the stream; None if there is no such alias above. Raises QueryError if
    that has no such column, or nothing of it is left here, or both sides of a join have it."""
    boxes = {box.name: box for box in boxes_above(stream)}
    meant = [each for each in stream.flow.aliases.get(alias, ()) if each.handle.name in boxes]
    if not meant:
        return None
    network, at = stream.flow.network, min(meant, key=lambda each: list(boxes).index(each.handle.name))
    box = boxes[at.handle.name]
    own = spelled(name, (box.params["table"].schema if at.table else box.schemas[at.port]).names)
    if at.table:
        out = [each.field.name for each in _columns_of(network, box) if each.right == own]
    else:
        out = [own] if own in box.schemas[at.port].names else []
    found = _passed_on(stream, [(box.name, at.port, name) for name in out])
    if not found and alias in stream.schema.names:
        return None  # It is a field of a structure of that name.
    if not found:
        raise QueryError(f"there is no column {alias}.{name} here: {alias} has none of that name, or it was computed anew or left out")
    if len(found) > 1:
        raise QueryError(f"{alias}.{name} could be {' or '.join(found)}, which both come from it: write the one that is meant")
    return found[0]


class InJoin:
    """In a condition of a join: `l` or `r` before the column, unless only its name can say that. right: None for a table. What both come
    from is the one that is joined itself, if one is. Aliases are looked for where the condition is put together."""

    def __init__(self, left: Arrow, right: Arrow | None) -> None:
        self._streams = {"l": left} if right is None else {"l": left, "r": right}
        self._above = {side: {box.name for box in boxes_above(stream)} for side, stream in self._streams.items()}

    def column(self, owner: int | str | None, name: str) -> tuple[str, ...]:
        if isinstance(owner, str):
            return ()
        stream = None if owner is None else _NUMBERED.get(owner)
        if stream is None:
            return ("r", name) if owner is None and "r" not in self._streams else (name,)
        box, port = stream.box.name, stream.port
        own = [side for side, each in self._streams.items() if (each.box.name, each.port) == (box, port)]
        found = own or [side for side, names in self._above.items() if box in names]
        if len(found) != 1 or stream.flow is not self._streams["l"].flow:
            return (name,)
        return found[0], become(self._streams[found[0]], owner, name)

    def text(self, given: str, *, named: bool) -> str:
        return given


def of_side(left: Arrow, right: Arrow | None, table: Collection[str], column: exp.Column) -> exp.Expr:
    """A column behind an alias, in the condition of a join. table: aliases of the table that is the right side, if it is one. Raises
    QueryError if both sides have the alias, or none has."""
    alias, name, *fields = (part.name for part in column.parts)
    if alias in table:
        side, found = "r", name
    else:
        streams = {"l": left} if right is None else {"l": left, "r": right}
        own = [side for side, each in streams.items() if getattr(each, "alias_name", None) == alias] or [*streams]
        there = {side: of for side in own if (of := behind_alias(streams[side], alias, name)) is not None}
        if len(there) != 1:
            who = "both sides have" if there else "no side has"
            raise QueryError(f"{who} something called {alias}: give each side an alias of its own")
        ((side, found),) = there.items()
    return _field(exp.column(found, table=side, quoted=True), fields)


def _field(column: exp.Column, fields: Sequence[str]) -> exp.Expr:
    return exp.Dot.build([column, *map(exp.to_identifier, fields)]) if fields else column


def boxes_above(stream: Arrow) -> Iterator[Box]:
    """Those that the stream comes from, the nearest first."""
    network, seen, next_ = stream.flow.network, set[str](), [stream.box.name]
    while next_:
        if (name := next_.pop(0)) not in seen:
            seen.add(name)
            yield (box := network.box(name))
            next_ += [up for up, _ in box.inputs]


def _of_stream(stream: Arrow, number: int, name: str) -> list[str]:
    whose = _NUMBERED.get(number)
    if whose is None or whose.flow is not stream.flow or whose.box.name == stream.box.name:
        return []
    return _passed_on(stream, [(whose.box.name, whose.port, name)])


def _passed_on(stream: Arrow, wanted: Collection[tuple[str, int, str]]) -> list[str]:
    """The columns of the stream that are any of these, (box, port, column), passed on."""
    network = stream.flow.network
    return [name for name in stream.schema.names if any(_is(network, (stream.box.name, stream.port, name), each) for each in wanted)]


def _is(network: Network, column: tuple[str, int, str], wanted: tuple[str, int, str]) -> bool:
    """Whether a column of a box's output is that of another one, passed on."""
    waiting, seen = [column], set[tuple[str, int, str]]()
    while waiting:
        if (at := waiting.pop()) == wanted:
            return True
        if at not in seen:
            seen.add(at)
            box = network.box(at[0])
            waiting += [(*box.inputs[number], of) for number, of in (passed_on(network, box, at[1], at[2]) if box.inputs else ())]
    return False


def _of_table(stream: Arrow, name: str) -> list[str]:
    found: list[str] = []
    network = stream.flow.network
    for box in boxes_above(stream):
        if box.kind == "table_join":
            found += [each.field.name for each in _columns_of(network, box) if each.right == name and each.left is None]
    return [column for column in found if column in stream.schema.names]


def _columns_of(network: Network, box: Box) -> list[OutColumn]:
    """Of a join with a table."""
    return list(out_columns(box.params["join"], network.input_schemas(box)[0], box.params["table"].schema))
