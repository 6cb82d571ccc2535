"""A chart as data, so that an experiment says what belongs beside what and knows no drawing library."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

Whose = Literal["ours", "paper", "law"]
"""Who says so: measured here, read from the paper, or calculated."""


@dataclass(frozen=True, slots=True)
class Line:
    """Points joined by a line; x and y have the same length. points: also mark each. NaN breaks the line.

    A line that is not ours has the colour of the line of ours before it, which it stands beside.
    """

    label: str
    x: Sequence[float]
    y: Sequence[float]
    whose: Whose = "ours"
    points: bool = False


@dataclass(frozen=True, slots=True)
class Mark:
    """Something that happened at x."""

    x: float
    label: str


@dataclass(frozen=True, slots=True)
class Curves:
    """Lines over a common axis. log: both axes are logarithmic."""

    title: str
    x_label: str
    y_label: str
    lines: tuple[Line, ...]
    marks: tuple[Mark, ...] = ()
    log: bool = False


@dataclass(frozen=True, slots=True)
class Bars:
    """One group of bars per category, one bar per label in each."""

    title: str
    y_label: str
    categories: tuple[str, ...]
    values: tuple[tuple[str, Whose, tuple[float, ...]], ...]


@dataclass(frozen=True, slots=True)
class Chart:
    """Panels side by side under one title. per_row: so many beside each other, the others below; None: all in one row."""

    title: str
    panels: tuple[Curves | Bars, ...]
    per_row: int | None = None
