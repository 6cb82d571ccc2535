"""Frames that a unit's capture has with it: those for consumers at its own site (availability.md, P1).

A unit that begins again as of the end of epoch c never makes frames up to c again. Consumers at other sites have received these before the
capture is sent. Consumers at its own site die with it, and may begin again from an earlier epoch than c: so what they would ask for goes
into the image with the state. They are rows as they travel, with the partitions that made them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
import pyarrow as pa

from evenflow.exchange.retention import Kept
from evenflow.exchange.routing import Pieces, Split
from evenflow.site.cohort import Cohort
from evenflow.site.view import View
from evenflow.state.page_snapshot import State
from evenflow.stream.ids import PlanNumber
from evenflow.stream.ipc import batch_from_bytes, batch_to_bytes

_OWNER: Final = "__producer"


@dataclass(frozen=True, slots=True)
class OwnFrames:
    """One stream's. kept: references to what the producer keeps, ascending by epoch. pieces: of each. consumers: partitions that are here.
    since: before it nothing is asked for."""

    stream: int
    since: int
    kept: tuple[Kept, ...]
    pieces: tuple[tuple[Pieces, ...], ...]
    consumers: tuple[int, ...]


def taken(cohort: Cohort, stream: int, since: int, consumers: tuple[int, ...]) -> OwnFrames:
    """Those of a stream behind epoch `since`, as of now. Copies nothing. consumers: partitions that live here."""
    kept = tuple(cohort.retained[stream].since(since + 1))
    return OwnFrames(stream, since, kept, tuple(tuple(each.pieces) for each in kept), consumers)


def packed(found: Sequence[OwnFrames]) -> tuple[list[Any], list[bytes]]:
    """(what is said of them, in JSON's words; rows of each piece). In any thread."""
    said, rows = list[Any](), list[bytes]()
    for each in found:
        epochs = list[Any]()
        for kept, pieces in zip(each.kept, each.pieces, strict=True):
            made = list[Any]()
            for piece in pieces:
                parts = list(_wanted(piece, each.consumers))
                made.append([list(piece.partitions), len(rows), len(parts), piece.owner is not None])
                rows += [batch_to_bytes(part) for part in parts]
            epochs.append([kept.epoch, kept.plan, kept.watermark, kept.stamp, kept.opened, kept.kept, kept.newest, kept.missed, made])
        said.append([each.stream, each.since, epochs])
    return said, rows


def _wanted(piece: Pieces, consumers: tuple[int, ...]) -> Iterator[pa.RecordBatch]:
    """Rows of a piece that are for these consumers, the producer of each as the last column where the rows do not say it."""
    if piece.rows is None:
        return
    wanted = np.array(consumers, np.int32)
    entire, partly = piece.split.groups_within(consumers)
    for group in sorted((*entire, *partly)):
        start, end = piece.bounds[group], piece.bounds[group + 1]
        if end == start:
            continue
        rows = piece.rows.slice(start, end - start)
        if piece.owner is not None:
            rows = rows.append_column(_OWNER, pa.array(piece.owner[start:end]))
        if group in partly:
            rows = rows.filter(pa.array(np.isin(piece.consumers_of(start, end), wanted)))
        if rows.num_rows:
            yield rows


def restore(cohort: Cohort, view: View, said: Sequence[Any], rows: Mapping[int, State]) -> None:
    """Keep these frames again, in a cohort that has produced nothing since.

    A site that has come later does not know the plans of all of them. Key groups are as in the first that it knows: where they change
    hands, images go.
    """
    first_known = view.plans[0].effective
    for stream, since, epochs in said:
        output = cohort.segment.outputs.index(stream)
        kept = []
        for epoch, plan, watermark, stamp, opened, passed, newest, missed, made in epochs:
            split = _whole(view.splits(cohort.segment, max(epoch, first_known))[output])
            pieces = [
                _piece(split, partitions, [rows[at] for at in range(first, first + count)], owned)
                for partitions, first, count, owned in made
            ]
            kept.append(Kept(epoch, PlanNumber(plan), watermark, stamp, opened, pieces, passed, newest, missed))
        cohort.retained[stream].restore(since, kept)


def _whole(split: Split) -> Split:
    """All consumer partitions as one group: these rows lie in no order. Its number is no plan's, since slices are remembered by it."""
    everybody = tuple(range(len(split.group_of)))
    return replace(split, plan=-2 - split.plan, groups=(everybody,), group_of=np.zeros(len(everybody), split.group_of.dtype))


def _piece(split: Split, partitions: Sequence[int], parts: Sequence[State], owned: bool) -> Pieces:
    batches = [batch_from_bytes(bytes(part)) for part in parts]
    if not batches:
        return Pieces(split, None, (0, 0), tuple(partitions), None)
    rows = pa.concat_batches(batches)
    owner = None
    if owned:
        owner = rows.column(rows.num_columns - 1).to_numpy(zero_copy_only=False).astype(np.int32)
        rows = rows.select(range(rows.num_columns - 1))
    return Pieces(split, rows, (0, rows.num_rows), tuple(partitions), owner, rows.nbytes)
