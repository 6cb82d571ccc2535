"""State as objects of a checkpoint (K4): the captured partitions of one step of a segment at one site, as Parquet files, and back.

Anything that reads Parquet reads them. Where the state is a table there is a row per row of it, sorted by key group:

    key_group, partition, [slot,] hash, check, window, w0, w1, ..., o0, o1, ...

hash and check are the key's identity and window its window's start (0 elsewhere), as in `kernels.table`; w are the operator's words and o
its objects. Any other state is its bytes as the operator has made them: `partition, state`. The file's metadata says what it is of, and
how many rows each partition has, in the order in which they lie, so that who wants some partitions decodes the row groups with them only.

Its form says how much of a partition's state it has: `state` and `table` all of it; `rows` all of it, with the slots at which the rows
lie; `delta` what has changed since an object before, by slot, which `state.folding` adds to it. Behind a restart rows lie elsewhere: the
first delta after it says where, in the order in which they were restored. Rows that are in no table have forms of their own, `held` and
`changes`: see `state.held_objects`.

Who reads an object knows its digest from the journal. Nothing of it is believed before that is found to be right.
"""

from __future__ import annotations

import base64
import json
import struct
import zlib
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from evenflow.errors import CheckpointCorrupt
from evenflow.kernels.columns import frozen
from evenflow.kernels.table import CHECK, EXTRA, HASH, HEADER, PAGE, gather_columns
from evenflow.plan.layout import KEY_GROUPS
from evenflow.state.changes import PartitionRows
from evenflow.state.page_snapshot import MAGIC, State, open_rows, to_arrow
from evenflow.state.reused import Reused
from evenflow.stream.digest import digest_of
from evenflow.stream.ipc import COPIED_BYTES, bytes_of

FORMAT: Final = 3
"""Of objects. Versions read this one and those before: 2 had all held rows each time, 1 neither slots nor deltas."""
FORMATS: Final = (1, 2, 3)
METADATA: Final = b"evenflow"
ROW_GROUP_ROWS: Final = 65_536
"""Rows of a table in one row group: about 4 MB."""
WRITTEN_ROWS: Final = 8192
"""Rows of a state that are put together in one go."""
GATHERED: Final = 8
"""Columns that are, see `gather_columns`."""
RANDOM: Final = ("hash", "check")
"""Columns of which nothing is saved by how they are written."""
UNREAD: Final = ("key_group", "partition")
"""Columns that are for people."""
ROW_GROUP_STATES: Final = 16
ROW_GROUP_BYTES: Final = 4 << 20
"""Partitions in one row group where each is a row, and their bytes, at most; one that is larger has one to itself."""
BYTES_FORMS: Final = ("state", "held", "changes")
"""Forms in which each partition is a row of bytes."""
_HEAD: Final = struct.Struct("<4sIQ")
"""Of a table's state: magic, words of a row, rows."""
TOGETHER_ROWS: Final = 16_384
"""So many rows of small partitions are made columns at once."""
_PLACES: Final = (("hash", HASH), ("check", CHECK), ("window", EXTRA))


@dataclass(frozen=True, slots=True)
class Origin:
    """What an object is of. segment, step: numbers in the layout. box: the step's, for people. epoch: as of the end of which."""

    segment: int
    step: int
    box: str
    epoch: int


@dataclass(frozen=True, slots=True)
class Written:
    """An object as bytes. rows: in the file. digest: of the bytes, in hexadecimal digits. of: rows of each partition, where later objects
    can be added to this one; since: the epoch that each partition's rows are since, -1 where it has all of them. held: rows that these
    partitions have by now, in this object or not, where nobody knows before they are read; else None."""

    data: bytes
    rows: int
    digest: str
    of: Mapping[int, int] = field(default_factory=dict)
    since: Mapping[int, int] = field(default_factory=dict)
    held: int | None = None


