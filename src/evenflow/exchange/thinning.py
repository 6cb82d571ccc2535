"""Which rows of an arc are left out, where the plan says how many of each class go on (D3): the producer asks, before it routes them.

A row goes on iff the hash of what it is, of its epoch and of the arc is below what is kept of its class. Its place would not do: inside
a dataflow that may be one of arrival. Rows of a partition that are equal are told apart by counting them, and since they are equal it does
not matter in which order they come. So all replicas leave out the same rows, and less to keep only takes away.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from evenflow.exchange.shedding import ALL, class_of
from evenflow.kernels.hash import Hashes, hash_columns
from evenflow.plan.layout import Thin
from evenflow.plan.plan import Plan
from evenflow.stream.rows import Rows
from evenflow.stream.values import as_bits
from evenflow.stream.weight import weighed

_GOLDEN, _M1, _M2 = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)


@dataclass(frozen=True, slots=True)
class Thinned:
    """What was left out of an arc in an epoch. keep: by class, of ALL. partitions: the producer partitions that had rows for it. offered,
    dropped: int64 (partitions, classes), rows."""

    keep: tuple[int, ...]
    partitions: tuple[int, ...]
    offered: npt.NDArray[np.int64]
    dropped: npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Thinner:
    """Of one arc. columns: that tell rows apart."""

    arc: int
    thin: Thin
    columns: tuple[str, ...]

    @classmethod
    def of(cls, arc: int, thin: Thin, schema: pa.Schema) -> Self:
        """Columns of types that cannot be hashed do not tell rows apart."""
        return cls(arc, thin, tuple(field.name for field in schema if _can_be_hashed(field)))

    def thinned(self, rows: Rows, epoch: int, keep: tuple[int, ...]) -> tuple[Rows, Thinned]:
        """(the rows that go on, in their order; what was left out). Cost: a sort of their hashes."""
        of = class_of(self.thin.column, self.thin.classes, rows.batch)
        if len(keep) == 1:
            of = np.zeros_like(of)
        stays = self.hashes(rows.batch, rows.partition, epoch) < np.array(keep, np.uint64)[of]
        partitions = np.flatnonzero(np.bincount(rows.partition))
        place = np.searchsorted(partitions, rows.partition) * len(keep) + of
        shape = (partitions.size, len(keep))
        offered, gone = (
            np.bincount(place[which], minlength=partitions.size * len(keep)).astype(np.int64).reshape(shape)
            for which in (slice(None), ~stays)
        )
        told = Thinned(keep, tuple(partitions.tolist()), offered, gone)
        kept = rows if stays.all() else rows.take(np.flatnonzero(stays))
        if self.thin.weighs:
            kept = replace(kept, batch=weighed(kept.batch, of[stays], keep))
        return kept, told

    def hashes(self, batch: pa.RecordBatch, partition: npt.NDArray[np.int32], epoch: int) -> Hashes:
        """uint64 (n,), below 2^32: of these rows in an epoch. partition: int32 (n,), the producer partition of each."""
        # Of equal zeros, which of them goes on must not depend on which came first.
        of_rows = hash_columns(
            pa.RecordBatch.from_arrays([as_bits(batch.column(name)) for name in self.columns], list(self.columns)), self.columns
        )
        word = _mixed(of_rows + _scaled(self.arc + 1, _M1) + (partition.astype(np.uint64) + np.uint64(1)) * _M2)
        return _mixed(word + (_scaled(epoch, _M2) ^ _occurrence(word) * _GOLDEN)) >> np.uint64(32)


def _scaled(number: int, by: np.uint64) -> np.uint64:
    return np.uint64(number * int(by) % 2**64)


def keep_of(plan: Plan, arc: int) -> tuple[int, ...]:
    """By class, how much of ALL a plan keeps of an arc's rows; nothing if all go on."""
    keeps = plan.settings.keeps
    of = keeps[arc] if arc < len(keeps) else ()
    return tuple(min(ALL, max(0, round(share * ALL))) for share in of) if any(share < 1 for share in of) else ()


def _occurrence(word: Hashes) -> Hashes:
    """uint64 (n,): how many equal ones come before each."""
    order = np.argsort(word, kind="stable")
    sorted_ = word[order]
    starts = np.concatenate([[True], sorted_[1:] != sorted_[:-1]]) if word.size else np.zeros(0, np.bool_)
    if starts.all():
        return np.zeros_like(word)
    places = np.arange(word.size)
    found = np.empty_like(word)
    found[order] = (places - np.maximum.accumulate(np.where(starts, places, 0))).astype(np.uint64)
    return found


def _mixed(word: Hashes) -> Hashes:
    """The finaliser of SplitMix64."""
    word = (word ^ (word >> np.uint64(30))) * _M1
    word = (word ^ (word >> np.uint64(27))) * _M2
    return word ^ (word >> np.uint64(31))


def _can_be_hashed(field: pa.Field) -> bool:
    try:
        hash_columns(pa.RecordBatch.from_arrays([pa.array([], field.type)], [field.name]), (field.name,))
    except TypeError:
        return False
    return True


__all__ = ["Thinned", "Thinner", "keep_of"]
