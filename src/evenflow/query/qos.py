"""What an answer is worth: quality of service of an output (HW 2.3), for when there is more to do than can be done.

    out.to(sink, qos=ef.qos(latency=[("250 ms", 1), ("1 s", 0)], loss=[(1, 1), (0.5, 0.9), (0, 0)], value=("amount", [(0, 0.1), (1000,
    1)]), weight=2))

    U = weight * loss(delivered share) * mean of latency(age) * value(row)

Each factor is piecewise linear, and level beyond its ends. An output without any is protected: nothing that it needs is ever left out.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final

from evenflow.errors import QosError, QueryError
from evenflow.query.duration import duration_text, duration_us
from evenflow.query.faults import about
from evenflow.stream.curve import Curve

DEFAULT_LOSS: Final = Curve(((0.0, 0.0), (0.25, 0.5), (1.0, 1.0)))
"""The first quarter is worth half of all: a loss that is linear would give a cheap output everything and a dear one nothing."""

Points = Sequence[tuple[Any, float]]


@dataclass(frozen=True, slots=True)
class Qos:
    """latency: utility over age in microseconds, or None: age does not matter. loss: over the share that is delivered. column, value:
    utility over a number in each row, or None: all are worth the same. weight: beside other outputs. Raises QosError for what cannot be."""

    latency: Curve | None = None
    loss: Curve = DEFAULT_LOSS
    column: str | None = None
    value: Curve | None = None
    weight: float = 1.0

    def __post_init__(self) -> None:
        _judge_weight(self.weight)
        for what, curve in (("latency", self.latency), ("loss", self.loss), ("value", self.value)):
            if not isinstance(curve, Curve) and (curve is not None or what == "loss"):
                raise QosError(f"qos: {what} is {curve!r:.60} and no curve").about(what)
            if curve is not None and any(y < 0 for _, y in curve.points):
                raise QosError(f"qos: {what} has a utility below 0, {_told(curve.points)}; what is worth nothing is 0").about(what)
        if self.latency is not None and not self.latency.falls():
            told = _told(self.latency.points)
            raise QosError(f"qos: latency rises with age, {told}; an older answer is never worth more: let the points fall").about(
                "latency"
            )
        _judge_loss(self.loss)
        if (self.column is None) != (self.value is None) or not isinstance(self.column, str | None):
            raise QosError(f"qos: value is a column and its points, not {self.column!r:.40} and {self.value!r:.40}").about("value")

    @property
    def patience_us(self) -> int | None:
        """L*: the age from which on an answer is worth less; None if there is none."""
        if self.latency is None:
            return None
        best = self.latency.points[0][1]
        return round(max((x for x, y in self.latency.points if y >= best), default=0.0))

    def arguments(self) -> dict[str, Any]:
        """Those of `qos` that make it again, without its defaults."""
        found: dict[str, Any] = {}
        if self.latency is not None:
            found["latency"] = [(f"{round(x)} us", y) for x, y in self.latency.points]
        if self.loss != DEFAULT_LOSS:
            found["loss"] = list(self.loss.points)
        if self.value is not None:
            found["value"] = (self.column, list(self.value.points))
        return found if self.weight == 1 else found | {"weight": self.weight}

    def notes(self) -> tuple[str, ...]:
        """What somebody who drew the curves should know of how they are used."""
        loss = self.loss.over(0.0, 1.0)
        if loss.is_concave():
            return ()
        used = ", ".join(f"({x:g}, {y:g})" for x, y in loss.hull().points)
        return (f"the loss curve is not concave, so that half a delivery may be worth less than none and all: it counts as {used}",)

    def text(self) -> list[str]:
        """In phrases."""
        found = [f"weight {self.weight:g}"]
        if self.latency is not None:
            found.append("latency " + ", ".join(f"{duration_text(round(x))} {y:g}" for x, y in self.latency.points))
        if self.loss != DEFAULT_LOSS:
            found.append("loss " + ", ".join(f"{x:g} {y:g}" for x, y in self.loss.points))
        if self.value is not None:
            found.append(f"value of {self.column} " + ", ".join(f"{x:g} {y:g}" for x, y in self.value.points))
        return found


def qos(*, latency: Points | None = None, loss: Points | None = None, value: tuple[str, Points] | None = None, weight: float = 1.0) -> Qos:
    """What the results of an output are worth, for `stream.to(sink, qos=...)`.

    latency: (age, utility) points, such as [("250 ms", 1), ("1 s", 0)]: it must fall. loss: (share delivered, utility), between 0 and 1:
    it must rise; default (0, 0), (0.25, 0.5), (1, 1). value: a column and (value, utility) points. weight: how much the output counts
    beside others. Raises QosError that says which is wrong.
    """
    _judge_weight(weight)
    column, worth = _value(value)
    return Qos(_latency(latency), _loss(loss), column, worth, float(weight))


def _judge_weight(weight: Any) -> None:
    if isinstance(weight, bool) or not isinstance(weight, int | float) or not 0 < weight <= sys.float_info.max:
        told = "an int that is too large" if isinstance(weight, int) and weight > 0 else f"{weight!r:.40}"
        raise QosError(f"qos: weight is {told}; it must be a number above 0, such as 2").about("weight")


def _judge_loss(loss: Curve) -> None:
    if loss.points[0][0] < 0 or loss.points[-1][0] > 1:
        raise QosError(f"qos: loss is over shares from 0 to 1, not {_told(loss.points)}; 0.5 is half of the results").about("loss")
    if not loss.rises():
        raise QosError(f"qos: loss falls where more is delivered, {_told(loss.points)}; let the points rise with the share").about("loss")


def _latency(points: Points | None) -> Curve | None:
    if points is None:
        return None
    with about("latency"):
        found = _curve("latency", [(_age(x), y) for x, y in _pairs("latency", points)])
        if not found.falls():
            raise QosError(f"qos: latency rises with age, {_told(points)}; an older answer is never worth more: let the points fall")
        return found


def _loss(points: Points | None) -> Curve:
    if points is None:
        return DEFAULT_LOSS
    with about("loss"):
        return _curve("loss", _pairs("loss", points))


def _value(given: tuple[str, Points] | None) -> tuple[str | None, Curve | None]:
    if given is None:
        return None, None
    with about("value"):
        if not isinstance(given, tuple | list) or len(given) != 2 or not isinstance(given[0], str):
            raise QosError(f"qos: value is {given!r:.60}; it is a column and its points, such as ('amount', [(0, 0.1), (1000, 1)])")
        return given[0], _curve("value", _pairs("value", given[1]))


def _pairs(what: str, points: Any) -> list[tuple[Any, Any]]:
    if not isinstance(points, list | tuple) or not all(isinstance(each, list | tuple) and len(each) == 2 for each in points):
        raise QosError(f"qos: {what} is {points!r:.60}; it is a list of points such as [(0, 0), (1, 1)]")
    return [(x, y) for x, y in points]


def _curve(what: str, points: list[tuple[Any, Any]]) -> Curve:
    if not all(isinstance(number, int | float) and not isinstance(number, bool) for point in points for number in point):
        raise QosError(f"qos: {what} has a point that is no pair of numbers: {_told(points)}")
    if any(y < 0 for _, y in points):
        raise QosError(f"qos: {what} has a utility below 0, {_told(points)}; what is worth nothing is 0")
    try:
        return Curve.of(points)
    except OverflowError:
        raise QosError(f"qos: {what} has a number that is too large for a curve") from None
    except ValueError as error:
        raise QosError(f"qos: {what} is no curve, {error}: {_told(points)}") from None


def _age(given: str | timedelta) -> int:
    try:
        return duration_us(given)
    except QueryError as error:
        raise QosError(f"qos: latency: {error}") from None


def _told(points: Any) -> str:
    text = ", ".join(f"({x}, {y})" for x, y in points)
    return text if len(text) <= 120 else f"{text[:117]}..."


def check_qos(box: str, given: Any, schema: Any) -> None:
    """Raise QosError unless a box can be asked for that, of rows with these columns."""
    from evenflow.stream.schema import is_number

    if not isinstance(given, Qos):
        raise QosError(f"box {box!r}: qos is {given!r:.60}; make it with evenflow.qos(...)")
    if given.column is None:
        return
    if given.column not in schema.names:
        raise QosError(f"box {box!r}: the value is that of column {given.column!r}, and there are {', '.join(schema.names)}")
    kind = schema.field(given.column).type
    if not is_number(kind):
        raise QosError(
            f"box {box!r}: the value is that of column {given.column!r}, which is {kind} and no number; name a column of numbers"
        )


__all__ = ["DEFAULT_LOSS", "Qos", "check_qos", "qos"]
