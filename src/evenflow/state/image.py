"""An image: the state of some partitions as of a capture at another site, ready to be given back (availability.md, P2, P3).

A capture comes as Arrow: of rows of tables those that have changed since the capture before, by slot, and of each page that was written
which slots are in use; of held rows which of before are still there, and the new ones; of any other state all of it. Each is pasted into
what is here already, so an image is as large as the state and a chain of changes never grows. It has no index and no order: a row lies at
the slot that it has in its table. Only who begins again from it sorts it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NoReturn

import numpy as np
import pyarrow as pa

from evenflow.errors import TransferCorrupt
from evenflow.kernels.table import MARK, PAGE
from evenflow.state.held_objects import FORMS, Held, held_in, held_state
from evenflow.state.objects import METADATA, Written, table_state, touched, whole_state, word_places
from evenflow.state.page_snapshot import State, encode, objects_of, sorted_rows
from evenflow.stream.arrays import Int64s
from evenflow.stream.digest import digest_of
from evenflow.stream.ipc import bytes_of

FRAMES: Final = -1
"""The step of what is no state but frames, in a capture and in the state of a copy."""
ALONE: Final = pa.ipc.IpcWriteOptions(compression="lz4", use_threads=False)
READ_ALONE: Final = pa.ipc.IpcReadOptions(use_threads=False)
"""To wake threads up costs more than a capture's columns do, and the loop beside it has use for the cores."""
WRONG: Final = (pa.ArrowException, ValueError, KeyError, TypeError, IndexError)


def to_arrow_file(table: pa.Table, said: Mapping[str, Any], rest: Callable[[], None] = lambda: None) -> Written:
    """Rows of a capture as an Arrow stream, compressed with LZ4: a third of what Parquet costs. said, rest: as `objects.to_file`."""
    table = table.replace_schema_metadata({METADATA: json.dumps(said, sort_keys=True).encode()})
    out = pa.BufferOutputStream()
    with pa.ipc.new_stream(out, table.schema, options=ALONE) as writer:
        for batch in table.to_batches():
            writer.write_batch(batch)
            rest()
    data = bytes_of(out.getvalue(), rest)
    return Written(data, table.num_rows, digest_of(data))


@dataclass(frozen=True, slots=True)
class Rows:
    """Rows of tables, of one partition or more. slots: int64 (n,). words: int64 (n, width), each with a mark. objects: (n,) a column."""

    slots: Int64s
    words: Int64s
    objects: tuple[np.ndarray[Any, Any], ...]

    @classmethod
    def of(cls, table: pa.Table, width: int, types: int) -> Rows:
        """What a capture's object has; all of it at once, since a column costs the same for a few rows as for thousands."""
        words = np.zeros((table.num_rows, width), np.int64)
        words[:, MARK] = 1
        for name, at in word_places(width):
            words[:, at] = table.column(name).to_numpy()
        names = [f"o{at}" for at in range(types)]
        batch = pa.RecordBatch.from_arrays([_one(table.column(name)) for name in names], [str(at) for at in range(types)])
        return cls(table.column("slot").to_numpy().astype(np.int64), words, tuple(objects_of(batch)) if types else ())

    def slice(self, at: int, count: int) -> Rows:
        here = slice(at, at + count)
        return Rows(self.slots[here], self.words[here], tuple(column[here] for column in self.objects))


