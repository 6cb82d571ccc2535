"""What is asked of a world about rows that nobody can give again, and what it answers (see `keeping`); and how it is carried out.

Such rows are Arrow's own stream format. Nothing of an object is looked into before its digest is that of the journal.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pyarrow as pa

from evenflow.exchange.section import RowsObject
from evenflow.stream.digest import digest_of
from evenflow.stream.ipc import batch_from_bytes, batch_to_bytes


@dataclass(frozen=True, slots=True)
class StoreRows:
    """Bring rows that nobody gives again into the store, beside the loop, until it has them (J5). stored: without the digest."""

    segment: int
    partition: int
    stored: RowsObject
    batch: pa.RecordBatch


@dataclass(frozen=True, slots=True)
class ReadRows:
    """Read such rows, which are replayed."""

    segment: int
    partition: int
    stored: RowsObject


@dataclass(frozen=True, slots=True)
class RowsStored:
    """What `StoreRows` asked for is in the store, and will be found there (J5). stored: with the digest."""

    segment: int
    partition: int
    stored: RowsObject


@dataclass(frozen=True, slots=True)
class RowsRead:
    """What `ReadRows` asked for is here, and is what was written. batch: all of the object."""

    segment: int
    partition: int
    stored: RowsObject
    batch: pa.RecordBatch


@dataclass(frozen=True, slots=True)
class RowsUnread:
    """It cannot be read, or is not what was written."""

    segment: int
    partition: int
    stored: RowsObject
    why: str


# ---------------------------------------------------------------- beside the loop


def write_rows(order: StoreRows, put: Callable[[str, bytes], None]) -> RowsStored:
    """Carry out `StoreRows`, in any thread. put: brings an object into the store, or raises OSError."""
    data = batch_to_bytes(order.batch)
    stored = order.stored._replace(digest=digest_of(data))
    put(stored.name, data)
    return RowsStored(order.segment, order.partition, stored)


def read_rows(order: ReadRows, get: Callable[[str], bytes]) -> RowsRead | RowsUnread:
    """Carry out `ReadRows`, in any thread. get: an object's bytes, or OSError."""
    stored = order.stored
    try:
        data = get(stored.name)
    except OSError as error:
        return RowsUnread(order.segment, order.partition, stored, f"cannot be read: {type(error).__name__}: {error}")
    if digest_of(data) != stored.digest:
        return RowsUnread(order.segment, order.partition, stored, "is not what was written: it was altered or cut off")
    return RowsRead(order.segment, order.partition, stored, batch_from_bytes(data))
