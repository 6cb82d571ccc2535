"""Words: fields of fixed width as int64, from and to what user code gives and is given, without losing anything."""

from __future__ import annotations

import datetime
import zoneinfo
from datetime import timedelta
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from evenflow.errors import TypeMismatch
from evenflow.kernels.columns import Words
from evenflow.operator.user.declared import Field
from evenflow.stream.arrays import Bools
from evenflow.stream.schema import type_name
from evenflow.stream.values import NOT_OF_TYPE

UTC: Final = zoneinfo.ZoneInfo("UTC")
_EPOCH: Final = datetime.datetime(1970, 1, 1)


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
    if pa.types.is_duration(type_):
        return datetime.timedelta(microseconds=int(word))
    return int(word)
