"""The paged table's index and rows (protocol S1): find or insert, remove, move.

A row is W int64 words: four of header, then the operator's. Header: HASH and CHECK, the key's identity; MARK, when it was last
written, 0 in a free slot; EXTRA, a window's start, 0 elsewhere (in a free slot: the next free one). A page is 256 rows of one
partition. The index is one array of uint64 for all partitions, open addressing with linear probing: the low half of the key's
index hash in the high half of the entry, slot + 1 in the low half, 0 when empty. So growing the index and removing from it
never look at rows, and a probe looks at a row only if 32 bits of hash agree.

Rows written after a snapshot was opened go to an undo log first: a row whose mark is not younger than its page's GUARD
(docs/decisions/0004-pages.md).
"""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

from evenflow.kernels.hash import Hashes, mix64
from evenflow.kernels.jit import Word, inlined, kernel, prefetch

Words2 = npt.NDArray[np.int64]

HASH, CHECK, MARK, EXTRA, HEADER = 0, 1, 2, 3, 4
"""Columns of a row; HEADER is the operator's first."""

AHEAD: Final = 16
"""Rows between asking for a cache line and reading it."""

PAGE: Final = 256
"""Slots of a page."""

GUARD, WRITTEN, OWNER = 0, 1, 2
"""Columns of the page table: newest mark of an open snapshot or -1; epoch of the last write; partition or -1."""

FREE, NEXT, LIVE = 0, 1, 2
"""Columns of the partition table: head of the free list or -1; next slot of the open page or -1; rows held."""

USED, TOP, SPARE, LOGGED, GROUPS, WHY = 0, 1, 2, 3, 4, 5
"""Counters: index entries; pages ever used; spare pages; rows in the undo log; distinct rows of this call; why it stopped."""

INDEX_FULL, PAGES_FULL, LOG_FULL = 1, 2, 3

_P1 = np.uint64(0x9E3779B185EBCA87)
_LOW = np.uint64(0xFFFFFFFF)
_HALF = np.uint64(32)
_ONE = np.uint64(1)


@inlined
def index_hash(hashed: Word, extra: Word) -> Word:
    """Where a row belongs in the index. Rows of one key in different windows go to different places."""
    if extra == 0:
        return hashed
    return mix64(hashed + np.uint64(extra) * _P1)


@inlined
def take_slot(owner: Word, words: Words2, pages: Words2, parts: Words2, spare: Words2, counts: Words2) -> Word:
    """A free slot of the partition, or -1 if there is no page left."""
    slot = parts[owner, FREE]
    if slot >= 0:
        parts[owner, FREE] = words[slot, EXTRA] - 1
        parts[owner, LIVE] += 1
        return slot
    slot = parts[owner, NEXT]
    if slot < 0:
        if counts[SPARE] > 0:
            counts[SPARE] -= 1
            page = spare[counts[SPARE]]
        elif (counts[TOP] + 1) * PAGE <= words.shape[0]:
            page = counts[TOP]
            counts[TOP] += 1
        else:
            return np.int64(-1)
        pages[page, GUARD] = -1
        pages[page, OWNER] = owner
        slot = page * PAGE
    following = slot + 1
    parts[owner, NEXT] = following if following % PAGE else -1
    parts[owner, LIVE] += 1
    return slot


@inlined
def log_row(slot: Word, words: Words2, log: Words2, counts: Words2) -> None:
    """Append the row as it is to the undo log, which must have room."""
    at = counts[LOGGED]
    log[at, 0] = slot
    for word in range(words.shape[1]):
        log[at, word + 1] = words[slot, word]
    counts[LOGGED] = at + 1


