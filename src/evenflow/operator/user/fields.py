"""What user code sees of the keyed store during one call: the declared fields, and their values for the keys of the epoch.

Values are read from a base that does not change and written to a buffer beside it. So a call can be made again against the same
base, and two calls can be compared (protocol E3). The buffer becomes state only when the call has returned (operator/user/store.py).
"""

from __future__ import annotations

import datetime
import zoneinfo
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from itertools import repeat
from typing import Any, Final, Literal, get_args

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from evenflow.errors import QueryError, TypeMismatch
from evenflow.kernels.columns import Words, is_word
from evenflow.query.duration import duration_us
from evenflow.stream.arrays import Bools, Objects
from evenflow.stream.schema import parse_type, type_name
from evenflow.stream.values import NOT_OF_TYPE, are_texts, array_of

TimeMode = Literal["event", "processing"]

UTC: Final = zoneinfo.ZoneInfo("UTC")
_EPOCH: Final = datetime.datetime(1970, 1, 1)


@dataclass(frozen=True, slots=True)
class Field:
    """One declared field of a key's state. type: of the value, of the list's elements, or of the map's values.

    time: by what a timer goes, event time or processing time. after_us: how long after each row of the key it is set, if it is a timeout;
    another version of the processor may have another one.
    """

    name: str
    kind: Literal["value", "list", "map", "timer"]
    type: pa.DataType
    key_type: pa.DataType | None = None
    default: Any = None
    time: TimeMode | None = None
    after_us: int | None = field(default=None, compare=False)

    @property
    def fixed(self) -> bool:
        """Whether a value is one int64 word; all else is an immutable Python object."""
        return self.kind == "timer" or (self.kind == "value" and is_word(self.type))

    @property
    def deep(self) -> bool:
        """Whether a stored object has lists inside a list."""
        return pa.types.is_nested(self.type) or (self.key_type is not None and pa.types.is_nested(self.key_type))

    @property
    def column_type(self) -> pa.DataType:
        if self.kind in ("value", "timer"):
            return self.type
        return pa.list_(self.type) if self.kind == "list" else pa.map_(self.key_type, self.type)


class Store:
    """What a processor declares in `open`. Types are Spark type names, such as "bigint", or pyarrow types."""

    def __init__(self, box: str) -> None:
        self._box = box
        self.fields: dict[str, Field] = {}

    def value(self, name: str, type: str | pa.DataType, default: Any = None) -> None:
        """One value per key; `default` is what is read where none was written."""
        self._declare(Field(name, "value", self._type(type), None, default))

    def list(self, name: str, type: str | pa.DataType) -> None:
        """A list per key, empty at first. Read and written whole: keep it short."""
        self._declare(Field(name, "list", self._type(type)))

    def map(self, name: str, key_type: str | pa.DataType, value_type: str | pa.DataType) -> None:
        """A map per key, empty at first, in order of insertion. Read and written whole: keep it small."""
        self._declare(Field(name, "map", self._type(value_type), self._type(key_type)))

    def timer(self, name: str, *, time: TimeMode = "event") -> None:
        """A timer per key, not set at first. Assign a datetime to set it, which replaces what it was set to; None or `del` clears it.

        time: "event", it comes when the watermark has passed it; "processing", in the first epoch whose stamp has reached it.
        """
        self._declare_timer(name, None, time)

    def timeout(self, name: str, after: str | timedelta, *, time: TimeMode = "event") -> None:
        """A timer that each row of its key sets again, to `after` from then: it comes when there was no row for so long.

        after: "30 seconds" or a timedelta, > 0. In event time from the row's own time, and `process` is not given rows together that are
        further apart; in processing time from the stamp of the row's epoch. It may be set and cleared by hand until the next row.
        """
        self._declare_timer(name, duration_us(after), time)

    def _declare_timer(self, name: str, after_us: int | None, time: TimeMode) -> None:
        if time not in get_args(TimeMode):
            raise QueryError(f"box {self._box!r}: the timer {name!r} goes by {time!r}; use time='event' or time='processing'")
        if after_us is not None and after_us <= 0:
            raise QueryError(f"box {self._box!r}: the timeout {name!r} comes after {after_us} microseconds; give it a time that is longer")
        self._declare(Field(name, "timer", pa.timestamp("us"), time=time, after_us=after_us))

    def _type(self, type: str | pa.DataType) -> pa.DataType:
        made = parse_type(type) if isinstance(type, str) else type
        type_name(made)
        return made

    def _declare(self, field: Field) -> None:
        if not field.name.isidentifier() or field.name.startswith("_"):
            rule = "name it with a Python name without a leading underscore"
            raise QueryError(f"box {self._box!r} cannot have a state field {field.name!r}: {rule}")
        if field.name in self.fields:
            raise QueryError(f"box {self._box!r} declares the state field {field.name!r} twice")
        if sum(f.fixed for f in self.fields.values()) == 64:
            raise QueryError(f"box {self._box!r} declares more than 64 fixed-width state fields: use a list or a map")
        self.fields[field.name] = field
        if field.default is not None:
            freeze([field.default], field, self._box)


