"""The description of a join of changelogs, and of a comparison of their rows. Its operator is `operator.changes.pairs`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Final, Literal, get_args

from evenflow.query.built import Built

KEY: Final = "key__"
LEFT: Final = "left__"
BACK: Final = "back__"
"""Columns of the input: a key's number follows KEY; whether a row is of the left side, and whether it is taken back."""

Alike = Literal["both", "both all", "first", "first all"]
"""Which rows come out where two sides are compared: those of both, or of the first only; each once, or as often as it is left."""
ALIKE: Final = get_args(Alike)


@dataclass
class Pairs(Built):
    """output: of the result with its change, as DDL. left, right: columns of the sides, as DDL. how: of a join, or one of ALIKE, whose key
    is the whole row, in which nulls meet. keys: how many columns the key has; 0: all rows meet. condition: what else must hold, over
    `l.name` and `r.name`. columns: (left, right) column of each of the result, the first that is not null of both.

    State: every row of both sides that is there, once, and a word that says how often.
    """

    operator: ClassVar[str] = "changes.pairs:PairUp"

    output: str  # type: ignore[misc]
    left: str
    right: str
    how: str
    keys: int
    condition: str | None
    columns: tuple[tuple[str | None, str | None], ...]
