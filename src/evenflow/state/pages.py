"""PagedTable: keyed rows of all the partitions that an operator hosts at one site (protocol S1).

One index and one array of rows serve all partitions, so a call costs the same for one partition as for a thousand. A row is a
cache line or a few: the key's identity and the operator's totals side by side. Pages of 256 rows belong to one partition;
capturing a partition marks its pages and returns, and a row is copied to an undo log the first time it is written afterwards.
What comes out never depends on slot numbers: captured rows are sorted by key.

Beside its words a row may have **objects**: immutable Python values in object columns (strings, tuples). They are captured by
reference, and logged with their row.

A partition comes and goes in bounded pieces, so that nobody who shares the table waits for the whole of it: see `installing` and `drop`.
"""

from __future__ import annotations

import weakref
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from evenflow.kernels import fold, table
from evenflow.kernels.columns import Words, frozen
from evenflow.kernels.hash import Hashes
from evenflow.kernels.table import CHECK, GUARD, HASH, HEADER, MARK, PAGE, row_width
from evenflow.state.arena import Arena
from evenflow.state.changes import TablePart, in_parts, pages_written
from evenflow.state.index_growth import SMALL, IndexGrowth
from evenflow.state.lineages import NOWHERE, Lineages, Point
from evenflow.state.page_snapshot import Ordinals, PageSnapshot, State, objects_of, open_rows
from evenflow.stream.arrays import Objects

NO_OPS: Final = np.empty((0, 4), np.int64)
NO_VALUES: Final = np.empty((0, 0), np.int64)
NO_NULLS: Final = np.empty((0, 0), np.uint8)
NO_EXTRA: Final = frozen(np.empty(0, np.int64))
RETIRED: Final = -2
"""Owner of a page whose rows are gone for everybody, but not out of the index yet."""
PIECE_PAGES: Final = 16
"""Pages that are taken over or given back in one piece: 4,096 rows, some 0.5 ms."""


@dataclass(slots=True)
class Touched:
    """What one call touched, valid until the next. Distinct rows ("groups") are in order of first appearance.

    slots: int64 (g,). rows: int64 (g,), the input row where each first appeared. new: bool (g,), it was inserted.
    ordinals: int64 (n,), the group of each input row. slot_of: int64 (n,), the slot of each input row.
    """

    slots: Ordinals
    rows: Ordinals
    new: npt.NDArray[np.bool_]
    ordinals: Ordinals
    slot_of: Ordinals