@dataclass(slots=True)
class Column:
    """One field for the g keys of an epoch. Arrays are the base's until `own`.

    words: int64 (g,) of a fixed-width field, undefined where not given. objects: (g,) of any other field, None where not given.
    least: int64 (g,), the earliest time that the user's code has set a timer to, where somebody wants to know.
    """

    field: Field
    given: Bools
    words: Words | None
    objects: Objects | None
    owned: bool = False
    least: Words | None = None

    def own(self) -> None:
        if not self.owned:
            self.given, self.owned = self.given.copy(), True
            self.words = None if self.words is None else self.words.copy()
            self.objects = None if self.objects is None else self.objects.copy()

    def changed(self, base: Column) -> Bools:
        """bool (g,): where this column differs from its base."""
        if not self.owned:
            return np.zeros(len(self.given), np.bool_)
        differs: Bools = self.given != base.given
        if self.words is not None and base.words is not None:
            both: Bools = differs | (self.given & (self.words != base.words))
            return both
        assert self.objects is not None
        assert base.objects is not None
        for i in np.flatnonzero(self.given & ~differs).tolist():
            differs[i] = not same(self.objects[i], base.objects[i])
        return differs


Load = Callable[[Field], Column]


class Attempt:
    """User code called once on a base: the fields that it has touched. load: reads a field of the epoch's keys from the base. now_us: the
    epoch's stamp."""

    def __init__(self, fields: dict[str, Field], load: Load, box: str, now_us: int = 0) -> None:
        self.fields, self.box, self._load, self.now_us = fields, box, load, now_us
        self.columns: dict[str, Column] = {}

    def column(self, name: str) -> Column:
        found = self.columns.get(name)
        if found is None:
            field = self.fields.get(name)
            if field is None:
                known = ", ".join(self.fields) or "none"
                raise AttributeError(f"box {self.box!r} has no state field {name!r}: declare it in open() (declared: {known})")
            base = self._load(field)
            found = self.columns[name] = Column(field, base.given, base.words, base.objects)
        return found


class StateArrays:
    """The state of the keys that a call is about: each declared field is an attribute, a `FieldArrays`. `now`: the epoch's stamp.

    of: int64, which of the epoch's keys these are, or None for all of them.
    """

    def __init__(self, attempt: Attempt, of: Words | None = None) -> None:
        self._attempt, self._of = attempt, of

    def __getattr__(self, name: str) -> Any:
        if name == "now" and name not in self._attempt.fields:
            return np.datetime64(self._attempt.now_us, "us")
        return FieldArrays(self._attempt.column(name), self._attempt.box, self._of)


