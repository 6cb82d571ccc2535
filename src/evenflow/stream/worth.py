"""The few classes of rows that differ in worth: what a row of value x is worth is a curve, and who leaves rows out needs one number per
class.

Classes are cut where the worth changes by an equal step, or, where values have been seen, so that each has as many of them; where most of
these are equal, by both. Rows of equal worth are of one class.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from evenflow.stream.arrays import Floats
from evenflow.stream.curve import Curve

CLASSES_MAX: Final = 8


@dataclass(frozen=True, slots=True)
class Classes:
    """cuts: values at which the next class begins, ascending. worth: of a row of each class, one more than cuts."""

    cuts: tuple[float, ...]
    worth: tuple[float, ...]

    def of(self, values: Any) -> npt.NDArray[np.int8]:
        """The class of each value. Null and NaN are of the class that is worth least: nobody has said what they are worth."""
        given = np.asarray(values, np.float64)
        found = np.searchsorted(self.cuts, given, "right")
        return np.where(np.isnan(given), int(np.argmin(self.worth)), found).astype(np.int8)

    def best_first(self) -> list[int]:
        """The classes, from what is worth most on."""
        return sorted(range(len(self.worth)), key=lambda each: (-self.worth[each], each))

    def __len__(self) -> int:
        return len(self.worth)


def classes_of(curve: Curve, seen: Any = None, *, count: int = CLASSES_MAX) -> Classes:
    """At most `count` classes of the values of a curve. seen: values that have come lately, by which classes are of equal size.

    Worth of a class: mean over the values seen in it, or over its stretch of the curve.
    """
    values = np.sort(np.asarray([] if seen is None else seen, np.float64))
    values = np.clip(values[~np.isnan(values)], curve.points[0][0], curve.points[-1][0])  # It is level beyond its ends.
    if len(values):
        cuts = np.unique(np.quantile(values, np.arange(1, count) / count))
        cuts = cuts[cuts > values[0]]
        if values[0] < values[-1] and len(cuts) < count - 1:  # Rare values that are worth much would be like all others.
            cuts = np.union1d(cuts, _even(curve.over(float(values[0]), float(values[-1])), count - len(cuts)))
    else:
        cuts = _even(curve, count)
        values = np.linspace(curve.points[0][0], curve.points[-1][0], 64 * count)
    worth = curve.at(values)
    of = np.searchsorted(cuts, values, "right")
    kept_cuts: list[float] = []
    kept_worth: list[float] = []
    for number in range(len(cuts) + 1):
        inside = worth[of == number]
        each = float(inside.mean()) if len(inside) else float(curve(float(cuts[number - 1 if number else 0])))
        if kept_worth and abs(each - kept_worth[-1]) <= 1e-9 * (1 + abs(each)):
            continue
        if number:
            kept_cuts.append(float(cuts[number - 1]))
        kept_worth.append(each)
    return Classes(tuple(kept_cuts[len(kept_cuts) - (len(kept_worth) - 1) :]), tuple(kept_worth))


def _even(curve: Curve, count: int) -> Floats:
    """Values at which the way that the worth has gone, up or down, is one, two, ... parts of the whole."""
    places = np.array([x for x, _ in curve.points])
    way = np.concatenate([[0.0], np.cumsum(np.abs(np.diff([y for _, y in curve.points])))])
    if way[-1] == 0:
        return np.array([], np.float64)
    rising = np.concatenate([[True], np.diff(way) > 0])
    found: Floats = np.interp(way[-1] * np.arange(1, count) / count, way[rising], places[rising])
    return np.unique(found)


ALIKE: Final = Classes((), (1.0,))
"""All rows are worth the same."""

__all__ = ["ALIKE", "CLASSES_MAX", "Classes", "classes_of"]