@inlined
def locate(
    hashes: Hashes,
    checks: Hashes,
    extra: Words2,
    partition: npt.NDArray[np.int32],
    start: Word,
    stop: Word,
    base: Word,
    epoch: Word,
    index: Hashes,
    words: Words2,
    pages: Words2,
    parts: Words2,
    spare: Words2,
    counts: Words2,
    log: Words2,
    template: Words2,
    slots: Words2,
    ordinals: Words2,
    group_slot: Words2,
    group_row: Words2,
    group_new: npt.NDArray[np.uint8],
    places: Hashes,
    found: Hashes,
) -> Word:
    """Find or insert rows start..stop; returns how far it came. Three sweeps, so that cache misses overlap."""
    mask = np.uint64(index.size - 1)
    windowed = extra.size > 0
    flat, owners = words.reshape(-1), pages.reshape(-1)
    width = words.shape[1]
    for row in range(start, stop):
        place = hashes[row]
        if windowed:
            place = index_hash(place, extra[row])
        places[row - start] = place
        prefetch(index, place & mask)
    for row in range(start, stop):
        # Walk to the entry with the row's tag: at this load two rows of five are not at home, and a wrong guess costs a miss.
        place = places[row - start]
        tag = place << _HALF
        at = place & mask
        entry = index[at]
        while entry != 0 and (entry ^ tag) > _LOW:
            at = (at + _ONE) & mask
            entry = index[at]
        found[row - start] = at
        if entry != 0:
            slot = np.int64(entry & _LOW) - 1
            prefetch(flat, slot * width)
            prefetch(owners, slot // PAGE * 3)
    limit = np.int64(index.size // 8 * 5)
    for row in range(start, stop):
        place = places[row - start]
        tag = place << _HALF
        window = extra[row] if windowed else np.int64(0)
        at = found[row - start]  # nothing before it can be this row: entries are only added here
        slot = np.int64(-1)
        while True:
            entry = index[at]
            if entry == 0:
                break
            if (entry ^ tag) <= _LOW:
                slot = np.int64(entry & _LOW) - 1
                same = np.uint64(words[slot, HASH]) == hashes[row] and np.uint64(words[slot, CHECK]) == checks[row]
                if same and words[slot, EXTRA] == window:
                    break
                slot = np.int64(-1)
            at = (at + _ONE) & mask
        fresh = slot < 0
        if counts[LOGGED] >= log.shape[0]:
            counts[WHY] = LOG_FULL
            return row
        if fresh:
            if counts[USED] >= limit:
                counts[WHY] = INDEX_FULL
                return row
            slot = take_slot(np.int64(partition[row]), words, pages, parts, spare, counts)
            if slot < 0:
                counts[WHY] = PAGES_FULL
                return row
            index[at] = tag | np.uint64(slot + 1)
            counts[USED] += 1
        mark = words[slot, MARK]
        if mark <= base:
            page = slot // PAGE
            if mark <= pages[page, GUARD]:
                log_row(slot, words, log, counts)
            pages[page, WRITTEN] = epoch
            group = counts[GROUPS]
            counts[GROUPS] = group + 1
            if fresh:
                for word in range(HEADER, width):
                    words[slot, word] = template[word]
                words[slot, HASH] = np.int64(hashes[row])
                words[slot, CHECK] = np.int64(checks[row])
                words[slot, EXTRA] = window
            words[slot, MARK] = base + 1 + group
            group_slot[group] = slot
            group_row[group] = row
            group_new[group] = fresh
            ordinals[row] = group
        else:
            ordinals[row] = mark - base - 1
        slots[row] = slot
    return stop


def row_width(state_words: int) -> int:
    """Words of a row: header and state, rounded up so that a row touches as few cache lines as it can."""
    wanted = HEADER + state_words
    if wanted <= 8:
        return 8 if wanted > 4 else 4
    return (wanted + 7) // 8 * 8


@kernel("void(int64[::1], uint64[::1], int64[:, ::1])")
def link_slots(slots: Words2, index: Hashes, words: Words2) -> None:
    """Put those of these slots that hold a row into an index that has none of them, and has room."""
    mask = np.uint64(index.size - 1)
    for at in range(slots.size):
        if at + AHEAD < slots.size:
            ahead = slots[at + AHEAD]
            prefetch(index, index_hash(np.uint64(words[ahead, HASH]), words[ahead, EXTRA]) & mask)
        slot = slots[at]
        if words[slot, MARK] > 0:
            place = index_hash(np.uint64(words[slot, HASH]), words[slot, EXTRA])
            found = place & mask
            while index[found] != 0:
                found = (found + _ONE) & mask
            index[found] = (place << _HALF) | np.uint64(slot + 1)


@kernel("void(uint64[::1], uint64[::1])")
def rehash(old: Hashes, new: Hashes) -> None:
    """Put every entry of one index into an empty, larger one."""
    mask = np.uint64(new.size - 1)
    for entry in old:
        if entry != 0:
            at = (entry >> _HALF) & mask
            while new[at] != 0:
                at = (at + _ONE) & mask
            new[at] = entry


@inlined
def unlink(slot: Word, index: Hashes, words: Words2) -> None:
    """Take a row out of the index, moving later entries back, so that there are no tombstones."""
    mask = np.uint64(index.size - 1)
    place = index_hash(np.uint64(words[slot, HASH]), words[slot, EXTRA])
    target = (place << _HALF) | np.uint64(slot + 1)
    hole = place & mask
    while index[hole] != target:
        hole = (hole + _ONE) & mask
    at = hole
    while True:
        at = (at + _ONE) & mask
        entry = index[at]
        if entry == 0:
            break
        home = (entry >> _HALF) & mask
        if ((at - home) & mask) >= ((at - hole) & mask):
            index[hole] = entry
            hole = at
    index[hole] = np.uint64(0)


@kernel("void(int64[::1], uint64[::1], int64[:, ::1])")
def unlink_slots(slots: Words2, index: Hashes, words: Words2) -> None:
    """Take those of these slots that hold a row out of an index that has them all. The rows stay as they are."""
    for slot in slots:
        if words[slot, MARK] > 0:
            unlink(slot, index, words)


@kernel(
    "void(int64[::1], int64, uint64[::1], int64[:, ::1], int64[:, ::1], int64[:, ::1], int64[::1], int64[:, ::1])",
)
def remove_rows(slots: Words2, epoch: int, index: Hashes, words: Words2, pages: Words2, parts: Words2, counts: Words2, log: Words2) -> None:
    """Free these rows. The undo log must have room for all of them."""
    for slot in slots:
        page = slot // PAGE
        if words[slot, MARK] <= pages[page, GUARD]:
            log_row(slot, words, log, counts)
        unlink(slot, index, words)
        owner = pages[page, OWNER]
        words[slot, MARK] = 0
        words[slot, EXTRA] = parts[owner, FREE] + 1
        parts[owner, FREE] = slot
        parts[owner, LIVE] -= 1
        pages[page, WRITTEN] = epoch
        counts[USED] -= 1


@kernel(
    "void(int64[::1], uint64[::1], int64[:, ::1], int64[:, ::1], int64[::1], int64[::1])",
)
def release_pages(numbers: Words2, index: Hashes, words: Words2, pages: Words2, spare: Words2, counts: Words2) -> None:
    """Give whole pages back, with all their rows."""
    mask = np.uint64(index.size - 1)
    for page in numbers:
        for each in range(PAGE):
            slot = page * PAGE + each
            prefetch(index, index_hash(np.uint64(words[slot, HASH]), words[slot, EXTRA]) & mask)
        for each in range(PAGE):
            slot = page * PAGE + each
            if words[slot, MARK] > 0:
                unlink(slot, index, words)
                counts[USED] -= 1
            words[slot, :] = 0
        pages[page, OWNER] = -1
        pages[page, GUARD] = -1
        spare[counts[SPARE]] = page
        counts[SPARE] += 1


@kernel(
    "void(Array(int64, 2, 'C', readonly=True), int64[::1], int64, int64, int64, uint64[::1], int64[:, ::1], int64[:, ::1],"
    " int64[:, ::1], int64[::1], int64[::1], int64[::1])"
)
def install_rows(
    given: Words2,
    rows: Words2,
    owner: int,
    mark: int,
    epoch: int,
    index: Hashes,
    words: Words2,
    pages: Words2,
    parts: Words2,
    spare: Words2,
    counts: Words2,
    slots: Words2,
) -> None:
    """Put distinct rows of `given`, of a partition that has no page here, into fresh pages, and their slots into `slots`.

    Nothing is compared: no row can be here already. Index and pages must have room for all of them. The index is filled in behind the
    rows, a constant distance behind the lines that were asked for: to ask for those of a whole page at once takes twice as long.
    """
    size, width = rows.size, given.shape[1]
    entries = np.empty(size, np.uint64)
    for start in range(0, size, PAGE):
        stop = min(start + PAGE, size)
        if counts[SPARE] > 0:
            counts[SPARE] -= 1
            page = spare[counts[SPARE]]
        else:
            page = counts[TOP]
            counts[TOP] += 1
        pages[page, GUARD] = -1
        pages[page, WRITTEN] = epoch
        pages[page, OWNER] = owner
        first = page * PAGE - start
        for at in range(start, stop):
            slot, row = first + at, rows[at]
            for word in range(width):
                words[slot, word] = given[row, word]
            words[slot, MARK] = mark
            slots[at] = slot
            place = index_hash(np.uint64(given[row, HASH]), given[row, EXTRA])
            entries[at] = (place << _HALF) | np.uint64(slot + 1)
        if stop == size:
            following = first + size
            parts[owner, NEXT] = following if following % PAGE else -1
    mask = np.uint64(index.size - 1)
    for at in range(size):
        if at + AHEAD < size:
            prefetch(index, (entries[at + AHEAD] >> _HALF) & mask)
        found = (entries[at] >> _HALF) & mask
        while index[found] != 0:
            found = (found + _ONE) & mask
        index[found] = entries[at]
    counts[USED] += size
    parts[owner, LIVE] += size


_RO = "Array({}, 1, 'C', readonly=True)"


@kernel(f"int64[::1]({_RO.format('uint64')}, {_RO.format('uint64')}, {_RO.format('int64')}, uint64[::1], int64[:, ::1])")
def seek_rows(hashes: Hashes, checks: Hashes, extra: Words2, index: Hashes, words: Words2) -> Words2:
    """int64 (n,): the slot of each row, -1 where there is none. Inserts nothing."""
    mask = np.uint64(index.size - 1)
    slots = np.empty(hashes.size, np.int64)
    for row in range(hashes.size):
        place = index_hash(hashes[row], extra[row])
        tag = place << _HALF
        at = place & mask
        slots[row] = -1
        while index[at] != 0:
            entry = index[at]
            if (entry ^ tag) <= _LOW:
                slot = np.int64(entry & _LOW) - 1
                same = np.uint64(words[slot, HASH]) == hashes[row] and np.uint64(words[slot, CHECK]) == checks[row]
                if same and words[slot, EXTRA] == extra[row]:
                    slots[row] = slot
                    break
            at = (at + _ONE) & mask
    return slots


@kernel("void({0}, {0}, {0}, {0}, {0}, {0}, {0}, {0}, int64[::1], int64[::1], int64[::1], int64[:, ::1])".format(_RO.format("int64")))
def gather_columns(
    first: Words2,
    second: Words2,
    third: Words2,
    fourth: Words2,
    fifth: Words2,
    sixth: Words2,
    seventh: Words2,
    eighth: Words2,
    places: Words2,
    kept: Words2,
    into: Words2,
    rows: Words2,
) -> None:
    """Up to eight columns to their places in rows: values `kept` of each, which become rows `into`. A row is written at once, since it is a
    cache line or two."""
    count = places.size
    for at in range(kept.size):
        value, row = kept[at], into[at]
        rows[row, MARK] = 0
        rows[row, places[0]] = first[value]
        if count > 1:
            rows[row, places[1]] = second[value]
        if count > 2:
            rows[row, places[2]] = third[value]
        if count > 3:
            rows[row, places[3]] = fourth[value]
        if count > 4:
            rows[row, places[4]] = fifth[value]
        if count > 5:
            rows[row, places[5]] = sixth[value]
        if count > 6:
            rows[row, places[6]] = seventh[value]
        if count > 7:
            rows[row, places[7]] = eighth[value]


@kernel("void(int64[:, ::1], int64[::1], int64[:, ::1])")
def read_pages(words: Words2, numbers: Words2, rows: Words2) -> None:
    """Copy whole pages, one after the other."""
    for position in range(numbers.size):
        rows[position * PAGE : (position + 1) * PAGE] = words[numbers[position] * PAGE : (numbers[position] + 1) * PAGE]


@kernel("void(int64[:, ::1], int64[::1], int64[:, ::1], int64, int64)")
def undo(rows: Words2, positions: Words2, log: Words2, start: int, stop: int) -> None:
    """Put logged rows back, newest first, so that the oldest since `start` stays. positions[page]: where its copy is, or -1."""
    for at in range(stop - 1, start - 1, -1):
        slot = log[at, 0]
        page = slot // PAGE
        if page < positions.size and positions[page] >= 0:
            rows[positions[page] + slot % PAGE] = log[at, 1:]


@kernel("int64[:, ::1](int64[:, ::1], int64[::1], int64[::1])")
def gather(words: Words2, slots: Words2, columns: Words2) -> Words2:
    """int64 (columns, slots): some words of some rows, a column after the other."""
    found = np.empty((columns.size, slots.size), np.int64)
    flat, width = words.reshape(-1), words.shape[1]
    for row in range(slots.size):
        if row + AHEAD < slots.size:
            prefetch(flat, slots[row + AHEAD] * width)
        slot = slots[row]
        for column in range(columns.size):
            found[column, row] = words[slot, columns[column]]
    return found
