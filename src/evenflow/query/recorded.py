"""Steps as they are written down in a location (`query.structure`), made steps again: who looks at state builds the operator that has
written it, without the program.

What is written down is no code, and nothing is executed here: plain values, types, and the few classes below, made of their fields. A step
of which more would have to be known (the user's functions, what is bound when a run starts) cannot be made; that is `NotRecorded`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

import pyarrow as pa

from evenflow.plan.layout import Keyed, Port, Step
from evenflow.query.aggregates import AggCall, OwnSessions, RowWindow, SessionWindow, TimeWindow
from evenflow.query.join import Join

AGGREGATOR: Final = "aggregator"
"""What the function of a call is called that is a user's aggregator: its code is not here, and its results are its states."""


class NotRecorded(ValueError):
    """What is written down does not say it."""


def step_of(said: Mapping[str, Any]) -> Step:
    """A step, to be looked at: of what it does with rows only what its state depends on is right. Raises NotRecorded."""
    try:
        params = {name: value_of(value) for name, value in said["params"].items()}
        if "tie_break" in params and any(call.function == AGGREGATOR for call in params.get("calls", ())):
            raise NotRecorded("whether states of a user's aggregator are kept, or the rows that they are made of, depends on its code")
        return Step(str(said["box"]), str(said["kind"]), params, value_of(said["columns"]), Port(-1))
    except (LookupError, TypeError, AttributeError, pa.ArrowException) as error:
        raise NotRecorded(f"{type(error).__name__}: {error}") from error


def value_of(said: Any) -> Any:
    """What `query.footprint` has written. Lists are tuples. Raises NotRecorded."""
    if said is None or isinstance(said, bool | int | str):
        return said
    if isinstance(said, list):
        return tuple(map(value_of, said))
    match said:
        case {"float": str(text)}:
            return float(text)
        case {"with": dict(held)}:
            return {name: value_of(value) for name, value in held.items()}
        case {"type": str(text), **rest} if not rest:
            return type_of(text)
        case {"schema": list(fields)}:
            return pa.schema([pa.field(name, type_of(text), nullable) for name, text, nullable in fields])
        case {"object": {"class": str(name)}, "state": dict(state)} if name in _CLASSES:
            return _CLASSES[name](**state)
    raise NotRecorded(f"{str(said)[:80]} is no value")


def _call(**state: Any) -> AggCall:
    made, name, column = state.pop("made"), str(state["name"]), state["column"]
    if made is None:
        return AggCall(**{field: value_of(value) for field, value in state.items()})
    return AggCall(name, AGGREGATOR, name if column is None else str(column), value_of(state["type"]))


def _plain(made: type[Any]) -> Callable[..., Any]:
    return lambda **state: made(**{field: value_of(value) for field, value in state.items()})


_CLASSES: Final[dict[str, Callable[..., Any]]] = {
    f"{AggCall.__module__}.{AggCall.__qualname__}": _call,
    **{f"{made.__module__}.{made.__qualname__}": _plain(made) for made in (TimeWindow, SessionWindow, OwnSessions, RowWindow, Join, Keyed)},
}
"""What is made of its fields, by its name."""


# ---------------------------------------------------------------- types


def type_of(text: str) -> pa.DataType:
    """The Arrow type that has this text, of those that columns and fields of state can have. Raises NotRecorded."""
    word, _, inside = text.partition("<")
    if inside.endswith(">"):
        return _nested(word, inside[:-1], text)
    word, _, inside = text.partition("(")
    if word in ("decimal128", "decimal256") and inside.endswith(")"):
        precision, scale = map(int, inside[:-1].split(","))
        return pa.decimal128(precision, scale) if word == "decimal128" else pa.decimal256(precision, scale)
    word, _, inside = text.partition("[")
    if word == "timestamp" and ", tz=" in inside:
        unit, zone = inside.removesuffix("]").split(", tz=", 1)
        return pa.timestamp(unit, zone)
    if word == "fixed_size_binary":
        return pa.binary(int(inside.removesuffix("]")))
    try:
        return pa.type_for_alias(text)
    except ValueError as error:
        raise NotRecorded(f"{text[:80]!r} is no type: {error}") from error


def _nested(word: str, inside: str, text: str) -> pa.DataType:
    parts = _split(inside)
    if word == "dictionary":
        named = dict(part.split("=", 1) for part in parts)
        return pa.dictionary(type_of(named["indices"]), type_of(named["values"]), named.get("ordered") == "1")
    if word == "map":
        return pa.map_(type_of(parts[0]), type_of(parts[1]))
    fields = [_field(part) for part in parts]
    if word in ("list", "large_list") and len(fields) == 1:
        return pa.list_(fields[0]) if word == "list" else pa.large_list(fields[0])
    if word == "struct":
        return pa.struct(fields)
    raise NotRecorded(f"{text[:80]!r} is no type")


def _field(text: str) -> pa.Field:
    name, _, kind = text.partition(": ")
    return pa.field(name, type_of(kind.removesuffix(" not null")), not kind.endswith(" not null"))


def _split(text: str) -> list[str]:
    """At commas that are inside no bracket."""
    parts, depth, start = [], 0, 0
    for at, letter in enumerate(text):
        depth += (letter in "<([") - (letter in ">)]")
        if letter == "," and depth == 0:
            parts.append(text[start:at])
            start = at + 1
    return [part.strip() for part in (*parts, text[start:])]


__all__ = ["NotRecorded", "step_of", "type_of", "value_of"]
