"""Held rows as objects of a checkpoint, and back: a row of bytes per partition, as of any state that is no table.

    partition, state[, kept, new]

Of form `held` a partition has all its rows, as the operator has made them bytes; of form `changes` those that have come or changed since an
object before, or all if it says so. kept has a bit for each row of before: it is still there. new has a bit for each row of now: it is in
this object. Where rows have two sides (those of a join) the bits of the left come first, each side's from a whole byte on.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
import pyarrow as pa

from evenflow.state.held_changes import HeldPartition, packed, unpacked
from evenflow.state.held_rows import picked
from evenflow.state.objects import FORMAT, Make, Origin, Rest, Written, as_column, to_file
from evenflow.stream.arrays import Bools, Int64s
from evenflow.stream.ipc import batch_from_bytes, batch_to_bytes

FORMS: Final = ("held", "changes")


def held_object(origin: Origin, found: Sequence[HeldPartition], sides: int, rest: Rest = lambda: None, make: Make = to_file) -> Written:
    """These partitions, at least one, as an object: equal bytes for equal states. sides: that each has."""
    changes = any(each.since >= 0 for each in found)
    columns: dict[str, pa.Array | pa.ChunkedArray] = {
        "partition": pa.array([each.partition for each in found], pa.int32()),
        "state": as_column([each.state for each in found]),
    }
    said = {
        "format": FORMAT, "form": "changes" if changes else "held", "segment": origin.segment, "step": origin.step, "box": origin.box,
        "epoch": origin.epoch, "partitions": [[each.partition, 1] for each in found], "sides": sides,
        "rows": [each.rows for each in found], "counts": [each.counts for each in found],
    }  # fmt: skip
    if changes:
        columns["kept"] = pa.array([_bytes(each.kept) for each in found], pa.large_binary())
        columns["new"] = pa.array([_bytes(each.new) for each in found], pa.large_binary())
        said["since"] = [each.since for each in found]
    made = make(pa.table(columns), said, rest)
    rows, since = {each.partition: each.rows for each in found}, {each.partition: each.since for each in found}
    return replace(made, rows=sum(rows.values()), of=rows, since=since, held=sum(sum(each.counts) for each in found))


@dataclass(frozen=True, slots=True)
class Held:
    """What an object has of one partition. since: -1 if it is all. rows: that are in it. counts: that the partition has, by side."""

    since: int
    rows: int
    counts: tuple[int, ...]


def held_in(said: Mapping[str, Any]) -> dict[int, Held]:
    """By partition: what an object says of itself."""
    partitions = [partition for partition, _ in said["partitions"]]
    since = said.get("since", [-1] * len(partitions))
    found = {}
    for partition, epoch, rows, counts in zip(partitions, since, said["rows"], said["counts"], strict=True):
        if len(counts) != said["sides"]:
            raise ValueError(f"it has {said['sides']} sides, and counts {len(counts)}")
        found[partition] = Held(epoch, rows, tuple(counts))
    return found


def held_state(links: Sequence[tuple[Held, pa.Table]]) -> bytes | None:
    """What the links of one partition add up to, the first of which has all its rows; None if no row is left. With each its row. Raises
    what Arrow and Python raise if they do not fit."""
    sides = len(links[0][0].counts)
    batches: list[list[pa.RecordBatch]] = [[] for _ in range(sides)]
    order: list[Int64s] = [np.zeros(0, np.int64) for _ in range(sides)]
    whole = b""
    for held, table in links:
        if len(held.counts) != sides:
            raise ValueError(f"its rows have {len(held.counts)} sides, and those before {sides}")
        whole = bytes(table.column("state")[0].as_py())
        came = [None if not each else batch_from_bytes(each) for each in unpacked(whole, sides)]
        if sum(0 if each is None else each.num_rows for each in came) != held.rows:
            raise ValueError(f"it says that it has {held.rows} rows, and has others")
        before = [each.size for each in order]
        kept = [np.zeros(each, np.bool_) for each in before] if held.since < 0 else _bits(table, "kept", before)
        new = [np.ones(each, np.bool_) for each in held.counts] if held.since < 0 else _bits(table, "new", held.counts)
        for at, batch in enumerate(came):
            order[at] = _merged(order[at], kept[at], new[at], sum(each.num_rows for each in batches[at]), batch)
            if batch is not None:
                batches[at].append(batch)
    if len(links) == 1:
        return whole or None
    return packed([batch_to_bytes(picked(given, at)) if at.size else b"" for given, at in zip(batches, order, strict=True)]) or None


def _merged(before: Int64s, kept: Bools, new: Bools, start: int, batch: pa.RecordBatch | None) -> Int64s:
    """Which rows there are now: those of before that were kept, and those of the batch, the first of which has number `start`."""
    stay, come = before[kept], 0 if batch is None else batch.num_rows
    if come != new.sum() or stay.size != new.size - come:
        raise ValueError(f"of {new.size} rows {come} are new, and {stay.size} of before are kept")
    now = np.empty(new.size, np.int64)
    now[new] = np.arange(start, start + come)
    now[~new] = stay
    return now


def _bytes(sides: Sequence[Bools]) -> bytes:
    return b"".join(np.packbits(bits).tobytes() for bits in sides)


def _bits(table: pa.Table, name: str, counts: Sequence[int]) -> list[Bools]:
    """The bits of each side, of which there are so many."""
    data = np.frombuffer(table.column(name)[0].as_py(), np.uint8)
    sizes = [-(-count // 8) for count in counts]
    if data.size != sum(sizes):
        raise ValueError(f"{name} has {data.size} bytes for {list(counts)} rows")
    ends = np.cumsum([0, *sizes])
    return [np.unpackbits(data[a:b], count=n).astype(np.bool_) for a, b, n in zip(ends[:-1], ends[1:], counts, strict=True)]