Rest = Callable[[], None]
"""Is called now and then, to give way to others."""
Make = Callable[[pa.Table, Mapping[str, Any], Rest], Written]
"""Makes bytes of rows and what they say of themselves."""


def _at_once() -> None:
    """Gives way to nobody."""


# ---------------------------------------------------------------- to Parquet


def to_object(
    origin: Origin, states: Sequence[tuple[int, State]], types: Sequence[pa.DataType] | None, make: Make | None = None
) -> Written:
    """The states of some partitions of one step, at least one, as an object: equal bytes for equal states.

    types: of the objects in its table's rows; None where the state is no table's. make: as what, else as Parquet. Cost of Parquet: 4 to
    6 ms per MB.
    """
    tabled = types is not None and all(state[:4] == MAGIC for _, state in states)
    table, counts = _rows(states, types) if tabled and types is not None else _whole(states)
    said = {
        "format": FORMAT, "form": "table" if tabled else "state", "segment": origin.segment, "step": origin.step, "box": origin.box,
        "epoch": origin.epoch, "partitions": counts,
    }  # fmt: skip
    if tabled:
        said["width"] = _width(states[0][1])
    return (make or to_file)(table, said, _at_once)


def rows_object(
    origin: Origin, found: Sequence[PartitionRows], types: Sequence[pa.DataType], rest: Rest, make: Make | None = None
) -> Written:
    """Rows of a table by their slots as an object: all of each partition's, or of each those since an epoch. found: at least one."""
    ordered = sorted(found, key=lambda each: (int(each.words[0, HASH].astype(np.uint64)) if len(each.words) else 0, each.partition))
    delta = any(each.since >= 0 for each in ordered)
    width = ordered[0].words.shape[1]
    chunks: dict[str, list[Any]] = {}
    for some in _together(ordered):
        for name, array in _columns(some, types).items():
            chunks.setdefault(name, []).append(array)
        rest()
    said = {
        "format": FORMAT, "form": "delta" if delta else "rows", "segment": origin.segment, "step": origin.step, "box": origin.box,
        "epoch": origin.epoch, "partitions": [[each.partition, len(each.words)] for each in ordered], "width": width,
    }  # fmt: skip
    if delta:
        said["since"] = [each.since for each in ordered]
        said["pages"] = [each.pages.size for each in ordered]
        said["touched"] = _packed(np.concatenate([each.pages for each in ordered]).astype("<u4"))
        said["present"] = _packed(np.concatenate([each.present for each in ordered]))
        if moved := {str(each.partition): each.laid for each in ordered if each.laid is not None}:
            said["laid"] = {partition: _packed(np.diff(pages, prepend=0).astype("<i4")) for partition, pages in moved.items()}
    made = (make or to_file)(pa.table({name: pa.chunked_array(arrays) for name, arrays in chunks.items()}), said, rest)
    of = {each.partition: len(each.words) for each in ordered}
    return replace(made, of=of, since={each.partition: each.since for each in ordered})


def _together(found: Sequence[PartitionRows]) -> Iterator[list[PartitionRows]]:
    """Partitions whose rows are made columns at once: what a column costs is the same for a few rows as for thousands."""
    some: list[PartitionRows] = []
    rows = 0
    for each in found:
        if some and rows + len(each.words) > TOGETHER_ROWS:
            yield some
            some, rows = [], 0
        some.append(each)
        rows += len(each.words)
    yield some


def _columns(found: Sequence[PartitionRows], types: Sequence[pa.DataType]) -> dict[str, pa.Array]:
    words = np.concatenate([each.words for each in found]) if len(found) > 1 else found[0].words
    slots = np.concatenate([each.slots for each in found]).astype(np.uint32)
    arrays = _of_words(words, [[each.partition, len(each.words)] for each in found], slot=slots)
    objects = [np.concatenate(column) for column in zip(*(each.objects for each in found), strict=True)]
    return arrays | {f"o{at}": to_arrow(column, kind) for at, (column, kind) in enumerate(zip(objects, types, strict=True))}


