"""Aggregators: aggregate functions of the user's that keep a state per group and fold row after row into it.

    class Spread(ef.Aggregator):
        output = "double"

        def zero(self):
            return None, None

        def update(self, state, x):
            low, high = state
            return (x, x) if low is None else (min(low, x), max(high, x))

        def merge(self, one, other):
            return self.update(self.update(one, other[0]), other[1])

        def finish(self, state):
            return state[1] - state[0]

As Spark's `Aggregator` (zero, reduce, merge, finish) and Flink's `AggregateFunction`. With `merge`, parts of a group are computed before
rows are sent, and sessions can be united. What the methods return must be a function of what they are given (protocol E3).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any, ClassVar

import pyarrow as pa

from evenflow.errors import QueryError, TypeMismatch
from evenflow.query.user.formula import Formula
from evenflow.query.user.states import Named, Unkept, from_bytes, is_named, to_bytes
from evenflow.stream.kept import Handing, handing
from evenflow.stream.schema import parse_type
from evenflow.stream.values import NOT_OF_TYPE, array_of


class Aggregator:
    """Subclass it; give an instance to `agg` by calling it, or to SQL by a name.

    output: the type of `finish`, as DDL ("double"). state: the type of a state, "bigint" or "array<double>", which is checked and kept as
    it is, with dicts for structures and maps; None: any Python value that is made of numbers, texts, bytes, times, decimals, tuples,
    lists, dicts, sets, Python's other collections, and NumPy's arrays and numbers. It may not be None. keeps: other classes, and functions
    that make values, which such a state may have besides. They are called with whatever a checkpoint says.
    """

    output: ClassVar[str]
    state: ClassVar[str | None] = None
    keeps: ClassVar[Sequence[Named]] = ()

    def zero(self) -> Any:
        """The state of no rows."""
        raise NotImplementedError

    def update(self, state: Any, *values: Any) -> Any:
        """The state with one more row, of which `values` are the arguments; null is None. It may change `state` and return it."""
        raise NotImplementedError

    def merge(self, one: Any, other: Any) -> Any:
        """The state of the rows of both. Leave it out if there is none: rows then come in order, and there are no sessions."""
        raise NotImplementedError

    def finish(self, state: Any) -> Any:
        """The result; None is null."""
        return state

    def __call__(self, *arguments: str | Formula) -> Formula:
        """`Spread()("price")`: what `agg` takes."""
        return Formula.of_call(type(self).__name__, self, arguments)

    def __eq__(self, other: object) -> bool:
        """Of the same class and given the same. A class that is loaded again from its file is another one, whose code may differ."""
        return type(self) is type(other) and self.__getstate__() == other.__getstate__()

    def __hash__(self) -> int:
        return hash(type(self))

    def __getstate__(self) -> dict[str, Any]:
        """What was given to it, and nothing that is computed from the class."""
        return {name: value for name, value in self.__dict__.items() if name not in ("_type", "_stored", "_handing")}

    @cached_property
    def _type(self) -> pa.DataType:
        return self._declared("output", getattr(self, "output", None))

    @cached_property
    def _stored(self) -> pa.DataType:
        if not isinstance(self.keeps, tuple | list) or not all(map(is_named, self.keeps)):
            raise QueryError(f"the aggregator {type(self).__name__}: keeps has classes and functions, not {self.keeps!r}")
        return pa.binary() if self.state is None else self._declared("state", self.state)

    @cached_property
    def _handing(self) -> Handing | None:
        """How a state is handed out that is kept as declared."""
        return handing(self._stored, lists=True)

    def _declared(self, what: str, text: Any) -> pa.DataType:
        if not isinstance(text, str):
            raise QueryError(f"the aggregator {type(self).__name__} does not say its {what}; set {what} = 'double'")
        try:
            return parse_type(text)
        except QueryError as error:
            raise QueryError(f"the aggregator {type(self).__name__}: {what} = {text!r}: {error}") from error


def merges(aggregator: Aggregator) -> bool:
    """Whether states of it can be united."""
    return type(aggregator).merge is not Aggregator.merge


def result_type(aggregator: Aggregator) -> pa.DataType:
    return aggregator._type


def stored_type(aggregator: Aggregator) -> pa.DataType:
    """The type of a state as it is kept."""
    return aggregator._stored


def reads_states_of(aggregator: Aggregator, other: Aggregator) -> bool:
    """Whether it may go on with the other's states, as another version of it (docs/decisions/0035-versions.md): by its class's name, the
    declared type of a state, and whether states are merged. What it does with them is its own business."""
    return _states(aggregator) == _states(other)


def _states(aggregator: Aggregator) -> tuple[Any, ...]:
    found = type(aggregator)
    return found.__module__, found.__qualname__, stored_type(aggregator), merges(aggregator)


def pack(aggregator: Aggregator, state: Any) -> Any:
    """A state as it is kept: immutable, of the type `stored_type`. Raises TypeMismatch if it cannot be."""
    what = f"the aggregator {type(aggregator).__name__}"
    if state is None:
        raise TypeMismatch(f"{what} has None for a state; zero, update and merge return the state")
    if aggregator.state is None:
        return pickled(aggregator, state)
    try:
        (kept,) = array_of([state], stored_type(aggregator)).to_pylist()
    except NOT_OF_TYPE as error:
        raise TypeMismatch(f"{what}: its state is {aggregator.state}, and cannot be {state!r}: {error}") from error
    return tuple(kept) if isinstance(kept, list) else kept


def pickled(aggregator: Aggregator, state: Any) -> bytes:
    """A state as bytes, in which parts of it are sent."""
    try:
        return to_bytes(state, aggregator.keeps)
    except Unkept as error:
        raise _unkept(aggregator, error) from error
    except Exception as error:  # Anything can go wrong inside a user's class.
        raise TypeMismatch(
            f"the aggregator {type(aggregator).__name__}: its state {state!r} cannot be pickled ({type(error).__name__}: {error}); "
            "make it of numbers, strings, tuples, lists and dicts"
        ) from error


def unpack(aggregator: Aggregator, kept: Any) -> Any:
    """What `pack` was given. The user may change it. A structure or a map is a dict."""
    if aggregator.state is None:
        return unpickled(aggregator, kept)
    handed = aggregator._handing
    return kept if handed is None else handed(kept)


def unpickled(aggregator: Aggregator, data: bytes) -> Any:
    """What `pickled` was given. Raises TypeMismatch for bytes that it never made, of which nothing is run."""
    try:
        return from_bytes(data, aggregator.keeps)
    except Unkept as error:
        raise _unkept(aggregator, error) from error
    except Exception as error:
        what = f"the aggregator {type(aggregator).__name__}: a state cannot be read"
        raise TypeMismatch(f"{what} ({type(error).__name__}: {error})") from error


def _unkept(aggregator: Aggregator, what: Unkept) -> TypeMismatch:
    return TypeMismatch(
        f"the aggregator {type(aggregator).__name__}: its state has {what}, which is not kept; make it of numbers, strings, tuples, lists "
        "and dicts, or name that in the aggregator's `keeps`, if whoever can write to your checkpoints may call it"
    )