class PagedTable:
    """See the module. template: int64 (s,), the state words of a new row. objects: type of each object column. timed: see `objects_of`.

    `words` is int64 (slots, W), state from column HEADER on; `objects[i]` is an object array (slots,). Both may be read after a call at
    the slots it touched, and written there until the next call, a capture included. `object_log`: of logged rows, (slots, objects
    before), oldest first. row_bytes: of a row; objects count as 64 each. lineages: of partitions' rows.
    """

    def __init__(self, template: npt.NDArray[np.int64], objects: Sequence[pa.DataType] = (), timed: Collection[int] = ()) -> None:
        self.width, self._timed = row_width(template.size), frozenset(timed)
        self._template = np.zeros(self.width, np.int64)
        self._template[HEADER : HEADER + template.size] = template
        self.object_types, self.row_bytes = tuple(objects), 8 * self.width + 64 * len(objects)
        self.arena = Arena(self.width, 4 * PAGE)
        self.objects = [np.empty(4 * PAGE, object) for _ in objects]
        self._index: Hashes = np.zeros(1024, np.uint64)
        self._pages = np.full((4, 3), -1, np.int64)
        self._spare = np.zeros(4, np.int64)
        self._parts = np.zeros((0, 3), np.int64)
        self._counts = np.zeros(8, np.int64)
        self._log_arena = Arena(self.width + 1, 1)
        self.object_log: list[tuple[Ordinals, list[Objects]]] = []
        self._mark = 0
        self._epoch = 0
        self._open: list[weakref.ref[PageSnapshot | TablePart]] = []
        self.lineages = Lineages()
        self._laid: dict[int, Ordinals] = {}
        self._scratch = np.empty((4, 0), np.int64)
        self._fresh = np.empty(0, np.uint8)
        self._retired: list[tuple[int, Ordinals]] = []
        self._retired_rows = 0
        self._growth: IndexGrowth | None = None

    @property
    def words(self) -> npt.NDArray[np.int64]:
        return self.arena.words

    def look(self) -> npt.NDArray[np.int64]:
        """`words` for another thread."""
        return self.arena.look()

    def log(self) -> tuple[npt.NDArray[np.int64], int]:
        """The undo log for another thread, and how many of its rows count."""
        log = self._log_arena.look()
        return log, min(int(self._counts[table.LOGGED]), log.shape[0])

    def logged(self) -> tuple[int, int]:
        """Lengths of the undo log and of `object_log`."""
        return int(self._counts[table.LOGGED]), len(self.object_log)

    @property
    def count(self) -> int:
        """Rows held."""
        return int(self._counts[table.USED]) - self._retired_rows

    def count_of(self, partition: int) -> int:
        """Rows held by one partition."""
        return int(self._parts[partition, table.LIVE]) if partition < self._parts.shape[0] else 0

    def fold(
        self,
        partition: npt.NDArray[np.int32],
        hashes: Hashes,
        checks: Hashes,
        *,
        epoch: int,
        extra: Words = NO_EXTRA,
        ops: Words = NO_OPS,
        values: Words = NO_VALUES,
        nulls: npt.NDArray[np.uint8] = NO_NULLS,
    ) -> Touched:
        """Find or insert a row for each of n input rows and fold their values into it (see `kernels.fold`).

        partition: int32 (n,). hashes, checks: uint64 (n,). extra: int64 (n,) or empty. Cost: O(n), whatever the table's size.
        """
        self._sweep()
        n = hashes.size
        if n:
            self._know(int(partition.max()))
            if self._retired:
                self._give_back(partition)
        self._epoch = max(self._epoch, epoch)
        self._make_scratch(n)
        slot_of, ordinals, group_slot, group_row = self._scratch[:, :n]
        new = self._fresh[:n]
        self._counts[table.GROUPS] = 0
        logged = int(self._counts[table.LOGGED])
        inputs: tuple[Any, ...] = (frozen(hashes), frozen(checks), frozen(extra), frozen(partition))
        folding: tuple[Any, ...] = (ops, frozen(values), frozen(nulls), slot_of, ordinals, group_slot, group_row, new)
        row = 0
        while True:
            call: Any = fold.fold_rows
            row = call(
                *inputs, row, self._mark, epoch, self._index, self.arena.words, self._pages, self._parts, self._spare,
                self._counts, self._log_arena.words, self._template, *folding,
            )  # fmt: skip
            if row >= n:
                break
            self._make_room()
        self._log_objects(logged)
        groups = int(self._counts[table.GROUPS])
        self._mark += groups
        touched = Touched(group_slot[:groups], group_row[:groups], new[:groups].view(np.bool_), ordinals, slot_of)
        if self._growth is not None:
            self._growth.add(touched.slots[touched.new], self.arena.words)
        return touched

    def find(self, partition: int, hashes: Hashes, checks: Hashes, extra: Words = NO_EXTRA) -> Touched:
        """Find or insert rows of one partition."""
        return self.fold(np.full(hashes.size, partition, np.int32), hashes, checks, epoch=self._epoch, extra=extra)

    def identity_of(self, slots: Ordinals) -> tuple[Hashes, Hashes]:
        """uint64 (n,) twice: the hash and the check of the keys of rows."""
        words = self.arena.words
        return words[slots, HASH].view(np.uint64), words[slots, CHECK].view(np.uint64)

    def seek(self, hashes: Hashes, checks: Hashes, extra: Words) -> Ordinals:
        """int64 (n,): the slots of rows by identity, -1 where there is none. Inserts and touches nothing."""
        slots = table.seek_rows(frozen(hashes), frozen(checks), frozen(extra), self._index, self.arena.words)
        if self._retired:
            slots[self.owner_of(slots) < 0] = -1  # The page of -1 is the last one, whose owner does not matter.
        return slots

    def held(self, slots: Ordinals) -> npt.NDArray[np.bool_]:
        """Which slots hold a row."""
        found: npt.NDArray[np.bool_] = self.arena.words[slots, MARK] > 0
        return found & (self.owner_of(slots) >= 0) if self._retired else found

    def remove(self, slots: Ordinals, *, epoch: int) -> None:
        """Free distinct rows. Their slots are taken again by the same partition."""
        self._sweep()
        if self._open and self._counts[table.LOGGED] + slots.size > self._log_arena.words.shape[0]:
            self._grow_log(slots.size)
        logged = int(self._counts[table.LOGGED])
        if self._growth is not None:
            self._growth.remove(slots, self.arena.words)
        table.remove_rows(
            np.ascontiguousarray(slots), epoch, self._index, self.arena.words, self._pages, self._parts, self._counts,
            self._log_arena.words,
        )  # fmt: skip
        self._log_objects(logged)
        for column in self.objects:
            column[slots] = None

    def clear(self) -> None:
        """Forget everything, keeping the memory. Not while a snapshot is open."""
        top = int(self._counts[table.TOP])
        self._index[:] = 0
        self.arena.words[: top * PAGE, MARK] = 0
        self._pages[:top] = -1
        self._parts[:, :2] = -1
        self._parts[:, table.LIVE] = 0
        self._counts[:] = 0
        self._mark = self._retired_rows = 0
        self._retired, self._growth, self.lineages, self._laid = [], None, Lineages(), {}

    def pages_of(self, partition: int) -> Ordinals:
        """Numbers of the partition's pages, ascending."""
        return np.flatnonzero(self._pages[: self._counts[table.TOP], table.OWNER] == partition)

    def owner_of(self, slots: Ordinals) -> npt.NDArray[np.int32]:
        """int32: the partition of each slot, -1 where its page is free."""
        return np.asarray(self._pages[slots // PAGE, table.OWNER], np.int32)

    def slots_of(self, partition: int) -> Ordinals:
        """int64: the slots that hold a row of the partition, ascending."""
        slots = (self.pages_of(partition)[:, None] * PAGE + np.arange(PAGE)).reshape(-1)
        return np.asarray(slots[self.arena.words[slots, MARK] > 0])

    def every_slot(self) -> Ordinals:
        """int64: the slots that hold a row, ascending. Cost: O(pages)."""
        top = int(self._counts[table.TOP]) * PAGE
        slots = np.flatnonzero(self.arena.words[:top, MARK] > 0)
        return slots[self.owner_of(slots) >= 0] if self._retired else slots

    def capture(self, partition: int) -> PageSnapshot | None:
        """The partition as of now, or None if it has no row. Copies nothing."""
        self._sweep()
        if self.count_of(partition) == 0:
            return None
        pages = self.pages_of(partition)
        self._guard(pages)
        snapshot = PageSnapshot(self, partition, pages, self._mark)
        self._open.append(weakref.ref(snapshot))
        return snapshot

    def capture_changes(self, number: int, epoch: int, partitions: Sequence[int], bases: Collection[int]) -> list[TablePart]:
        """What checkpoint `number`, of the end of `epoch`, takes of these partitions: all rows of those in `bases` and of those without a
        lineage, of the others what was written since. One pass, which copies nothing: cost O(pages)."""
        self._sweep()
        since = {p: NOWHERE if p in bases else self.lineages.since.get(p, NOWHERE) for p in partitions}
        pages, owners = pages_written(self._pages[: self._counts[table.TOP], table.WRITTEN :], since)
        self._guard(pages)
        most = {p: min(self.count_of(p), self._mark - point.mark) for p, point in since.items()}
        laid = {p: pages for p, pages in self.lineages.laid.items() if p in since and since[p] != NOWHERE}
        parts = in_parts(self, since, pages, owners, most, self._mark, laid)
        self._open += [weakref.ref(part) for part in parts]
        self.lineages.capture(number, partitions, Point(epoch, self._mark))
        return parts

    def _guard(self, pages: Ordinals) -> None:
        """Rows in these pages are logged before they are written for the first time from now on."""
        self._pages[pages, GUARD] = self._mark
        if self._log_arena.words.shape[0] == 1:
            self._grow_log(4 * PAGE)

    def install(self, partition: int, state: State) -> Ordinals:
        """Take over a captured partition; returns the slots of its rows. Raises AssertionError if the partition is here.

        Cost: O(its rows).
        """
        return np.concatenate([NO_EXTRA, *self.installing(partition, state)])

    def installing(self, partition: int, state: State) -> Iterator[Ordinals]:
        """`install` in bounded pieces, between which the table may be used for other partitions: the slots of each piece's rows.

        First what it takes to make room is done, which yields empty arrays.
        """
        rows, batch = open_rows(state, self.width, self.object_types)
        while self.give_back():
            yield NO_EXTRA
        self._make_free(partition)
        for _ in self.growing(len(rows)):
            yield NO_EXTRA
        step, laid = PIECE_PAGES * PAGE, [NO_EXTRA]
        for start in range(0, len(rows), step):
            some = np.arange(start, min(start + step, len(rows)))
            slots = self._put(partition, rows, some, self._received(None if batch is None else batch.slice(start, some.size)))
            laid.append(slots[::PAGE] // PAGE)
            yield slots
        self._laid[partition] = np.concatenate(laid)

    def restored(self, epoch: int, partitions: Collection[int]) -> set[int]:
        """These partitions were installed as a checkpoint of the end of `epoch` has them, and nobody has written since. Returns which of
        them the next one may go on from."""
        laid = {partition: self._laid.pop(partition) for partition in partitions if partition in self._laid}
        self.lineages.restore(Point(epoch, self._mark), laid)
        return set(laid)

    def _received(self, batch: pa.RecordBatch | None) -> list[Objects]:
        """Objects that have come as bytes, as they are kept."""
        return objects_of(batch, self._timed)

    def absorb(self, partition: int, other: PagedTable) -> Ordinals:
        """Take over a partition of another table of the same rows, in whatever order they are there; as `install` for the rest.

        Some times cheaper: bytes that are equal for equal states are sorted.
        """
        rows = other.slots_of(partition)
        self._make_free(partition)
        return self._put(partition, other.words, rows, [column[rows] for column in other.objects])

    def _make_free(self, partition: int) -> None:
        """Nothing may be left of a partition that is to come, nor of others that were dropped: with other ranges they had the same keys."""
        if self.count_of(partition):
            raise AssertionError(f"partition {partition} is installed already")
        self.drop(partition)  # Pages whose rows are all removed may still be its.
        while self.give_back():
            pass
        self._know(partition)

    def _put(self, partition: int, words: npt.NDArray[np.int64], rows: Ordinals, objects: Sequence[Objects]) -> Ordinals:
        """Put rows of `words`, at these places, and their objects into fresh pages of the partition. Returns their slots.

        Only the last piece of a partition may be other than whole pages.
        """
        self.reserve(len(rows))
        slots = np.empty(len(rows), np.int64)
        self._mark += 1
        table.install_rows(
            words, rows, partition, self._mark, self._epoch, self._index, self.arena.words, self._pages, self._parts, self._spare,
            self._counts, slots,
        )  # fmt: skip
        for column, values in zip(self.objects, objects, strict=True):
            column[slots] = values
        if self._growth is not None:
            self._growth.add(slots, self.arena.words)
        return slots

    def drop(self, partition: int) -> None:
        """Forget a partition. Its open snapshots are read out first. Cost: O(its pages).

        Its memory is given back some pages at a time, by `give_back`, by the calls that follow, and before any partition can come.
        """
        self._sweep()
        pages = self.pages_of(partition)
        for reference in self._open:
            snapshot = reference()
            if snapshot is not None and snapshot.covers(partition):
                snapshot.read_out(partition)
        self.lineages.forget(partition)
        self._laid.pop(partition, None)
        if pages.size:
            self._pages[pages, table.OWNER] = RETIRED
            self._retired.append((partition, pages))
            self._retired_rows += self.count_of(partition)
            self._parts[partition] = (-1, -1, 0)
            if pages.size <= PIECE_PAGES:
                self._give_back(np.array([partition]))

    def give_back(self) -> bool:
        """Give back some memory of dropped partitions. Whether there is more of it."""
        if self._retired:
            self._give_back(NO_EXTRA)
        return bool(self._retired)

    def _give_back(self, coming: npt.NDArray[Any]) -> None:
        """Some pages of dropped partitions, and all of those that are about to be here again: theirs have the same keys."""
        kept: list[tuple[int, Ordinals]] = []
        budget = PIECE_PAGES
        for partition, pages in self._retired:
            count = pages.size if (coming == partition).any() else min(budget, pages.size)
            budget = max(0, budget - count)
            if count:
                self._release(pages[:count])
            if count < pages.size:
                kept.append((partition, pages[count:]))
        self._retired = kept

    def _release(self, pages: Ordinals) -> None:
        slots = (pages[:, None] * PAGE + np.arange(PAGE)).reshape(-1)
        for column in self.objects:
            column[slots] = None
        if self._growth is not None:
            self._growth.remove(slots, self.arena.words)
        before = int(self._counts[table.USED])
        table.release_pages(pages, self._index, self.arena.words, self._pages, self._spare, self._counts)
        self._retired_rows -= before - int(self._counts[table.USED])
        self.arena.give_back(pages)

    def state_bytes(self) -> int:
        """Bytes of the rows in use, the index and the undo log; objects count as 64 bytes each."""
        pages = int(self._counts[table.TOP] - self._counts[table.SPARE]) - sum(gone.size for _, gone in self._retired)
        used = pages * PAGE * self.width * 8
        log = int(self._counts[table.LOGGED]) * 8 * (self.width + 1)
        return used + self._index.nbytes + log + 64 * self.count * len(self.objects)

    def partition_bytes(self, partitions: Ordinals) -> Ordinals:
        """int64 (p,): bytes of the rows that each partition holds. For any thread."""
        parts = self._parts
        held = np.zeros(partitions.size, np.int64)
        known = partitions < parts.shape[0]
        held[known] = parts[partitions[known], table.LIVE]
        return held * self.row_bytes

    def _know(self, partition: int) -> None:
        if partition >= self._parts.shape[0]:
            more = np.full((max(16, partition + 1, 2 * self._parts.shape[0]), 3), -1, np.int64)
            more[:, table.LIVE] = 0
            more[: self._parts.shape[0]] = self._parts
            self._parts = more

    def _make_scratch(self, n: int) -> None:
        if self._fresh.size < n:
            self._scratch = np.empty((4, n + n // 4 + 64), np.int64)
            self._fresh = np.empty(n + n // 4 + 64, np.uint8)

    def _make_room(self) -> None:
        why = int(self._counts[table.WHY])
        if why == table.INDEX_FULL:
            self._grow_index(2 * self._index.size)
        elif why == table.PAGES_FULL:
            self._grow_pages(2 * self.arena.words.shape[0])
        else:
            self._grow_log(self._log_arena.words.shape[0])

    def reserve(self, rows: int) -> None:
        """Make room for this many more rows in pages of their own."""
        size = self._index_size(rows)
        if size > self._index.size:
            self._grow_index(size)
        slots, pages = self.arena.words.shape[0], -(-rows // PAGE) - int(self._counts[table.SPARE])
        while int(self._counts[table.TOP]) + pages > slots // PAGE:
            slots *= 2
        if slots > self.arena.words.shape[0]:
            self._grow_pages(slots)

    def _index_size(self, rows: int) -> int:
        """Of an index with room for this many more rows."""
        size, wanted = self._index.size, int(self._counts[table.USED]) + rows
        while wanted > size // 8 * 5:
            size *= 2
        return size

    def growing(self, rows: int) -> Iterator[None]:
        """Make the index as large as this many more rows need it, a piece at a time; not a small one, which takes no time."""
        while (size := self._index_size(rows)) > max(self._index.size, SMALL):
            growth = self._growth = IndexGrowth(size)
            try:
                while self._growth is growth:  # Else somebody could not wait for it.
                    if growth.step(self.arena.words, int(self._counts[table.TOP]) * PAGE):
                        self._index = growth.index
                        break
                    yield
            finally:
                if self._growth is growth:
                    self._growth = None

    def _grow_index(self, size: int) -> None:
        larger = np.zeros(size, np.uint64)
        table.rehash(self._index, larger)
        self._index, self._growth = larger, None

    def _grow_pages(self, slots: int) -> None:
        self.arena.grow(slots)
        self._pages = np.concatenate([self._pages, np.full((slots // PAGE - len(self._pages), 3), -1, np.int64)])
        self._spare = np.concatenate([self._spare, np.zeros(slots // PAGE - self._spare.size, np.int64)])
        self.objects = [np.concatenate([o, np.empty(slots - o.size, object)]) for o in self.objects]

    def _grow_log(self, more: int) -> None:
        rows = self._log_arena.words.shape[0]
        self._log_arena.grow(rows + max(more, rows))

    def _log_objects(self, since: int) -> None:
        """Keep the objects of the rows that were logged since then. Comes before anybody writes to them."""
        logged = int(self._counts[table.LOGGED])
        if self.objects and logged > since:
            slots = self._log_arena.words[since:logged, 0].copy()
            self.object_log.append((slots, [column[slots] for column in self.objects]))

    def _sweep(self) -> None:
        """Forget snapshots that are read or gone, so that writes are no longer logged for them."""
        if not self._open:
            return
        alive = [reference for reference in self._open if (snapshot := reference()) is not None and not snapshot.is_read]
        if len(alive) == len(self._open):
            return
        self._open = alive
        self._pages[:, table.GUARD] = -1
        for reference in alive:
            if (snapshot := reference()) is not None:
                pages = snapshot.pages
                self._pages[pages, table.GUARD] = np.maximum(self._pages[pages, table.GUARD], snapshot.mark)
        if not alive:
            self._counts[table.LOGGED] = 0
            self._log_arena = Arena(self.width + 1, 1)
            self.object_log = []