class FieldArrays:
    """One field for the g keys of a call, in the order of `groups` (of `timers`, in `expired`)."""

    def __init__(self, column: Column, box: str, of: Words | None = None) -> None:
        self._column, self._box = column, box
        self._of: Words | slice = slice(None) if of is None else of

    def exists(self) -> Bools:
        """bool (g,): where the key has a value; a new array."""
        return self._column.given[self._of].copy()

    def get(self, default: Any = None) -> npt.NDArray[Any]:
        """(g,) array, new: of the field's own NumPy type (datetime64 for times), or of Python objects (str, tuple, dict).

        Where there is no value: `default`, else the declared default, else zero, NaT, None or an empty list or map.
        """
        column, field, of = self._column, self._column.field, self._of
        default = field.default if default is None else default
        given = column.given[of]
        if column.words is not None:
            values = decode(column.words[of], field.type)
            fill = decode(np.zeros(1, np.int64), field.type)[0] if values.dtype.kind != "M" else np.datetime64("NaT")
            return np.where(given, values, np.asarray(fill if default is None else default, values.dtype))
        assert column.objects is not None
        out: npt.NDArray[Any] = column.objects[of].copy()
        if field.kind == "value":
            if default is not None:
                free = np.flatnonzero(~given)
                out[free] = np.fromiter(repeat(default, free.size), object, free.size)
            return out
        for i, value in enumerate(out.tolist()):
            out[i] = thawed_batch(value, field)
        return out

    def put(self, values: Any, mask: Bools | None = None) -> None:
        """Write one value per key (or one for all), where `mask` is true. A null, None or NaT clears. A timer takes times."""
        column, field, size = self._column, self._column.field, self._size()
        column.own()
        if column.words is not None:
            words, given = encode(values, field, size, self._box) if field.kind == "value" else times_of(values, field, size, self._box)
            if isinstance(self._of, slice):
                where = np.ones(size, np.bool_) if mask is None else np.asarray(mask, np.bool_)
                np.copyto(column.words, words, where=where)
                np.copyto(column.given, given, where=where)
                if column.least is not None:
                    np.minimum(column.least, words, out=column.least, where=where & given)
            else:
                at = self._at(mask)
                column.words[self._of[at]], column.given[self._of[at]] = words[at], given[at]
                if column.least is not None:
                    set_ = self._of[at[given[at]]]
                    column.least[set_] = np.minimum(column.least[set_], column.words[set_])
            return
        assert column.objects is not None
        if isinstance(values, str | bytes | dict):
            values = [values] * size
        values = values.to_pylist() if isinstance(values, pa.Array | pa.ChunkedArray) else list(values)
        at = self._at(mask)
        frozen = freeze(values if at.size == len(values) == size else [values[i] for i in at.tolist()], field, self._box)
        to = at if isinstance(self._of, slice) else self._of[at]
        column.objects[to] = np.fromiter(frozen, object, at.size)
        column.given[to] = np.fromiter((value is not None for value in frozen), np.bool_, at.size)

    def clear(self, mask: Bools | None = None) -> None:
        """Forget the value, where `mask` is true."""
        column = self._column
        column.own()
        at = self._at(mask)
        to = at if isinstance(self._of, slice) else self._of[at]
        column.given[to] = False
        if column.objects is not None:
            column.objects[to] = None

    def _size(self) -> int:
        return len(self._column.given) if isinstance(self._of, slice) else self._of.size

    def _at(self, mask: Bools | None) -> Words:
        """int64: which of the call's keys are meant."""
        return np.arange(self._size()) if mask is None else np.flatnonzero(np.asarray(mask, np.bool_))


class KeyState:
    """The state of one key: each declared field is an attribute.

    A value is None or the declared default where nothing was written. A list field is a `list`, a map field a `dict`: change them
    in place or assign new ones. `del state.field` or assigning None clears. A timer is None or the datetime at which it comes. `now`: the
    epoch's stamp, a datetime in UTC.
    """

    __slots__ = ("_attempt", "_group", "_open")

    def __init__(self, attempt: Attempt, group: int) -> None:
        object.__setattr__(self, "_attempt", attempt)
        object.__setattr__(self, "_group", group)
        object.__setattr__(self, "_open", {})

    def __getattr__(self, name: str) -> Any:
        if name in self._open:
            return self._open[name]
        if name == "now" and name not in self._attempt.fields:
            return python_of(np.int64(self._attempt.now_us), pa.timestamp("us"))
        column, group = self._attempt.column(name), self._group
        field = column.field
        if column.words is not None:
            return python_of(column.words[group], field.type) if column.given[group] else field.default
        assert column.objects is not None
        value = thawed(column.objects[group], field)
        if field.kind == "value":
            return field.default if value is None else value
        self._open[name] = value
        return value

    def __setattr__(self, name: str, value: Any) -> None:
        column, group = self._attempt.column(name), self._group
        self._open.pop(name, None)
        column.own()
        if column.words is not None:
            if value is not None:
                word = column.words[group] = word_of(value, column.field, self._attempt.box)
                if column.least is not None:
                    column.least[group] = min(column.least[group], word)
            column.given[group] = value is not None
            return
        assert column.objects is not None
        (frozen,) = freeze([value], column.field, self._attempt.box)
        column.objects[group], column.given[group] = frozen, frozen is not None

    def __delattr__(self, name: str) -> None:
        setattr(self, name, None)

    def close(self) -> None:
        """Write back the lists and maps that were handed out."""
        for name, value in list(self._open.items()):
            setattr(self, name, value)


