"""Totals over the rows of a key in a span of time before each of its rows. Their operator is `operator.user.spanned`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import pyarrow as pa

from evenflow.query.built import Built
from evenflow.query.ranked import Place
from evenflow.stream.schema import parse_ddl


@dataclass
class Spanned(Built):
    """Each row with totals of the rows of its key whose event time is from `low` to `high` microseconds behind its own, rows of its own
    time among them. Where frames reach ahead a row comes out when what follows is there, at most twice as far behind the watermark.

    columns: of the rows, as DDL. time: their event time, in whose order they come. places: what is added, with spans, in which
    low <= high.

    State: of each key the times, and the columns that the totals are of, of its rows of the last span; no key is forgotten.
    """

    operator: ClassVar[str] = "user.spanned:Spanned"
    keeps_key: ClassVar[bool] = True

    columns: str
    time: str
    places: tuple[Place, ...]

    @property
    def output(self) -> pa.Schema:  # type: ignore[override]
        schema = parse_ddl(self.columns)
        return pa.schema([*schema, *(pa.field(place.name, place.type(schema)) for place in self.places)])

    @property
    def held_us(self) -> int:
        """How long a row is in frames of later ones."""
        return max(0, *(-int(place.low or 0) for place in self.places))

    @property
    def ahead_us(self) -> int:
        """How long after a row its frames end."""
        return max(0, *(int(place.high or 0) for place in self.places))

    @property
    def lag_us(self) -> int:
        """See `Built`: the row before the next one may be nearly as far behind the first one as frames reach, and is waited for as long."""
        return 2 * self.ahead_us


def params_in_time(keys: Sequence[str], described: Spanned, ties: Sequence[str] | None) -> dict[str, Any]:
    """Those of the box: its rows come in order of event time, behind the watermark."""
    order = {"order": "event_time", "tie_break": None if ties is None else tuple(ties)}
    return {"keys": tuple(keys), "processor": described, **order, "verify": None}


__all__ = ["Spanned", "params_in_time"]
