"""States of aggregators as bytes, and back: pickles in which nothing is named but what a state may be made of.

A state is kept in checkpoints and savepoints, at a place where others may write; reading a pickle that names `os.system` runs it. So what
a state names is of a fixed list, or of what its aggregator says that it keeps, when it is written and when it is read. NumPy's arrays and
numbers are written in a form of our own: what reads theirs was never meant for bytes that somebody else has made.

Equal states that were made alike are equal bytes in every process, since replicas are compared by them. Only a set has its own order in
each process, where texts have other hashes or None has another place; so its elements are written in one order, as a list.
"""

from __future__ import annotations

import collections
import datetime
import decimal
import fractions
import io
import pickle
import re
import uuid
from collections.abc import Callable, Sequence
from types import BuiltinFunctionType, FunctionType
from typing import Any, Final

import numpy as np

from evenflow.query.user.row import Row

_PROTOCOL: Final = 5
"""Pickle's: the same in every Python that Evenflow runs in."""
_NAMED: Final = re.compile(rb"[\x82-\x84\x93\n]")
"""A pickle without any of these bytes names nothing: EXT1 to EXT4 and STACK_GLOBAL are among them, GLOBAL and INST end names with lines."""
_SETS: Final = re.compile(rb"[\x8f\x91]\x94")
"""A pickle without these has no set: EMPTY_SET or FROZENSET, each with MEMOIZE behind it."""
_ORDERED: Final = b"O"
"""In front of a pickle in which sets are lists. No other one begins with it."""
_FEW: Final = 32
"""So many elements of a set are written with what is around it, which costs less than a pickle of their own."""
_BY_VALUE: Final = frozenset({bytes, int, str})
"""Types of which a set's elements are ordered as they are; others by their bytes."""
_NUMBERS: Final = frozenset("biufcSUmM")
"""Kinds of NumPy's types that are values by themselves."""

Named = Callable[..., Any]
"""A class, or a function that makes a value: what a pickle names. See `is_named`."""


def is_named(value: object) -> bool:
    return isinstance(value, type | FunctionType | BuiltinFunctionType)


def _array(dtype: str, shape: tuple[int, ...], data: bytes) -> np.ndarray[Any, Any]:
    if min(shape, default=0) < 0:
        raise Unkept(f"an array of the shape {shape}")
    return np.ndarray(shape, _dtype(dtype), data).copy()


def _number(dtype: str, data: bytes) -> np.generic:
    kind = _dtype(dtype)
    found: np.generic = np.frombuffer(data, kind, 1)[0] if kind.itemsize else kind.type()
    return found


def _dtype(text: str) -> np.dtype[Any]:
    found = np.dtype(text) if isinstance(text, str) else None
    if found is None or found.kind not in _NUMBERS:
        raise Unkept(f"an array of {text!r}")
    return found


KEPT: Final[tuple[Named, ...]] = (
    bool, complex, dict, float, frozenset, int, list, set, str, tuple,
    collections.Counter, collections.OrderedDict, collections.defaultdict, collections.deque,
    datetime.date, datetime.datetime, datetime.time, datetime.timedelta, datetime.timezone,
    decimal.Decimal, fractions.Fraction, uuid.UUID, Row, _array, _number,
)  # fmt: skip
"""What any state may be made of, beside what it names nothing for."""


class Unkept(Exception):
    """A state has something that is not kept: the text says what."""


def to_bytes(state: Any, more: Sequence[Named] = ()) -> bytes:
    """more: what may be named beside KEPT. Raises Unkept, and whatever a class of the user's raises when it is pickled."""
    data = pickle.dumps(state, _PROTOCOL)
    if _SETS.search(data) is not None:
        return _ORDERED + _written(_OrderedWriter, state, more)
    return data if _NAMED.search(data) is None else _written(_Writer, state, more)


def _written(writer: type[_Writer], state: Any, more: Sequence[Named]) -> bytes:
    written = io.BytesIO()
    writer(written, more).dump(state)
    return written.getvalue()


def from_bytes(data: bytes, more: Sequence[Named] = ()) -> Any:
    """What `to_bytes` was given. Raises Unkept, whatever the bytes are, and what a class that is kept raises."""
    if data[:1] == _ORDERED:
        return _OrderedReader(io.BytesIO(memoryview(data)[1:]), more).load()
    if _NAMED.search(data) is None:
        return pickle.loads(data)
    return _Reader(io.BytesIO(data), more).load()


