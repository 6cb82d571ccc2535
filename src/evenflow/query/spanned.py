"""Neighbours of rows of a key, and totals over those around them, of rows that come once. Their operator is `operator.user.spanned`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Final

import pyarrow as pa

from evenflow.query.built import Built
from evenflow.query.ranked import FRAMED, LISTED, NEIGHBOURS, PLACES, Place
from evenflow.stream.schema import parse_ddl

_MONTH_US: Final = 31 * 86_400_000_000
"""No month is longer."""


@dataclass
class Spanned(Built):
    """Each row with neighbours, and totals of the rows of its key whose event time is from `low` to `high` microseconds behind its own,
    rows of its own time among them, or which are as many rows behind it. Where these reach ahead a row comes out when what follows is
    there: of spans at most twice as far behind the watermark, of rows whenever there are so many, or at the end of the stream.

    columns: of the rows, as DDL. time: their event time, in whose order they come. places: what is added; of frames low <= high. ties: the
    columns in which rows of one time are in order, and equal where places go by that.

    State: of each key the times, and the columns that the totals are of, of its last rows; all columns where frames reach ahead; of frames
    that begin with the first row three words each. Of neighbours that are no nulls the last such rows, however far back they are; a row
    that waits for some waits for as long as there are nulls. A box has either these neighbours or none of them. No key is forgotten.
    """

    operator: ClassVar[str] = "user.spanned:Spanned"
    keeps_key: ClassVar[bool] = True

    columns: str
    time: str
    places: tuple[Place, ...]
    ties: tuple[str, ...] = ()

    @property
    def output(self) -> pa.Schema:  # type: ignore[override]
        schema = parse_ddl(self.columns)
        return pa.schema([*schema, *(pa.field(place.name, place.type(schema)) for place in self.places)])

    @property
    def by_time(self) -> bool:
        """Whether some frame is a span of time."""
        return any(place.span for place in self.places)

    @property
    def by_rows(self) -> bool:
        """Whether some frame is a number of rows."""
        return not all(place.span for place in self.places)

    @property
    def among_known(self) -> tuple[Place, ...]:
        """Neighbours that are counted without nulls."""
        return tuple(place for place in self.places if place.known and place.function in NEIGHBOURS)

    @property
    def held_us(self) -> int:
        """How long a row is in frames of later ones."""
        return max(0, *(-low for low, _ in self._reaches(span=True)))

    @property
    def ahead_us(self) -> int:
        """How long after a row its frames end."""
        return max(0, *(high for _, high in self._reaches(span=True)))

    @property
    def held_rows(self) -> int:
        """Of how many later rows a row is in the frames."""
        return max(0, *(-low for low, _ in self._reaches(span=False)))

    @property
    def ahead_rows(self) -> int:
        """How many rows behind a row its frames end."""
        return max(0, *(high for _, high in self._reaches(span=False)))

    def _reaches(self, *, span: bool) -> list[tuple[int, int]]:
        """How far the places of one kind reach; of a neighbour both are where it is."""
        places = [place for place in self.places if place.span == span]
        unit = [_MONTH_US if place.months else 1 for place in places]
        ends = [
            int((place.low if place.function in NEIGHBOURS else place.high) or 0) * each for place, each in zip(places, unit, strict=True)
        ]
        # What is before all frames that begin with the first row is carried.
        return [
            (0, 0),
            *(
                (min(0, high) if place.from_first else int(place.low or 0) * each, high)
                for place, high, each in zip(places, ends, unit, strict=True)
            ),
        ]

    @property
    def lag_us(self) -> int:
        """See `Built`: the row before the next one may be nearly as far behind the first one as frames reach, and is waited for as long."""
        return 2 * self.ahead_us

    def event_time(self, time: str | None) -> str | None:
        """See `Built`. How long a key takes to have so many more rows nobody knows. But what a row has waited for is there now: the time of
        the row that many behind it, if that is asked for."""
        if not self.ahead_rows:
            return time
        farthest = ("lead", self.time, self.ahead_rows)
        follows = (place.name for place in self.places if not place.known and (place.function, place.column, place.low) == farthest)
        return None if self.ahead_us else next(follows, None)


@dataclass
class Gathered(Built):
    """Rows whose parts come apart, as one row each. Its keys are what a row is known by: no two rows have the same.

    columns: of the whole rows, as DDL. part: the column of the number of the part that a row of the input is. parts: the columns of each
    part; those of the others are null there.

    State: parts of rows of which others have not come.
    """

    operator: ClassVar[str] = "user.gathered:Gathered"

    columns: str
    part: str
    parts: tuple[tuple[str, ...], ...]

    @property
    def output(self) -> pa.Schema:  # type: ignore[override]
        return parse_ddl(self.columns)

    def event_time(self, time: str | None) -> str | None:
        """See `Built`. How long a part waits for the others nobody knows."""
        return None


def unfit(place: Place) -> str | None:
    """Why rows that come once cannot have this place; None if they can."""
    if place.function in PLACES and place.function not in ("row_number", "rank", "dense_rank"):
        return f"{place.function} of every row changes with every row to come"
    if place.function == LISTED and place.low is None:
        return "all its values would be kept for ever; say how many rows or how long: ROWS BETWEEN 99 PRECEDING AND CURRENT ROW"
    if place.function in FRAMED and place.high is None:
        return "all rows that follow would be waited for; write AND INTERVAL '10' MINUTES FOLLOWING, or CURRENT ROW"
    return None


def params_in_time(keys: Sequence[str], described: Spanned, ties: Sequence[str] | None) -> dict[str, Any]:
    """Those of the box: its rows come in order of event time, behind the watermark."""
    order = {"order": "event_time", "tie_break": None if ties is None else tuple(ties)}
    return {"keys": tuple(keys), "processor": described, **order, "verify": None}


__all__ = ["Gathered", "Spanned", "params_in_time", "unfit"]