def decode(words: Words, type_: pa.DataType) -> npt.NDArray[Any]:
    """Words as the NumPy type of a fixed-width field."""
    if pa.types.is_floating(type_):
        return words.view(np.float64).astype(type_.to_pandas_dtype())
    if pa.types.is_timestamp(type_):
        return words.view("datetime64[us]")
    if pa.types.is_date32(type_):
        return words.astype("datetime64[D]")
    return words.astype(type_.to_pandas_dtype())


def encode(values: Any, field: Field, size: int, box: str) -> tuple[Words, Bools]:
    """Words of one value per key (or one for all), and where there is one. Raises TypeMismatch if something would be lost."""
    if isinstance(values, np.ndarray) and values.dtype == _NATIVE.get(field.type) and values.shape == (size,):
        return _words_of_numpy(values)
    try:
        array = values if isinstance(values, pa.Array) else np.asarray(values)
        if isinstance(array, np.ndarray):
            array = np.broadcast_to(array, (size,))
            array = pa.array(np.ascontiguousarray(array), from_pandas=False)
        if len(array) != size:
            raise ValueError(f"{len(array)} values for {size} keys")
        array = array.cast(field.type)
    except NOT_OF_TYPE as e:
        what = f"the state field {field.name!r} is {type_name(field.type)}"
        raise TypeMismatch(f"box {box!r}: {what} and cannot take this: {e}") from e
    given = array.is_valid().to_numpy(zero_copy_only=False)
    return _words(array), given


_NATIVE: Final = {
    pa.int64(): np.dtype(np.int64),
    pa.int32(): np.dtype(np.int32),
    pa.float64(): np.dtype(np.float64),
    pa.timestamp("us"): np.dtype("datetime64[us]"),
}
"""Types that need no conversion on their way into words."""


def _words_of_numpy(values: npt.NDArray[Any]) -> tuple[Words, Bools]:
    given = ~np.isnat(values) if values.dtype.kind == "M" else np.ones(len(values), np.bool_)
    return (values.astype(np.int64) if values.dtype == np.int32 else np.ascontiguousarray(values).view(np.int64)), given


def _words(array: pa.Array) -> Words:
    """The bits of a fixed-width column, not normalised: -0.0 stays what it is."""
    kind = array.type
    if pa.types.is_boolean(kind):
        array = array.cast(pa.int64())
    elif pa.types.is_floating(kind):
        array = array.cast(pa.float64()).fill_null(0.0)
        return array.to_numpy(zero_copy_only=False).view(np.int64)  # type: ignore[no-any-return]
    elif pa.types.is_timestamp(kind):
        array = array.view(pa.int64())
    elif pa.types.is_date32(kind):
        array = array.view(pa.int32())
    return array.fill_null(0).to_numpy(zero_copy_only=False).astype(np.int64, copy=False)  # type: ignore[no-any-return]


def word_of(value: Any, field: Field, box: str) -> int | np.int64:
    """The word of one Python value."""
    kind = field.type
    if field.kind == "timer":
        return _time_of(value, field, box)
    if type(value) is int and pa.types.is_int64(kind) and -(2**63) <= value < 2**63:
        return value
    if type(value) is float and pa.types.is_float64(kind):
        return np.float64(value).view(np.int64)
    try:
        value = value.item() if isinstance(value, np.generic) and not isinstance(value, np.datetime64) else value
        return int(_words(pa.array([value]).cast(kind))[0])
    except NOT_OF_TYPE as e:
        what = f"the state field {field.name!r} is {type_name(kind)}"
        raise TypeMismatch(f"box {box!r}: {what} and cannot be {value!r}: {e}") from e


