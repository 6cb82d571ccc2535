"""Steps in time: `sequence` of dates and timestamps, and `time_bucket`, the bucket of a fixed length that a time lies in."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import pyarrow as pa

from evenflow.errors import ArithmeticOverflow, ExpressionError, TypeMismatch
from evenflow.query.sql import calendar
from evenflow.query.sql import operators as op
from evenflow.query.sql.casts import cast
from evenflow.query.sql.months import months_of
from evenflow.query.sql.node import InvalidValue, Node, literal, rowwise
from evenflow.query.sql.signature import Signature, constant_of
from evenflow.query.sql.types import DATE, INTERVAL, LONG, MONTHS, NULL, TIMESTAMP, TIMESTAMP_NTZ, name_of, timestampy

_DAY_US: Final = 86_400_000_000
_LONG: Final = 2**63
_MOST: Final = 1_000_000
"""Times in the list of one row."""


def temporal(node: Node) -> bool:
    """Whether it is a date or a timestamp."""
    return node.type == DATE or timestampy(node.type)


def sequence_of_times(start: Node, stop: Node, step: Node | None = None) -> Node:
    """From one time to another, the last one too if a step comes there; by days, if nothing else is said."""
    type_ = start.type if start.type != NULL else stop.type
    if stop.type != type_:
        raise TypeMismatch(f"sequence from {name_of(start.type)} to {name_of(stop.type)}; cast one of them")
    step = literal(pa.scalar(_DAY_US, INTERVAL)) if step is None else step
    if step.type not in (INTERVAL, MONTHS):
        raise TypeMismatch(f"sequence of times needs an interval for its step, but {step.text} is {name_of(step.type)}")
    months = months_of(step) if step.type == MONTHS else 0
    by = literal(pa.scalar(months, LONG)) if step.type == MONTHS else op.cast_raw(step, LONG)

    def one(first: int, last: int, size: int) -> list[int]:
        if first == last:
            return [first]
        if size == 0 or (size > 0) != (last > first):
            raise InvalidValue("sequence never comes to its end in such steps")
        least = size * 28 * _DAY_US if months else size
        if (last - first) // least > _MOST:
            raise InvalidValue(f"sequence would make more than {_MOST} times of one row")
        found, at = list[int](), first
        while (at <= last) if size > 0 else (at >= last):
            found.append(at)
            at = _later(first, len(found) * size) if months else at + size
        return found

    def micros(node: Node) -> Node:
        return op.micros(cast(node, TIMESTAMP)) if node.type == DATE else op.micros(node)

    listed = rowwise(one, pa.list_(LONG), micros(start), micros(stop), by, raises=True)
    return cast_elements(listed, type_)


def _later(micros: int, months: int) -> int:
    days, rest = divmod(micros, _DAY_US)
    return int(calendar.months_later(np.array([days]), np.array([months]))[0]) * _DAY_US + rest


def cast_elements(listed: Node, type_: Any) -> Node:
    """Microseconds in lists as times of a type."""
    inner = TIMESTAMP_NTZ if type_ == DATE else type_
    moments = op.cast_raw(listed, pa.list_(TIMESTAMP_NTZ))
    if inner != TIMESTAMP_NTZ:
        moments = op.cast_raw(listed, pa.list_(inner))
    return cast(moments, pa.list_(type_)) if type_ == DATE else moments


def _bucket(size: Node, a: Node, origin: Node | None = None) -> Node:
    """The start of the bucket that a time lies in. origin: where one of them starts, 1970 if nothing is said."""
    if not timestampy(a.type) and a.type != NULL:
        raise TypeMismatch(f"time_bucket needs a timestamp, but {a.text} is {name_of(a.type)}; cast it")
    if size.type not in (INTERVAL, MONTHS):
        raise TypeMismatch(f"time_bucket needs an interval for its size, but {size.text} is {name_of(size.type)}")
    if size.constant is None:
        raise ExpressionError(f"time_bucket: the size must be a literal, not {size.text}")
    length = months_of(size) if size.type == MONTHS else constant_of(op.cast_raw(size, LONG), "the size of time_bucket")
    if isinstance(length, int) and length < 1:
        raise ExpressionError("time_bucket: the size must be above zero")
    a = cast(a, TIMESTAMP) if a.type == NULL else a
    if origin is not None and origin.type not in (a.type, NULL):
        raise TypeMismatch(f"time_bucket needs an origin that is a {name_of(a.type)}, but {origin.text} is {name_of(origin.type)}; cast it")
    if origin is not None and origin.constant is None:
        raise ExpressionError(f"time_bucket: the origin must be a literal, not {origin.text}")
    first = literal(pa.scalar(0, LONG)) if origin is None else op.micros(cast(origin, a.type))
    start_of = _in_months if size.type == MONTHS else _in_micros
    found = rowwise(start_of, LONG, op.micros(a), first, literal(pa.scalar(length, LONG)), raises=True)
    plain = op.cast_raw(found, TIMESTAMP_NTZ)
    return plain if a.type == TIMESTAMP_NTZ else op.cast_raw(plain, a.type)


def _in_micros(at: int, start: int, size: int) -> int:
    """As Spark counts, which needs the next bucket too, where buckets are of days."""
    since = (at - start) // size * size
    last = since + size if size >= _DAY_US else since
    for each in (at - start, since, last, start + last):
        _within(each)
    return _within(start + since)


def _within(micros: int) -> int:
    if not -_LONG <= micros < _LONG:
        raise ArithmeticOverflow("time_bucket: the bucket is beyond the last timestamp, or before the first one")
    return micros


def _in_months(at: int, start: int, months: int) -> int:
    number = (_month(at) - _month(start)) // months
    found = _within(_later(start, number * months))
    return found if found <= at else _later(start, (number - 1) * months)


def _month(micros: int) -> int:
    """Months since 1970."""
    return int(np.datetime64(micros // _DAY_US, "D").astype("datetime64[M]").astype(np.int64))


FUNCTIONS: Final = {"time_bucket": Signature(_bucket, 2, 3)}
