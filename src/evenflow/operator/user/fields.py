"""What user code sees of the keyed store during one call: values of the declared fields for the keys of the epoch.

Values are read from a base that does not change and written to a buffer beside it. So a call can be made again against the same
base, and two calls can be compared (protocol E3). The buffer becomes state only when the call has returned (operator/user/store.py).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import repeat
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from evenflow.errors import TypeMismatch
from evenflow.kernels.columns import Words
from evenflow.operator.user.declared import Field, freeze
from evenflow.operator.user.words import decode, encode, python_of, times_of, word_of
from evenflow.stream.arrays import Bools, Objects
from evenflow.stream.kept import same
from evenflow.stream.values import plain_values


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
        """(g,) array, new: of the field's own NumPy type (datetime64 for times), or of Python objects (str, tuple, dict). What is changed
        in such an object is kept when it is put.

        Where there is no value: `default`, else the declared default, else zero, NaT, None or an empty list or map.
        """
        column, field, of = self._column, self._column.field, self._of
        own = default is None
        default = field.default if own else default
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
            if field.given is not None:
                for i in range(out.size) if own else np.flatnonzero(given).tolist():
                    out[i] = field.given(out[i])
            return out
        if field.kind == "list" and field.part is None:
            for i, value in enumerate(out.tolist()):
                out[i] = value or ()
            return out
        assert field.given is not None
        for i, value in enumerate(out.tolist()):
            out[i] = field.given(value) if field.kind == "map" else tuple(field.given(value))
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
        if isinstance(values, str | bytes | dict) or not hasattr(values, "__iter__"):
            values = [values] * size
        if isinstance(values, pa.Array | pa.ChunkedArray):
            values = plain_values(values) if field.plain else values.to_pylist()
        else:
            values = list(values)
        if len(values) != size:
            what = f"the state field {field.name!r} was given {len(values)} values for {size} keys"
            raise TypeMismatch(f"box {self._box!r}: {what}: give one for each, or one")
        at = self._at(mask)
        frozen = freeze(values if at.size == size else [values[i] for i in at.tolist()], field, self._box)
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

    A value is None or the declared default where nothing was written. A list field is a `list`, a map field a `dict`, and so are maps and
    structures that are values or inside of such: change them in place or assign new ones. `del state.field` or assigning None clears. A
    timer is None or the datetime at which it comes. `now`: the epoch's stamp, a datetime in UTC.
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
        value = column.objects[group]
        if value is None:
            value = field.default
        if field.given is None:
            return value
        value = self._open[name] = field.given(value)
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
        self._keep(column, value)

    def _keep(self, column: Column, value: Any) -> None:
        assert column.objects is not None
        (frozen,) = freeze([value], column.field, self._attempt.box)
        column.objects[self._group], column.given[self._group] = frozen, frozen is not None

    def __delattr__(self, name: str) -> None:
        setattr(self, name, None)

    def close(self) -> None:
        """Write back what was handed out and can be changed; values only if they were, so a default that was read is not written."""
        for name, value in self._open.items():
            column = self._attempt.columns[name]
            if column.field.kind == "value":
                assert column.objects is not None and column.field.given is not None
                kept = column.objects[self._group]
                if same(value, column.field.given(column.field.default if kept is None else kept)):
                    continue
            column.own()
            self._keep(column, value)
        self._open.clear()