def _time_of(value: Any, field: Field, box: str) -> int:
    """Microseconds of a time that a timer is set to; without a zone it is in UTC."""
    if isinstance(value, np.datetime64) and not np.isnat(value):
        return int(value.astype("datetime64[us]").astype(np.int64))
    if isinstance(value, datetime.datetime):
        utc = value if value.tzinfo is None else value.astimezone(UTC).replace(tzinfo=None)
        return (utc - _EPOCH) // timedelta(microseconds=1)
    raise TypeMismatch(
        f"box {box!r}: the timer {field.name!r} is set to a datetime, not to {value!r}: add a timedelta to a row's time or now"
    )


def times_of(values: Any, field: Field, size: int, box: str) -> tuple[Words, Bools]:
    """Microseconds of one time per key (or one for all) that timers are set to, and where there is one."""
    if isinstance(values, datetime.datetime | np.datetime64):
        values = [values]
    array = values.combine_chunks() if isinstance(values, pa.ChunkedArray) else values
    if not isinstance(array, pa.Array):
        array = pa.array([None] if array is None else array, from_pandas=True)
    if not (pa.types.is_timestamp(array.type) or pa.types.is_null(array.type)):
        raise TypeMismatch(f"box {box!r}: the timer {field.name!r} is set to times, not to {array.type}: add a timedelta64 to times or now")
    if len(array) not in (1, size):
        raise TypeMismatch(f"box {box!r}: the timer {field.name!r} was given {len(array)} times for {size} keys: give one for each, or one")
    array = array.cast(pa.timestamp("us", getattr(array.type, "tz", None)))
    given = np.broadcast_to(array.is_valid().to_numpy(zero_copy_only=False), size)
    return np.broadcast_to(_words(array), size), given


def python_of(word: np.int64, type_: pa.DataType) -> Any:
    """The Python value of one word, of the type that `pa.Array.to_pylist` gives."""
    if pa.types.is_floating(type_):
        return float(word.view(np.float64))
    if pa.types.is_boolean(type_):
        return bool(word)
    if pa.types.is_timestamp(type_):
        zone = None if type_.tz is None else UTC
        return (_EPOCH + datetime.timedelta(microseconds=int(word))).replace(tzinfo=zone)
    if pa.types.is_date32(type_):
        return (_EPOCH + datetime.timedelta(days=int(word))).date()
    return int(word)


def freeze(values: list[Any], field: Field, box: str) -> list[Any]:
    """The values as they are stored: of the declared type, immutable; None where there is nothing (None, an empty list)."""
    if field.kind == "value" and pa.types.is_string(field.type) and are_texts(values):
        return values
    if field.kind == "map":
        values = [list(value.items()) if isinstance(value, dict) else value for value in values]
    try:
        plain = array_of(values, field.column_type).to_pylist()
    except NOT_OF_TYPE as e:
        what = f"the state field {field.name!r} is a {field.kind} of {type_name(field.type)}"
        raise TypeMismatch(f"box {box!r}: {what} and cannot take this: {e}") from e
    frozen = [immutable(value) for value in plain]
    return frozen if field.kind == "value" else [value or None for value in frozen]


def immutable(value: Any) -> Any:
    """The value with its lists as tuples, at any depth."""
    return tuple(immutable(each) for each in value) if isinstance(value, list | tuple) else value


def thawed(value: Any, field: Field) -> Any:
    """A stored object as one key's user sees it."""
    if field.kind == "list":
        return list(value or ())
    return dict(value or ()) if field.kind == "map" else value


def thawed_batch(value: Any, field: Field) -> Any:
    return (value or ()) if field.kind == "list" else thawed(value, field)


def same(one: Any, other: Any) -> bool:
    """Whether two stored objects are bitwise the same value: NaN is itself, -0.0 is not 0.0, True is not 1."""
    if type(one) is not type(other):
        return False
    if isinstance(one, tuple | list):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, dict):
        return list(one) == list(other) and all(map(same, one.values(), other.values()))
    if isinstance(one, float):
        return bool(np.float64(one).view(np.int64) == np.float64(other).view(np.int64))
    return bool(one == other)
