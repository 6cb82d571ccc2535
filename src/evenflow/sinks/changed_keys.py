"""What the changes of an epoch do to the rows of a table that are known by a key.

Changes of one key come in their order only from one partition: where a row moves from one to another, as behind a join by another column,
the row as it is may come before the row as it was. So changes are counted and not played one by one. A key has one row or none, before the
epoch and behind it, and how often rows came and were taken back says which of the two holds.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import pyarrow as pa

from evenflow.stream.change import CHANGE, taken_back
from evenflow.stream.values import plain_values


class Effects(NamedTuple):
    """gone: keys that have no row any more. kept: rows that are there now, whatever was. moved: rows that take the place of one that is
    there; where none is, they have come and gone."""

    gone: pa.RecordBatch
    kept: pa.RecordBatch
    moved: pa.RecordBatch


def effects_of(batch: pa.RecordBatch, key: Sequence[str]) -> Effects:
    """Of an epoch's changes, at most one effect a key. Of a key that has several rows, the last change counts. Raises TypeMismatch."""
    back, rows = taken_back(batch).tolist(), batch.drop_columns([CHANGE])
    by_key: dict[str, list[int]] = {}
    for at, one in enumerate(_texts(rows.select(list(key)))):
        by_key.setdefault(one, []).append(at)
    more = {one: sum(-1 if back[at] else 1 for at in own) for one, own in by_key.items()}
    plain = {one for one, own in by_key.items() if [back[at] for at in own] in ([True], [False], [True, False]) or abs(more[one]) > 1}
    counted = [at for one, own in by_key.items() if one not in plain for at in own]
    said = dict(zip(counted, _texts(rows.take(pa.array(counted, pa.int64()))), strict=True))
    gone, kept, moved = list[int](), list[int](), list[int]()
    for one, own in by_key.items():
        left = own[-1] if one in plain else _left(own, back, said)
        if back[own[-1]] if one in plain else more[one] < 0:
            gone.append(own[-1])
        elif left is not None:
            (kept if one in plain or more[one] or back[own[0]] else moved).append(left)
    keys = rows.select(list(key)).take(pa.array(gone, pa.int64()))
    return Effects(keys, rows.take(pa.array(kept, pa.int64())), rows.take(pa.array(moved, pa.int64())))


def _left(own: Sequence[int], back: Sequence[bool], said: Mapping[int, str]) -> int | None:
    """The last of a key's rows that came and was not taken back in the same epoch."""
    taken = Counter(said[at] for at in own if back[at])
    left = None
    for at in own:
        if not back[at]:
            taken[said[at]] -= 1
            left = at if taken[said[at]] < 0 else left
    return left


def _texts(rows: pa.RecordBatch) -> list[str]:
    """Each row as a text: equal rows have equal ones."""
    return [repr(values) for values in zip(*map(plain_values, rows.columns), strict=True)]


__all__ = ["Effects", "effects_of"]