class TableRows:
    """One partition of a table. words: int64 (pages, PAGE, width), those of a slot that is not in use have no mark. objects: a column each,
    (pages, PAGE). _pages: of the table, ascending, that are here, and where each is, `_place`. _used: how many."""

    def __init__(self, width: int, types: Sequence[pa.DataType]) -> None:
        self.types = tuple(types)
        self.words = np.zeros((0, PAGE, width), np.int64)
        self.objects = [np.zeros((0, PAGE), object) for _ in types]
        self._pages = self._place = np.zeros(0, np.int64)
        self._used = 0

    @property
    def rows(self) -> int:
        return int((self.words[: self._used, :, MARK] > 0).sum())

    @property
    def image_bytes(self) -> int:
        return self.words.nbytes + sum(8 * column.size for column in self.objects)

    def paste(self, rows: Rows, pages: Int64s, present: np.ndarray[Any, Any]) -> None:
        """rows: that are new or have changed. pages, present: bool (p, PAGE), of those written, the slots in use."""
        self._admit(np.unique(np.concatenate([pages, rows.slots // PAGE])))
        here = self._at(pages)
        self.words[here, :, MARK] = np.where(present, self.words[here, :, MARK], 0)
        place, within = self._at(rows.slots // PAGE), rows.slots % PAGE
        self.words[place, within] = rows.words
        for column, values in zip(self.objects, rows.objects, strict=True):
            column[place, within] = values
        if ((self.words[here, :, MARK] > 0) != present).any():
            raise ValueError("slots that are in use have no row in the image, or the other way round")

    def state(self) -> State | None:
        """As the table itself has written it; None if there is no row."""
        flat = self.words[: self._used].reshape(-1, self.words.shape[2])
        order = sorted_rows(flat)
        if not order.size:
            return None
        return encode(flat.take(order, axis=0), [column[: self._used].reshape(-1)[order] for column in self.objects], self.types)

    def _at(self, pages: Int64s) -> Int64s:
        return self._place[np.searchsorted(self._pages, pages)] if pages.size else pages

    def _admit(self, pages: Int64s) -> None:
        """Room for pages that are not here yet."""
        new = np.setdiff1d(pages, self._pages, assume_unique=True)
        if not new.size:
            return
        used = self._used + new.size
        if used > len(self.words):
            room = max(used, 2 * len(self.words))
            self.words, self.objects = _grown(self.words, room), [_grown(column, room) for column in self.objects]
        place = np.concatenate([self._place, np.arange(self._used, used)])
        together = np.concatenate([self._pages, new])
        order = np.argsort(together)
        self._pages, self._place, self._used = together[order], place[order], used


def _grown(array: np.ndarray[Any, Any], room: int) -> np.ndarray[Any, Any]:
    found = np.zeros((room, *array.shape[1:]), array.dtype)
    found[: len(array)] = array
    return found


def _one(column: pa.ChunkedArray) -> pa.Array:
    return column.combine_chunks() if column.num_chunks != 1 else column.chunk(0)


class HeldRows:
    """One partition's held rows. counts: by side. data: as the operator has made them bytes."""

    def __init__(self, counts: tuple[int, ...], data: bytes) -> None:
        self.counts, self.data = counts, data

    @property
    def image_bytes(self) -> int:
        return len(self.data)

    def state(self) -> State | None:
        return self.data or None


class WholeState:
    """Any other state of a partition."""

    def __init__(self, data: State) -> None:
        self.data = data

    @property
    def image_bytes(self) -> int:
        return len(self.data)

    def state(self) -> State | None:
        return self.data


Pasted = TableRows | HeldRows | WholeState


class Image:
    """epoch: as of the end of which; -1: nothing was pasted yet. image_bytes: about how much memory it takes."""

    def __init__(self) -> None:
        self.epoch = -1
        self._parts: dict[tuple[int, int], Pasted] = {}

    @property
    def image_bytes(self) -> int:
        return sum(part.image_bytes for part in self._parts.values())

    def paste(self, epoch: int, since: int, objects: Sequence[bytes | memoryview], rest: Callable[[], None] = lambda: None) -> None:
        """One capture, of the end of `epoch`. since: what it has to be added to; -1: nothing. rest: is called now and then, to give way.
        Raises TransferCorrupt where it does not fit: where it is of another time than it would have to be, the image stays what it is;
        else that is of no use any more, until a whole capture comes."""
        if since >= 0 and since != self.epoch:
            raise TransferCorrupt(f"a capture has changes since epoch {since}, and the image is of epoch {self.epoch}")
        if epoch < self.epoch:  # Another one of the same epoch may come behind it: what follows is of that one's tables.
            raise TransferCorrupt(f"a capture is of epoch {epoch}, and the image of epoch {self.epoch}: frames before that are gone")
        if since < 0:
            self._parts = {}
        self._parts = {key: part for key, part in self._parts.items() if not isinstance(part, WholeState)}  # All of these come each time.
        try:
            for data in objects:
                with pa.ipc.open_stream(pa.py_buffer(data), options=READ_ALONE) as reader:
                    table = reader.read_all()
                self._paste(table, json.loads(table.schema.metadata[METADATA]), rest)
        except WRONG as error:
            self.forget()
            raise TransferCorrupt(f"a capture cannot be pasted: {type(error).__name__}: {error}") from error
        self.epoch = epoch

    def forget(self) -> None:
        """It is of no use any more."""
        self.epoch, self._parts = -1, {}

    def states(self) -> list[tuple[int, int, bytes]]:
        """(partition, step, state), ascending."""
        found = [(key, part.state()) for key, part in sorted(self._parts.items())]
        return [(partition, step, bytes(state)) for (partition, step), state in found if state is not None]

    def _paste(self, table: pa.Table, said: Mapping[str, Any], rest: Callable[[], None]) -> None:
        step, form, at = said["step"], said["form"], 0
        written = touched(said) if form == "delta" else {}
        held = held_in(said) if form in FORMS else {}
        types = [table.schema.field(name).type for name in table.schema.names if name.startswith("o")]
        changed = Rows.of(table, said["width"], len(types)) if form in ("rows", "delta") else None
        for partition, count in said["partitions"]:
            key = partition, step
            if changed is not None:
                since, pages, present = written.get(partition, (-1, np.zeros(0, np.int64), np.zeros((0, PAGE), np.bool_)))
                if since < 0:
                    self._parts[key] = TableRows(said["width"], types)
                    pages, present = pages[:0], present[:0]
                self._table(key).paste(changed.slice(at, count), pages, present)
            elif form in FORMS:
                self._parts[key] = self._held(self._parts.get(key), held[partition], table.slice(at, count))
            else:
                rows = table.slice(at, count)
                self._parts[key] = WholeState(whole_state(rows, said) if form == "state" else table_state(rows, said))
            at += count
            rest()

    def _table(self, key: tuple[int, int]) -> TableRows:
        part = self._parts.get(key)
        if not isinstance(part, TableRows):
            _refuse(f"partition {key[0]}, step {key[1]} has changes of a table, and none is here")
        return part

    def _held(self, part: Pasted | None, held: Held, rows: pa.Table) -> HeldRows:
        if held.since < 0:
            return HeldRows(held.counts, bytes(rows.column("state")[0].as_py()))
        if not isinstance(part, HeldRows):
            _refuse("there are changes of held rows, and none are here")
        before = Held(-1, sum(part.counts), part.counts), pa.table({"state": pa.array([part.data], pa.large_binary())})
        return HeldRows(held.counts, held_state([before, (held, rows)]) or b"")


def _refuse(why: str) -> NoReturn:
    raise ValueError(why)