def _of_words(words: np.ndarray[Any, Any], counts: Sequence[Sequence[int]], **more: np.ndarray[Any, Any]) -> dict[str, pa.Array]:
    """Columns of rows. counts: (partition, rows of it), in order. more: columns that stand before those of the words."""
    owners = np.repeat(np.array([partition for partition, _ in counts], np.int32), [count for _, count in counts])
    columns = {"key_group": _key_groups(words), "partition": owners, **more}
    columns |= {name: words[:, place] for name, place in word_places(words.shape[1])}
    return {name: pa.array(np.ascontiguousarray(column)) for name, column in columns.items()}


def word_places(width: int) -> list[tuple[str, int]]:
    """The columns that the words of a row are in, and which word each has."""
    return [*_PLACES, *((f"w{at}", HEADER + at) for at in range(width - HEADER))]


def _key_groups(words: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """int32: of each row."""
    hashes = words[:, HASH].view(np.uint64) if words.flags.c_contiguous else np.ascontiguousarray(words[:, HASH]).view(np.uint64)
    return (((hashes >> np.uint64(32)) * np.uint64(KEY_GROUPS)) >> np.uint64(32)).astype(np.int32)


def _packed(array: np.ndarray[Any, Any]) -> str:
    return base64.b85encode(zlib.compress(array.tobytes(), 1)).decode()


def to_file(table: pa.Table, said: Mapping[str, Any], rest: Rest = _at_once) -> Written:
    """As Parquet. said: what it says of itself. rest: is called now and then, to give way."""
    of_bytes = said["form"] in BYTES_FORMS
    table = table.replace_schema_metadata({METADATA: json.dumps(said, sort_keys=True).encode()})
    out = pa.BufferOutputStream()
    texts = [field.name for field in table.schema if pa.types.is_string(field.type)]
    # Words are small numbers, times near each other and keys far more often than bits without any order, such as the hashes.
    packed = {field.name: "DELTA_BINARY_PACKED" for field in table.schema if pa.types.is_integer(field.type) and field.name not in RANDOM}
    # A dictionary takes two NaNs of different bits for one value, so only texts have one.
    statistics = False if of_bytes else ["key_group"]
    packing = {field.name: "zstd" if of_bytes else "none" if field.name in RANDOM else "lz4" for field in table.schema}
    with pq.ParquetWriter(
        out, table.schema, compression=packing, use_dictionary=texts, write_statistics=statistics, column_encoding=packed
    ) as writer:
        for first, stop in _row_groups(table, of_bytes):
            writer.write_table(table.slice(first, stop - first), row_group_size=max(1, stop - first))
            rest()
    data = bytes_of(out.getvalue(), rest)
    return Written(data, table.num_rows, digest_of(data))


def _row_groups(table: pa.Table, of_bytes: bool) -> Iterator[tuple[int, int]]:
    """(first row, the one behind the last) of each, at least one: what is compressed in one go."""
    if not of_bytes:
        for first in range(0, max(1, table.num_rows), ROW_GROUP_ROWS):
            yield first, min(first + ROW_GROUP_ROWS, table.num_rows)
        return
    first = held = 0
    for at, size in enumerate(pc.binary_length(table.column("state")).to_pylist()):
        if at > first and (held + size > ROW_GROUP_BYTES or at - first == ROW_GROUP_STATES):
            yield first, at
            first, held = at, 0
        held += size
    yield first, table.num_rows


def _width(state: State) -> int:
    return int(_HEAD.unpack_from(state)[1])


def _rows(states: Sequence[tuple[int, State]], types: Sequence[pa.DataType]) -> tuple[pa.Table, list[list[int]]]:
    """Rows of a table, those of the partition with the first key groups first; within one they are sorted by hash, and so by key group."""
    width = _width(states[0][1])
    opened = [(partition, *open_rows(state, width, types)) for partition, state in states]
    opened.sort(key=lambda each: (int(each[1][0, HASH].astype(np.uint64)) if len(each[1]) else 0, each[0]))
    words = np.concatenate([rows for _, rows, _ in opened])
    counts = [[partition, len(rows)] for partition, rows, _ in opened]
    arrays: dict[str, Any] = _of_words(words, counts)
    for at in range(len(types)):
        arrays[f"o{at}"] = pa.chunked_array([batch.column(at) for _, _, batch in opened if batch is not None], types[at])
    return pa.table(arrays), counts


def _whole(states: Sequence[tuple[int, State]]) -> tuple[pa.Table, list[list[int]]]:
    ordered = sorted(states, key=lambda each: each[0])
    partitions = pa.array([partition for partition, _ in ordered], pa.int32())
    kept = as_column([state for _, state in ordered])
    return pa.table({"partition": partitions, "state": kept}), [[partition, 1] for partition, _ in ordered]


def as_column(states: Sequence[State]) -> pa.ChunkedArray:
    """A value for each, of which what is large is not copied: `pa.array` would do so, and hold the interpreter for all of them. What is
    small is put together, since a piece costs whoever writes it a call for each column."""
    arrays, some, size = list[pa.Array](), list[State](), 0

    def put() -> None:
        ends = np.cumsum([0, *map(len, some)])
        data = some[0] if len(some) == 1 else b"".join(some)
        arrays.append(pa.LargeBinaryArray.from_buffers(pa.large_binary(), len(some), [None, pa.py_buffer(ends), pa.py_buffer(data)]))

    for state in states:
        if some and size + len(state) > COPIED_BYTES:
            put()
            some, size = [], 0
        some.append(state)
        size += len(state)
    if some:
        put()
    return pa.chunked_array(arrays, pa.large_binary())


Rewriting = Callable[[pa.Table, Mapping[str, Any]], tuple[pa.Table, Mapping[str, Any]]]
"""The rows of an object, and what it says of itself, as they are to be."""


def rewritten(name: str, data: bytes, origin: Origin, change: Rewriting | None = None) -> bytes:
    """The same object as one of another segment and step: where a program that is laid out in another way takes its state over. name: for
    the error. change: of its rows, where they are a table's. Raises CheckpointCorrupt."""
    try:
        table = pq.ParquetFile(pa.BufferReader(data)).read()
        said = json.loads(table.schema.metadata[METADATA])
        said |= {"segment": origin.segment, "step": origin.step, "box": origin.box}
        if change is not None:
            table, said = change(table, said)
        return to_file(table, said).data
    except (pa.ArrowException, ValueError, KeyError, TypeError, OSError) as error:
        why = f"{type(error).__name__}: {error}"
        raise CheckpointCorrupt(f"object {name!r} with the state of box {origin.box!r} cannot be restored: {why}") from error


# ---------------------------------------------------------------- and back


@dataclass(frozen=True, slots=True)
class Opened:
    """An object that was opened. said: its metadata. places: by partition, of those wanted, its first row and the one behind its last.

    _ends: of its row groups, the row behind the last. _last: the last row group that was decoded, by its number: what is wanted next
    begins where the last ended, and a group with what has changed has rows of many partitions.
    """

    said: Mapping[str, Any]
    places: Mapping[int, tuple[int, int]]
    _file: pq.ParquetFile
    _ends: np.ndarray[Any, Any]
    _last: dict[int, pa.Table] = field(default_factory=dict)

    def rows(self, partitions: Collection[int]) -> dict[int, pa.Table]:
        """Those of these partitions, of which it has places; row groups with others' rows only are not decoded. Raises as `open_object`."""
        taken = [p for p in partitions if p in self.places]
        if not taken:
            return {}
        places = np.array([self.places[p] for p in taken])
        needed, firsts = _groups(self._ends, places)
        groups = [self._last[group] if group in self._last else self._decoded(group) for group in needed.tolist()]
        self._last.clear()
        self._last[int(needed[-1])] = groups[-1]
        # In pieces: to join all of it would take as much memory again.
        table, starts = pa.concat_tables(groups), np.concatenate([[0], self._ends])
        begins = np.cumsum([0, *map(len, groups)])[np.searchsorted(needed, firsts)] + places[:, 0] - starts[firsts]
        counts = places[:, 1] - places[:, 0]
        return {p: table.slice(begin, count) for p, begin, count in zip(taken, begins.tolist(), counts.tolist(), strict=True)}

    def _decoded(self, group: int) -> pa.Table:
        names = None if self.said["form"] in BYTES_FORMS else [name for name in self._file.schema_arrow.names if name not in UNREAD]
        return self._file.read_row_group(group, names).replace_schema_metadata(None)


def open_object(data: State, origin: Origin, wanted: Collection[int] | None, *, before: bool = False) -> Opened:
    """An object whose digest was found to be right. Decodes no row. before: it may be of an earlier epoch than the origin's. Raises what
    Arrow and Python raise if it is something else."""
    file = pq.ParquetFile(pa.BufferReader(data))
    said = json.loads(file.schema_arrow.metadata[METADATA])
    if said["format"] not in FORMATS:
        raise ValueError(f"it is of format {said['format']!r}, and this version reads formats {FORMATS}")
    in_time = said["epoch"] <= origin.epoch if before else said["epoch"] == origin.epoch
    if (said["segment"], said["step"]) != (origin.segment, origin.step) or not in_time:
        raise ValueError(f"it is of segment {said['segment']}, step {said['step']}, epoch {said['epoch']}, wanted was {origin}")
    places, at = {}, 0
    for partition, count in said["partitions"]:
        places[partition] = (at, at + count)
        at += count
    if at != file.metadata.num_rows:
        raise ValueError(f"it has {file.metadata.num_rows} rows, and says that it has {at}")
    taken = {p: place for p, place in places.items() if wanted is None or p in wanted}
    return Opened(said, taken, file, np.cumsum([file.metadata.row_group(i).num_rows for i in range(file.metadata.num_row_groups)]))


def touched(said: Mapping[str, Any]) -> dict[int, tuple[int, np.ndarray[Any, Any], np.ndarray[Any, Any]]]:
    """What a delta says by partition: (the epoch that it is since, pages written, bool (p, 256): slots in use of each)."""
    pages = np.frombuffer(zlib.decompress(base64.b85decode(said["touched"])), "<u4").astype(np.int64)
    bits = np.frombuffer(zlib.decompress(base64.b85decode(said["present"])), np.uint8).reshape(pages.size, PAGE // 8)
    ends = np.cumsum([0, *said["pages"]])
    if ends[-1] != pages.size:
        raise ValueError(f"it says of {pages.size} pages which slots are in use, and has written {ends[-1]}")
    found = {}
    for (partition, _), since, start, stop in zip(said["partitions"], said["since"], ends[:-1], ends[1:], strict=True):
        found[partition] = since, pages[start:stop], np.unpackbits(bits[start:stop], axis=1).astype(np.bool_)
    return found


def laid(said: Mapping[str, Any]) -> dict[int, np.ndarray[Any, Any]]:
    """What a delta says by partition: the pages in which the rows of before lie, in their order, if not where they were written."""
    found = {}
    for partition, packed in said.get("laid", {}).items():
        found[int(partition)] = np.cumsum(np.frombuffer(zlib.decompress(base64.b85decode(packed)), "<i4").astype(np.int64))
    return found


def _groups(ends: np.ndarray[Any, Any], places: np.ndarray[Any, Any]) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Numbers of the row groups that have rows of these places, ascending, and of the first one of each place; of a place without rows,
    the one where they would be. places: int (p, 2), first row and the one behind the last."""
    firsts = np.minimum(np.searchsorted(ends, places[:, 0], side="right"), len(ends) - 1)
    lasts = np.maximum(firsts, np.searchsorted(ends, places[:, 1], side="left"))
    begun, ended = np.bincount(firsts, minlength=len(ends) + 1), np.bincount(lasts + 1, minlength=len(ends) + 1)
    return np.flatnonzero(np.cumsum(begun - ended)), firsts


def whole_state(rows: pa.Table, said: Any) -> bytes:
    return bytes(rows.column("state")[0].as_py())


def table_state(rows: pa.Table, said: Any, memory: Reused | None = None) -> State:
    """The words row by row, then the objects as `page_snapshot.encode` has written them. memory: in which it is to lie."""
    return rows_state([Taken(rows, None, slice(0, rows.num_rows))], rows.num_rows, said, memory)


@dataclass(frozen=True, slots=True)
class Taken:
    """Some rows of an object. kept: which of them, ascending; None: all. into: as which rows of a state."""

    rows: pa.Table
    kept: np.ndarray[Any, Any] | None
    into: np.ndarray[Any, Any] | slice


def rows_state(taken: Sequence[Taken], count: int, said: Any, memory: Reused | None = None) -> State:
    """A state of so many rows from those of several objects: see `table_state`. memory: in which it is to lie."""
    width = int(said["width"])
    objects = _objects_of(taken, count)
    size = _HEAD.size + count * width * 8
    state = (memory or Reused()).take(size + len(objects))
    state[: _HEAD.size] = np.frombuffer(_HEAD.pack(MAGIC, width, count), np.uint8)
    state[size:] = np.frombuffer(objects, np.uint8)
    words = state[_HEAD.size : size].view(np.int64).reshape(count, width)
    for each in taken:
        _write_words(words, each)
    return state.data.toreadonly()


def _write_words(words: np.ndarray[Any, Any], taken: Taken) -> None:
    """Some rows at a time, which nobody waits for long; eight columns at a time, so that a row is written as a whole. Columns are taken as
    they were decoded, in pieces: to join them would take as much memory again."""
    count = taken.rows.num_rows if taken.kept is None else len(taken.kept)
    kept = np.arange(count) if taken.kept is None else taken.kept
    into = np.arange(taken.into.start, taken.into.start + count) if isinstance(taken.into, slice) else taken.into
    places = word_places(words.shape[1])
    gather: Any = gather_columns
    begin = 0
    for batch in taken.rows.to_batches():
        first, stop = np.searchsorted(kept, [begin, begin + batch.num_rows]).tolist()
        mine = kept[first:stop] - begin
        begin += batch.num_rows
        for group in range(0, len(places), GATHERED):
            some = places[group : group + GATHERED]
            columns = [frozen(batch.column(name).to_numpy()) for name, _ in some]
            columns += [columns[0]] * (GATHERED - len(columns))
            where = np.array([place for _, place in some], np.int64)
            for at in range(0, mine.size, WRITTEN_ROWS):
                here = slice(at, at + WRITTEN_ROWS)
                gather(*columns, where, mine[here], into[first:stop][here], words)


def _objects_of(taken: Sequence[Taken], count: int) -> memoryview:
    """The objects of these rows as `page_snapshot.encode` has written them; nothing if they have none."""
    names = [name for name in taken[0].rows.column_names if name.startswith("o")]
    if not names:
        return memoryview(b"")
    # take() writes the same buffers whatever this is a part of, as an array that was made from values has them.
    order, at = np.empty(count, np.int64), 0
    for each in taken:
        order[each.into] = at + (np.arange(each.rows.num_rows) if each.kept is None else each.kept)
        at += each.rows.num_rows
    rows, index = pa.concat_tables([each.rows.select(names) for each in taken]), pa.array(order)
    columns = [rows.column(name).combine_chunks().take(index) for name in names]
    return memoryview(pa.RecordBatch.from_arrays(columns, [str(at) for at in range(len(columns))]).serialize())