class _Writer(pickle.Pickler):
    def __init__(self, file: io.BytesIO, more: Sequence[Named]) -> None:
        super().__init__(file, _PROTOCOL)
        self._more = more

    def reducer_override(self, value: Any) -> Any:
        """Is called for all that has no form of pickle's own, classes and functions included: those are what a pickle names."""
        if type(value) is np.ndarray and value.dtype.kind in _NUMBERS:
            return _array, (value.dtype.str, value.shape, value.tobytes())
        if isinstance(value, np.generic) and value.dtype.kind in _NUMBERS:
            return _number, (value.dtype.str, value.tobytes())
        if is_named(value) and value not in _ALL and value not in self._more:
            raise Unkept(".".join(_name_of(value)))
        return NotImplemented


class _OrderedWriter(_Writer):
    """Sets have no form of their own in what it writes: (number, whether it is frozen, elements), and (number,) where it comes again.
    Many that are ordered as they are, are a pickle of their own, which asks nobody about each of them."""

    def __init__(self, file: io.BytesIO, more: Sequence[Named]) -> None:
        super().__init__(file, more)
        self._sets: dict[int, tuple[int, Any]] = {}
        """By id: a set's number, and the set, so that no other one has its id."""

    def persistent_id(self, value: Any) -> Any:
        kind = type(value)
        if kind is not set and kind is not frozenset:
            return None
        if (found := self._sets.get(id(value))) is not None:
            return (found[0],)
        number = len(self._sets)
        self._sets[id(value)] = number, value
        many = len(value) > _FEW and _is_ordered(value)
        return number, kind is frozenset, pickle.dumps(sorted(value), _PROTOCOL) if many else self._in_order(value)

    def _in_order(self, values: Any) -> list[Any]:
        groups: dict[type, list[Any]] = {}
        for value in values:
            groups.setdefault(type(value), []).append(value)
        kinds = sorted(groups, key=_name_of) if len(groups) > 1 else groups
        return [value for kind in kinds for value in sorted(groups[kind], key=None if kind in _BY_VALUE else self._bytes_of)]

    def _bytes_of(self, value: Any) -> bytes:
        return _written(_OrderedWriter, value, self._more)


def _is_ordered(values: Any) -> bool:
    """Whether all are of one type whose values have one order, or tuples of such, alike in their types."""
    kinds = set(map(type, values))
    if kinds == {tuple}:
        shapes = {tuple(map(type, each)) for each in values}
        return len(shapes) == 1 and set(*shapes) <= _BY_VALUE
    return len(kinds) == 1 and (kinds <= _BY_VALUE or (kinds == {float} and all(each == each for each in values)))


class _Reader(pickle.Unpickler):
    def __init__(self, file: io.BytesIO, more: Sequence[Named]) -> None:
        super().__init__(file)
        self._more = more

    def find_class(self, module: str, name: str) -> Any:
        """Nothing is imported: it is there already, or it is not meant."""
        named = module, name
        found = _BY_NAME.get(named) or next((each for each in self._more if _name_of(each) == named), None)
        if found is None:
            raise Unkept(f"{module}.{name}")
        return found


class _OrderedReader(_Reader):
    def __init__(self, file: io.BytesIO, more: Sequence[Named]) -> None:
        super().__init__(file, more)
        self._sets: dict[int, Any] = {}

    def persistent_load(self, pid: Any) -> Any:
        """Without `match`, which asks each time whether a tuple is a sequence: ten times as long as all else of a small set."""
        if type(pid) is tuple and len(pid) == 3:
            number, frozen, elements = pid
            if type(elements) is bytes:
                elements = _Reader(io.BytesIO(elements), ()).load()
            if type(number) is int and type(frozen) is bool and type(elements) is list:
                found = self._sets[number] = frozenset(elements) if frozen else set(elements)
                return found
        elif type(pid) is tuple and len(pid) == 1 and type(pid[0]) is int and pid[0] in self._sets:
            return self._sets[pid[0]]
        raise Unkept(f"a set that is written as {pid!r:.60}")


def _name_of(value: Any) -> tuple[str, str]:
    return str(value.__module__), str(value.__qualname__)


_ALL: Final = frozenset(KEPT)
_BY_NAME: Final = {_name_of(each): each for each in KEPT}
