"""Every public method that draws, with arguments of every wrong kind: a box, or a typed error at that line. Nothing else comes out."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
import pytest

import evenflow as ef
from evenflow.errors import EvenflowError, QueryError

ROWS = pa.record_batch({
    "k": pa.array([1, 2]), "s": pa.array(["a", "b"]), "t": pa.array([1, 2], pa.timestamp("us")),
    "l": pa.array([[1], []], pa.list_(pa.int64())),
})  # fmt: skip
WRONG: tuple[Any, ...] = (
    None, 7, -1, 0, 1.5, float("nan"), 10**400, True, "", " ", "nothing", "a\0b", "k +", b"k", [], {}, (), [None], [7],
    {"a": 7}, {7: "k"}, {None: None},
    object(), len, int, 1j, ROWS, ["k", ["s"]], lambda: None,
)  # fmt: skip


class Doing(ef.Processor):
    output = "n bigint"

    def process(self, key: Any, rows: Any, state: Any) -> Iterator[Any]:
        yield (1,)


def stream(name: str = "drawn") -> ef.Stream:
    return ef.Dataflow(name).source(ef.sources.memory(ROWS)).with_watermark("t", "1 second")


def joined(left: ef.Stream) -> ef.Stream:
    return left.flow.source(ef.sources.memory(ROWS), name="other").with_watermark("t", "1 second")


MADE: dict[str, Callable[[], Any]] = {
    "Dataflow": lambda: stream().flow,
    "Stream": stream,
    "KeyedStream": lambda: stream().key_by("k"),
    "GroupedStream": lambda: stream().group_by("k"),
    "WindowedStream": lambda: stream().group_by("k").window("1 second"),
    "SessionStream": lambda: stream().group_by("k").session("1 second"),
    "RowWindowedStream": lambda: stream().group_by("k").rows(2),
}
GOOD: dict[str, Callable[[Any], Any]] = {
    "processor": lambda made: Doing(), "columns": lambda made: ("k",), "column": lambda made: "l" if isinstance(made, ef.Stream) else "t",
    "condition": lambda made: "k > 1", "conditions": lambda made: ("k > 1",), "expressions": lambda made: ("count(*) as n",),
    "on": lambda made: "k", "delay": lambda made: "1 second", "size": lambda made: "1 second", "gap": lambda made: "1 second",
    "step": lambda made: "1 second", "within": lambda made: "1 second", "pattern": lambda made: "A B",
    "measures": lambda made: {"n": "count(*)"},
    "function": lambda made: lambda rows: (rows, range(rows.num_rows)), "output": lambda made: "k bigint", "count": lambda made: 1,
    "order_by": lambda made: "k", "history": lambda made: 2, "slide": lambda made: None, "sink": lambda made: ef.sinks.discard(),
    "source": lambda made: ef.sources.memory(ROWS), "name": lambda made: "named", "named": lambda made: {}, "mode": lambda made: None,
    "other": lambda made: joined(made), "others": lambda made: (joined(made),), "given": lambda made: ROWS,
    "text": lambda made: stream().flow.to_json(),
    "every": lambda made: "1 second",
}  # fmt: skip
INTERNAL = {"add", "alter", "box_of", "draw", "free", "from_network", "rename", "take_back", "whole"}
"""What streams call of a dataflow: no user does."""


def methods() -> list[tuple[str, str]]:
    found = []
    for kind, make in MADE.items():
        for name, _ in inspect.getmembers(type(make()), callable):
            if not name.startswith("_") and name not in INTERNAL:
                found.append((kind, name))
    return found


@pytest.mark.parametrize(("kind", "name"), methods())
def test_arguments_of_any_wrong_kind(kind: str, name: str) -> None:
    function = getattr(MADE[kind](), name)
    parameters = inspect.signature(function).parameters
    for wrong in parameters.values():
        for value in WRONG:
            if name == "transform" and (wrong.name != "function" or callable(value)):
                continue  # The function is called with what is given, and what it raises is its own.
            made = MADE[kind]()
            positional: list[Any] = []
            named: dict[str, Any] = {}
            for parameter in parameters.values():
                given = value if parameter is wrong else GOOD.get(parameter.name, lambda made: None)(made)
                if parameter.kind is parameter.VAR_POSITIONAL:
                    positional += [value] if parameter is wrong else given or ()
                elif parameter.kind is parameter.VAR_KEYWORD:
                    named |= {"made": value} if parameter is wrong else given or {}
                elif parameter is wrong or parameter.default is parameter.empty:
                    if parameter.kind is parameter.KEYWORD_ONLY:
                        named[parameter.name] = given
                    else:
                        positional.append(given)
                elif parameter.kind is not parameter.KEYWORD_ONLY:
                    positional.append(parameter.default)
            try:
                getattr(made, name)(*positional, **named)
            except EvenflowError:
                continue
            except Exception as error:
                raise AssertionError(f"{kind}.{name}({wrong.name}={value!r:.60}) raised {type(error).__name__}: {error}") from error


def test_a_dataflow_needs_a_name() -> None:
    for value in WRONG:
        if not (isinstance(value, str) and value):
            with pytest.raises(QueryError):
                ef.Dataflow(value)
