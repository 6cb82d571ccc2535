"""Match: rows of a key that follow one another as a pattern says, a small part of SQL's MATCH_RECOGNIZE."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from evenflow.kernels.columns import integers_of, nulls_of
from evenflow.kernels.match import DECIDED, FIRST, KEY, LAST, PAST_LAST, TO_NEXT, find_matches, label_matches
from evenflow.kernels.table import CHECK, EXTRA, HASH, HEADER
from evenflow.operator.bsort import numbered
from evenflow.operator.filter import Filter
from evenflow.operator.match_tries import Line, Tries, in_order
from evenflow.operator.measures import Measures
from evenflow.operator.operator import Shown
from evenflow.operator.tabled import Expiring
from evenflow.query.matching import MATCH_END, ONE_ROW, TO_NEXT_ROW, UNMATCHED_TOO, match_schema, skip_to, understood
from evenflow.query.pattern import Program
from evenflow.state.deadlines import Deadlines
from evenflow.state.keys import KeptKeys, identity, key_columns, to_array
from evenflow.state.pages import PagedTable
from evenflow.stream.arrays import Bools, Int64s
from evenflow.stream.epoch import NO_WATERMARK, Tick
from evenflow.stream.rows import Rows

TIME: Final = HEADER
"""Word of a held row: its event time. Of a key: that of its last row."""
MASK: Final = HEADER + 1
"""Word of a held row: bit v says that it can be variable v."""
BEGIN, END = HEADER + 1, HEADER + 2
"""Words of a key: its held rows are those at EXTRA = begin, begin + 1, ..., end - 1. At EXTRA 0 is the key itself."""
VALUES: Final = HEADER + 3
"""First word of the columns: of a held row its own; of a key those of its last row, if a condition reads PREV."""


@dataclass(slots=True)
class _Keys:
    """The keys at hand in an epoch: those of its rows, in order of first appearance, then those that fall due without one.

    slots: int64 (k,), of the keys. new: bool (k,), first seen now. due: bool (k,), their deadline is over. key_of: int64 (n,), of each new
    row. owner, body: int64 (h,), key and slot of each held row.
    """

    slots: Int64s
    new: npt.NDArray[np.bool_]
    due: npt.NDArray[np.bool_]
    key_of: Int64s
    owner: Int64s
    body: Int64s


@dataclass(slots=True)
class _Line:
    """The rows of the keys at hand, each key's one after the other, held ones first.

    row: int64 (n,): below h, a held row; else h + the number of a new one. starts: int64 (k + 1,), where each key's begin.
    """

    row: Int64s
    starts: Int64s
    times: Int64s
    masks: Int64s


def _arrays(program: Program) -> tuple[Int64s, Int64s, Int64s, Int64s]:
    """(first, variable, where each state's followers begin, followers), int64, as the kernels want them."""
    begins = np.concatenate([np.zeros(1, np.int64), np.cumsum([len(states) for states in program.follow])])
    followers = np.array([state for states in program.follow for state in states], np.int64)
    return np.array(program.first, np.int64), np.array(program.variable, np.int64), begins.astype(np.int64), followers


def _batch(columns: Sequence[pa.Array], schema: pa.Schema, count: int) -> pa.RecordBatch:
    """A batch of `count` rows, also if it has no columns."""
    if columns:
        return pa.RecordBatch.from_arrays(columns, schema=schema)
    return pa.RecordBatch.from_struct_array(pa.StructArray.from_buffers(pa.struct([]), count, [None]))


class Match(Expiring, Shown):
    """Matches of a pattern in each key's rows, which must come in order of event time. One row per match, or all of its rows.

    pattern, define, measures: see `query.matching`. within_us: from a match's first row to its last, at most; nothing older than that has a
    say, so PREV of a row is null where the row before is further away. skip: where the next match may begin. rows: "one" row or "all" of a
    match come out, or those in no match, too. Rows without a time are left out. Output: keys, or a row's own columns, match_start,
    match_end, measures, in the epoch in which no other row can change the match: rows of a partition by the event time at which that was
    so, then by (hash, check, match_start), those of a match one behind the other. Cost: O(rows in + rows held of the keys at hand) for
    each start that comes far; where conditions read the match so far, that of `match_tries`. State: the rows since the first start of a
    key that is not decided; with PREV its last row, `within_us` long; with match_number() how many matches each key had, for ever.
    """

    def __init__(
        self, schema: pa.Schema, keys: Sequence[str], time: str, pattern: str, define: Sequence[tuple[str, str]],
        measures: Sequence[tuple[str, str]], within_us: int, skip: str, rows: str = ONE_ROW, box: str = "pattern",
    ) -> None:  # fmt: skip
        matching = understood(schema, pattern, define, measures, rows)
        self._all_rows, self._unmatched, self._numbered = matching.all_rows, rows == UNMATCHED_TOO, matching.numbered
        self._keys, self._time, self._within = tuple(keys), time, within_us
        place = skip_to(skip, matching.program.variables)
        self._skip = 2 * place[0] + place[1] if place is not None else TO_NEXT if skip == TO_NEXT_ROW else PAST_LAST
        self._before, self._judged = matching.before, matching.judged
        self._conditions = [(number, Filter(text, matching.judged, box)) for number, text in matching.conditions]
        defined = {number for number, _ in matching.conditions}
        self._any_row = sum(1 << number for number in range(len(matching.program.variables)) if number not in defined)
        self._program, self._variables = _arrays(matching.program), matching.program.variables
        self._measures = Measures(matching)
        self._tries = Tries(matching, self._program, within_us, self._skip, box) if matching.tried else None
        tried = matching.tried_read if matching.tried else ()
        own = [name for name in tried if name in schema.names]
        self._own = tuple(schema.names) if self._all_rows else tuple(dict.fromkeys((*keys, *matching.before, *matching.read, *own)))
        self._kept_before = tuple(place for place, name in enumerate(matching.before.values()) if name in tried)
        self._columns = (*self._own, *(list(matching.before.values())[place] for place in self._kept_before))
        self._kept, self._time_type = KeptKeys(matching.judged, self._columns), schema.field(time).type
        self._kept_schema = pa.schema([matching.judged.field(column) for column in self._columns])
        more = [0] * 3 if self._unmatched or self._numbered else []
        self._number, self._rests, self._covered = range(VALUES + self._kept.words, VALUES + self._kept.words + 3)
        self._table = PagedTable(np.array([0, 1, 1] + [0] * self._kept.words + more, np.int64), self._kept.object_types)
        self._deadlines = Deadlines()
        self.schemas: tuple[pa.Schema, ...] = (match_schema(matching, keys, time),)
        self._none = Rows.empty(self.schemas[0], keyed=True)

    def process(self, rows: Rows, tick: Tick) -> tuple[Rows, ...]:
        missing = nulls_of(rows.batch.column(self._time))
        if missing.size:
            rows = rows.take(np.flatnonzero(missing == 0))
        keys = self._keys_at_hand(rows, tick)
        if keys.slots.size == 0:
            return (self._none,)
        new, times = key_columns(rows.batch, self._own, np.arange(rows.count)), integers_of(rows.batch.column(self._time))
        before = self._rows_before(times, new, keys)
        new += [before[place] for place in self._kept_before]
        line = self._line(rows, times, before, keys)
        covered = self._covered_rows(line, keys)
        found, labels, undecided = self._find(line, new, keys, tick, covered)
        if self._unmatched:
            self._table.words[keys.slots, self._covered] = covered - line.starts[:-1] + self._table.words[keys.slots, BEGIN]
        out = self._put_out(found, labels, line, new, keys) if found.size else self._none
        self._settle(rows, new, line, undecided, keys, tick)
        return (out,)

    # ------------------------------------------------ the rows at hand

    def _keys_at_hand(self, rows: Rows, tick: Tick) -> _Keys:
        due = self._deadlines.take(tick.watermark)
        due = due[self._table.held(due)]
        due = due[self._table.words[due, EXTRA] == 0]
        if due.size:  # They are written though no row of theirs has come: who has captured them must see what they were.
            names = self._table.words[due]
            own, checks = (np.ascontiguousarray(names[:, at]).view(np.uint64) for at in (HASH, CHECK))
            self._table.fold(self._table.owner_of(due), own, checks, epoch=tick.epoch, extra=names[:, EXTRA])
        hashes, checks = identity(rows, self._keys)
        touched = self._table.fold(rows.partition, hashes, checks, epoch=tick.epoch, extra=np.zeros(rows.count, np.int64))
        alone = due[~np.isin(due, touched.slots)]
        slots, words = np.concatenate([touched.slots, alone]), self._table.words
        owner, place = numbered(words[slots, END] - words[slots, BEGIN])
        whose = slots[owner]
        body = self._table.seek(words[whose, HASH].view(np.uint64), words[whose, CHECK].view(np.uint64), words[whose, BEGIN] + place - 1)
        new = np.concatenate([touched.new, np.zeros(alone.size, np.bool_)])
        return _Keys(slots, new, np.isin(slots, due), touched.ordinals.copy(), owner, body)

    def _line(self, rows: Rows, times: Int64s, before: list[pa.Array], keys: _Keys) -> _Line:
        words = self._table.words
        key = np.concatenate([keys.owner, keys.key_of])
        row = np.argsort(key, kind="stable")
        starts = np.concatenate([np.zeros(1, np.int64), np.cumsum(np.bincount(key, minlength=keys.slots.size))])
        masks = self._classified(rows, before)
        times, masks = np.concatenate([words[keys.body, TIME], times]), np.concatenate([words[keys.body, MASK], masks])
        return _Line(row, starts, times[row], masks[row])

    def _rows_before(self, times: Int64s, new: list[pa.Array], keys: _Keys) -> list[pa.Array]:
        """The columns that PREV reads, of the row before each new row of its key; null where there is none, or none that is near enough."""
        if not self._before:
            return []
        known = np.flatnonzero(~keys.new)
        last = keys.slots[known]
        key = np.concatenate([known, keys.key_of])
        line = np.argsort(key, kind="stable")
        at, who = np.concatenate([self._table.words[last, TIME], times])[line], key[line]
        follows = np.flatnonzero((who[1:] == who[:-1]) & (at[1:] - at[:-1] <= self._within)) + 1
        before = np.full(times.size, -1, np.int64)
        before[line[follows] - known.size] = line[follows - 1]
        index = pa.array(before, mask=before < 0)
        kept = self._kept.read(self._table.words, VALUES, self._table.objects, last)
        places = [self._columns.index(column) for column in self._before]
        return [pa.concat_arrays([kept[place], new[place]]).take(index) for place in places]

    def _classified(self, rows: Rows, before: list[pa.Array]) -> Int64s:
        """int64 (n,): which variables each new row can be, as bits."""
        masks = np.full(rows.count, self._any_row, np.int64)
        judged = Rows(pa.RecordBatch.from_arrays([*rows.batch.columns, *before], schema=self._judged), rows.partition)
        for number, condition in self._conditions:
            masks |= condition.true(judged).astype(np.int64) << number
        return masks

    # ------------------------------------------------ matches

    def _find(
        self, line: _Line, new: list[pa.Array], keys: _Keys, tick: Tick, covered: Int64s
    ) -> tuple[Int64s, Int64s | None, Int64s]:  # fmt: skip
        """(matches as of `find_matches`, the variables of their rows if they are known already, each key's first undecided row)."""
        if self._tries is not None:
            rows = self._taken(line.row, new, keys.body)
            tried = self._tries.find(Line(line.times, line.masks, line.starts, rows), tick.watermark, covered)
            return tried.matches, tried.labels, tried.undecided
        undecided, found = np.empty(keys.slots.size, np.int64), np.empty((line.row.size, 4), np.int64)
        count = find_matches(
            line.times, line.masks, line.starts, self._within, tick.watermark, self._skip, *self._program, covered, undecided, found
        )  # fmt: skip
        return found[:count], None, undecided

    def _covered_rows(self, line: _Line, keys: _Keys) -> Int64s:
        """int64 (k,), place in the line behind the last row of each key that is in a match so far; empty if nobody asks for the others."""
        if not self._unmatched:
            return np.empty(0, np.int64)
        words = self._table.words
        covered: Int64s = line.starts[:-1] + words[keys.slots, self._covered] - words[keys.slots, BEGIN]
        return covered

    def _numbers(self, found: Int64s, keys: _Keys) -> Int64s:
        """int64 (m,), of each match among those of its key; of a row in none, that of the match before."""
        if not self._numbered:
            return np.zeros(found.shape[0], np.int64)
        words, key = self._table.words, found[:, KEY]
        matched = found[:, LAST] >= found[:, FIRST]
        before = words[keys.slots, self._number]
        words[keys.slots, self._number] += np.bincount(key[matched], minlength=keys.slots.size)
        until = np.cumsum(matched)
        first = np.searchsorted(key, key)
        numbers: Int64s = before[key] + until - (until[first] - matched[first])
        return numbers

    def _put_out(self, found: Int64s, labels: Int64s | None, line: _Line, new: list[pa.Array], keys: _Keys) -> Rows:
        number, slots = self._numbers(found, keys), keys.slots[found[:, KEY]]
        hashes, checks = self._table.identity_of(slots)
        order = np.lexsort((checks, hashes, found[:, DECIDED]))
        known = None if labels is None else in_order(found, labels, order)
        found, slots, hashes, number = np.ascontiguousarray(found[order]), slots[order], hashes[order], number[order]
        matched = found[:, LAST] >= found[:, FIRST]
        labels = self._labels(line, np.ascontiguousarray(found[matched])) if known is None else known
        match, place = numbered(np.maximum(found[:, LAST] - found[:, FIRST], 0) + 1)
        batch = self._taken(line.row[found[match, FIRST] + place - 1], new, keys.body)
        first, kind = np.flatnonzero(place == 1), self.schemas[0].field("match_start").type
        bounds = [to_array(line.times[found[:, edge]], kind, ~matched) for edge in (FIRST, LAST)]
        if matched.all():
            measures = self._measures.compute(batch, match, labels, number)
        else:
            measures = self._of_some(batch, match, labels, number, matched)
        if self._all_rows:
            each = pa.array(match)
            arrays = [*batch.columns[: len(self._own)], *(bound.take(each) for bound in bounds), *measures]
            made = pa.RecordBatch.from_arrays(arrays, schema=self.schemas[0])
            return Rows(made, self._table.owner_of(slots)[match], hashes[match])
        arrays = [*key_columns(batch, self._keys, first), *bounds, *measures]
        return Rows(pa.RecordBatch.from_arrays(arrays, schema=self.schemas[0]), self._table.owner_of(slots), hashes)

    def _labels(self, line: _Line, found: Int64s) -> Int64s:
        """int64, the variables of the rows of matches, one match after the other."""
        labels = np.empty(int((found[:, LAST] - found[:, FIRST] + 1).sum()), np.int64)
        label_matches(line.masks, found, *self._program, labels)
        return labels

    def _of_some(self, batch: pa.RecordBatch, match: Int64s, labels: Int64s, number: Int64s, matched: Bools) -> list[pa.Array]:
        """The measures of each row, where some are in no match and have none. labels: of the others. matched: bool (m,), which are some."""
        if not matched.any():
            names = self.schemas[0].names
            return [pa.nulls(match.size, field.type) for field in list(self.schemas[0])[names.index(MATCH_END) + 1 :]]
        mine = matched[match]
        which = (np.cumsum(matched) - 1)[match[mine]]
        rows = batch.take(pa.array(np.flatnonzero(mine)))
        made = self._measures.compute(rows, which, labels, number[matched])
        place = pa.array(np.maximum(np.cumsum(mine) - 1, 0), mask=~mine)
        return [column.take(place) for column in made]

    def _taken(self, row: Int64s, new: list[pa.Array], body: Int64s) -> pa.RecordBatch:
        """The kept columns of rows of the line. row: as `_Line.row`."""
        held = row < body.size
        read = self._kept.read(self._table.words, VALUES, self._table.objects, body[row[held]])
        place = np.where(held, np.cumsum(held) - 1, int(held.sum()) + row - body.size)
        index = pa.array(place)
        arrays = [pa.concat_arrays(pair).take(index) for pair in zip(read, new, strict=True)]
        return _batch(arrays, self._kept_schema, row.size)

    # ------------------------------------------------ state

    def _settle(self, rows: Rows, new: list[pa.Array], line: _Line, undecided: Int64s, keys: _Keys, tick: Tick) -> None:
        """Hold the rows from each key's first undecided start on, and forget those before it."""
        begins, ends = line.starts[:-1], line.starts[1:]
        words, some = self._table.words, np.flatnonzero(ends > begins)
        begin = words[keys.slots, BEGIN].copy()
        words[keys.slots, BEGIN] = begin + undecided - begins
        words[keys.slots, END] = begin + ends - begins
        words[keys.slots[some], TIME] = line.times[ends[some] - 1]
        if self._before:
            some = some[line.row[ends[some] - 1] >= keys.body.size]
            self._keep(keys.slots[some], new, line.row[ends[some] - 1] - keys.body.size)
        key, place = numbered(ends - begins)
        fresh, gone = line.row >= keys.body.size, np.arange(line.row.size) < undecided[key]
        leave, come = keys.body[line.row[gone & ~fresh]], np.flatnonzero(fresh & ~gone)
        if leave.size:
            self._table.remove(leave, epoch=tick.epoch)
        if come.size:
            number = begin[key[come]] + place[come] - 1
            self._hold(rows, new, line, come, number, tick)
        self._forget(line, undecided, keys, tick)

    def _hold(self, rows: Rows, new: list[pa.Array], line: _Line, come: Int64s, number: Int64s, tick: Tick) -> None:
        """Write new rows into the table. come: their places in the line. number: EXTRA of each."""
        row = line.row[come] - (line.row.size - rows.count)
        hashes, checks = identity(rows, self._keys)
        touched = self._table.fold(rows.partition[row], hashes[row], checks[row], epoch=tick.epoch, extra=number)
        self._table.words[touched.slot_of, TIME] = line.times[come]
        self._table.words[touched.slot_of, MASK] = line.masks[come]
        self._keep(touched.slot_of, new, row)

    def _keep(self, slots: Int64s, new: list[pa.Array], row: Int64s) -> None:
        index = pa.array(row)
        self._kept.keep(self._table.words, VALUES, self._table.objects, slots, [column.take(index) for column in new])

    def _forget(self, line: _Line, undecided: Int64s, keys: _Keys, tick: Tick) -> None:
        """Remove keys that nothing is to be known of any more, and set a deadline for the others that have none."""
        since = self._table.words[keys.slots, TIME].copy()
        waits = undecided < line.starts[1:]
        since[waits] = line.times[undecided[waits]]
        stays = waits | (since + self._within >= tick.watermark) if self._before else waits
        undated = keys.new | keys.due
        if self._numbered:  # Who is kept for its number alone has no deadline.
            undated |= self._table.words[keys.slots, self._rests] != 0
            self._table.words[keys.slots, self._rests] = undated & ~stays
        again = stays & undated
        self._deadlines.set(keys.slots[again], since[again] + (self._within + 1))
        if not stays.all() and not self._numbered:
            self._table.remove(keys.slots[~stays], epoch=tick.epoch)

    @property
    def shown(self) -> pa.Schema:
        """The rows that wait, and each key's last row if conditions look back at it. _time: their event time. _can_be: the variables that a
        row can be by itself; null of a key's last row."""
        made = [pa.field("_time", self._time_type), pa.field("_can_be", pa.list_(pa.string()))]
        return pa.schema([*self._kept_schema, *made])

    def show(self, partition: int) -> pa.RecordBatch:
        words, slots = self._table.words, self._table.slots_of(partition)
        waits = words[slots, EXTRA] > 0
        slots, waits = (slots, waits) if self._before else (slots[waits], waits[waits])
        masks = np.where(waits, words[slots, MASK], -1).tolist()
        can_be = [None if mask < 0 else [name for at, name in enumerate(self._variables) if mask >> at & 1] for mask in masks]
        times = to_array(np.ascontiguousarray(words[slots, TIME]), self._time_type, None)
        kept = self._kept.read(words, VALUES, self._table.objects, slots)
        return pa.RecordBatch.from_arrays([*kept, times, pa.array(can_be, pa.list_(pa.string()))], schema=self.shown)

    def _installed(self, slots: Int64s) -> None:
        slots = slots[self._table.words[slots, EXTRA] == 0]
        # The next epoch looks when they really fall due.
        self._deadlines.set(slots, np.full(slots.size, NO_WATERMARK))
