"""The kinds of boxes: each in a file of its own, with its parameters, what it makes of its input, how it runs and how it is told.

`kind` says what a kind owes; `judging` has what several ask of columns and windows, `changes` what they ask where rows can be taken back,
`wording` the phrases that they share. A kind knows neither the network that its boxes are in, nor segments, sites or how it is drawn.

A new kind is a file here and a line below, an operator, and the method that draws it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from evenflow.query.kinds.aggregate import Aggregate
from evenflow.query.kinds.bsort import BSort
from evenflow.query.kinds.case import Case
from evenflow.query.kinds.complete import Complete
from evenflow.query.kinds.dedup import Dedup
from evenflow.query.kinds.explode import Explode
from evenflow.query.kinds.filter import Filter
from evenflow.query.kinds.flat_map import FlatMap
from evenflow.query.kinds.join import Join
from evenflow.query.kinds.key_by import KeyBy
from evenflow.query.kinds.kind import BoxKind
from evenflow.query.kinds.lookup import Lookup
from evenflow.query.kinds.pattern import Pattern
from evenflow.query.kinds.process import Process
from evenflow.query.kinds.repartition import Repartition
from evenflow.query.kinds.resample import Resample
from evenflow.query.kinds.select import Select
from evenflow.query.kinds.sink import Sink
from evenflow.query.kinds.sort import Sort
from evenflow.query.kinds.source import Source
from evenflow.query.kinds.table_join import TableJoin
from evenflow.query.kinds.top import Top
from evenflow.query.kinds.union import Union
from evenflow.query.kinds.unpivot import Unpivot
from evenflow.query.kinds.watermark import Watermark

KINDS: Final[Mapping[str, type[BoxKind]]] = {
    kind.name: kind
    for kind in (
        Source, Filter, Select, Union, Watermark, KeyBy, Process, Aggregate, Join, TableJoin, Dedup, Top, Resample, Pattern, BSort, Sort,
        Complete, Explode, FlatMap, Lookup, Case, Unpivot, Repartition, Sink,
    )
}  # fmt: skip
"""By the name that boxes and saved networks have for it."""

GUARDED: Final = tuple(sorted(name for name, kind in KINDS.items() if kind.guarded))
"""Boxes that can put aside a row on which they raise."""


def read(kind: str, params: Mapping[str, Any]) -> BoxKind:
    """The parameters of a box of that kind. Raises KeyError for one that is missing."""
    return KINDS[kind].read(params)
