"""What a processor declares of a key's state in `open`: its fields, and how their values are kept."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any, Literal, get_args

import pyarrow as pa

from evenflow.errors import QueryError, TypeMismatch
from evenflow.kernels.columns import is_word
from evenflow.query.duration import duration_us
from evenflow.stream.kept import Handing, handing, handing_of_key, handing_of_list, handing_of_map, immutable
from evenflow.stream.schema import parse_type, type_name
from evenflow.stream.values import NOT_OF_TYPE, are_texts, array_of, plain_values

TimeMode = Literal["event", "processing"]


@dataclass(frozen=True, slots=True)
class Field:
    """One declared field of a key's state. type: of the value, of the list's elements, or of the map's values.

    time: by what a timer goes, event time or processing time. after_us: how long after each row of the key it is set, if it is a timeout;
    another version of the processor may have another one. plain: times in its objects are whole numbers, of any year, and not Python's.
    """

    name: str
    kind: Literal["value", "list", "map", "timer"]
    type: pa.DataType
    key_type: pa.DataType | None = None
    default: Any = None
    time: TimeMode | None = None
    after_us: int | None = field(default=None, compare=False)
    plain: bool = field(default=False, compare=False)
    part: Handing | None = field(init=False, repr=False, compare=False)
    """How the value, an element, or a map's value is handed out; None as it is kept, since it cannot be changed."""
    given: Handing | None = field(init=False, repr=False, compare=False)
    """The same of what is kept for a key, where a list or map may be None."""

    def __post_init__(self) -> None:
        part = given = handing(self.type)
        if self.kind == "list":
            given = handing_of_list(part)
        elif self.kind == "map":
            given = handing_of_map(handing_of_key(self.key_type), part)
        object.__setattr__(self, "part", part)
        object.__setattr__(self, "given", given)

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
    """What a processor declares in `open`. Types are Spark type names, such as "bigint", or pyarrow types.

    plain: see `Field`, of those that are declared from now on. The engine's own boxes say so, which keep what rows have.
    """

    def __init__(self, box: str) -> None:
        self._box, self.plain = box, False
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
        if field.default is not None:
            (default,) = freeze([field.default], field, self._box)
            field = replace(field, default=default) if pa.types.is_nested(field.type) else field
        self.fields[field.name] = replace(field, plain=True) if self.plain else field


def freeze(values: list[Any], field: Field, box: str) -> list[Any]:
    """The values as they are stored: of the declared type, immutable; None where there is nothing (None, an empty list)."""
    if field.kind == "value" and pa.types.is_string(field.type) and are_texts(values):
        return values
    if field.kind == "map":
        values = [list(value.items()) if isinstance(value, dict) else value for value in values]
    try:
        array = array_of(values, field.column_type)
        made = plain_values(array) if field.plain else array.to_pylist()
    except NOT_OF_TYPE as e:
        what = f"the state field {field.name!r} is a {field.kind} of {type_name(field.type)}"
        raise TypeMismatch(f"box {box!r}: {what} and cannot take this: {e}") from e
    frozen = [immutable(value) for value in made]
    return frozen if field.kind == "value" else [value or None for value in frozen]
