"""Whose a column is that was taken from a stream or a DataFrame: `a.join(b, a.k == b.k)`, `joined.where(b.k.isNull())`.

Streams give columns of PySpark that carry the stream's number. Where such a column stands in an expression of another stream, it is what
has become of it on the way there, as long as boxes pass it on as it is: behind a join with a suffix `b.k` is `k_right`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager
from functools import wraps
from itertools import count
from typing import Any, Concatenate, Final, ParamSpec, TypeVar
from weakref import WeakValueDictionary

from evenflow.errors import NotPortable
from evenflow.query.drawing import Arrow
from evenflow.query.given import selected, unnamed
from evenflow.query.join import Join, out_columns
from evenflow.query.lineage import passed_on
from evenflow.query.network import Box, Network
from evenflow.query.spark_column import Meant, meaning

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
    return meaning(lambda number, name: (become(stream, number, name),))


def read_in(stream: Arrow, given: Iterable[Any], named: Mapping[str, Any]) -> tuple[list[Any], dict[str, Any]]:
    """Expressions of this stream as boxes know them: those with their names, and those that get one."""
    with columns_in(stream):
        return [selected(each) for each in given], {name: unnamed(each) for name, each in named.items()}


def become(stream: Arrow, number: int | None, name: str) -> str:
    """What a column of the stream of that number is called in this one; of a DataFrame for None. The name as it is where nobody knows.

    Raises NotPortable for a column of a DataFrame that no join above has brought in, or several have.
    """
    found = _of_table(stream, name) if number is None else _of_stream(stream, number, name)
    if number is None and len(found) != 1:
        many = "several joins have" if found else "no join has"
        raise NotPortable(f"{many} brought a column {name!r} of a DataFrame into this stream: write its name as text")
    return name if name in found or not found else found[0]


def sides(left: Arrow, right: Arrow | None) -> Meant:
    """In a condition of a join: `l` or `r` before the column, unless only its name can say that. right: None for a table. What both come
    from is the one that is joined itself, if one is."""
    streams = {"l": left} if right is None else {"l": left, "r": right}
    above = {side: {box.name for box in boxes_above(stream)} for side, stream in streams.items()}

    def meant(number: int | None, name: str) -> tuple[str, ...]:
        stream = None if number is None else _NUMBERED.get(number)
        if stream is None:
            return ("r", name) if number is None and right is None else (name,)
        box, port = stream.box.name, stream.port
        own = [side for side, each in streams.items() if (each.box.name, each.port) == (box, port)]
        found = own or [side for side, names in above.items() if box in names]
        if len(found) != 1 or stream.flow is not left.flow:
            return (name,)
        return found[0], become(streams[found[0]], number, name)

    return meant


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
    network, wanted = stream.flow.network, (whose.box.name, whose.port, name)
    return [column for column in stream.schema.names if _is(network, (stream.box.name, stream.port, column), wanted)]


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
        if box.kind == "table_join" and isinstance(join := box.params["join"], Join):
            columns = out_columns(join, network.input_schemas(box)[0], box.params["table"].schema)
            found += [each.field.name for each in columns if each.right == name and each.left is None]
    return [column for column in found if column in stream.schema.names]
