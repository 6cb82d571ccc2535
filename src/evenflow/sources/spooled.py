"""What Spark has written of a streaming DataFrame below a checkpoint location, batch by batch, as a source (availability.md, J5).

    streamed/BOX/batches/0000000007.json      what batch 7 has, made once and only if there is none
    streamed/BOX/rows/0000000007-...arrow     its rows, objects of Arrow's own format

Spark's tasks deliver in any order and more than once, and forget what they were answered. What counts is the object that names a batch's
rows: an attempt that Spark gave up is in none. A row's position is how many rows have gone before it in all batches, so whoever reads
again, at any site and after any loss, reads the same rows. As with rows that are pushed, event times count when their batch is whole.

Others may be able to write there. Nothing of an object with rows is looked into before its digest is that of the batch, and no name leads
out of the folder.
"""

from __future__ import annotations

import errno
import json
import re
import uuid
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Final, NamedTuple

import pyarrow as pa

from evenflow.errors import LocationError, SourceError
from evenflow.sources.source import Reader, Source
from evenflow.store.objects import Store
from evenflow.store.opening import open_store
from evenflow.stream.declared import Declared, May, anything
from evenflow.stream.digest import digest_of
from evenflow.stream.ipc import batch_from_bytes, batch_to_bytes

FOLDER: Final = "streamed"
OBJECT_ROWS: Final = 65_536
OBJECT_BYTES: Final = 16 * 2**20
"""Rows and bytes of an object with rows at most, but for one row that has more."""
MOST_BATCH_BYTES: Final = 1 << 26
"""Of what names a batch's rows: some hundred thousand objects."""
LISTS: Final = 8
"""So often it is listed which batches there are, if some of them go meanwhile."""
RETRY_US: Final = (100_000, 5_000_000)
"""After so long a store that fails is asked again: from, doubled each time, up to."""
FOR_GOOD: Final = frozenset({errno.ENOENT, errno.EINVAL, errno.EFBIG})
"""What a store says of an object that is gone, of a name that is none, and of an object that is too large: it will say so again."""
POLL_US: Final = 20_000
"""How often a reader that has everything looks for the next batch."""
BATCH: Final = re.compile(r"(\d{10})\.json")
NUMBERED: Final = re.compile(r"(\d{10})[.-]")


class Piece(NamedTuple):
    """An object with rows. name: below the folder of the box's rows."""

    name: str
    rows: int
    digest: str


class Batch(NamedTuple):
    """One batch of Spark's. first: rows of all batches before it. ended: there is none any more from this one on, which has no rows."""

    number: int
    first: int
    pieces: tuple[Piece, ...] = ()
    ended: bool = False

    @property
    def rows(self) -> int:
        return sum(piece.rows for piece in self.pieces)

    @property
    def behind(self) -> int:
        """Rows of all batches up to this one."""
        return self.first + self.rows


class _Forgotten(Exception):
    """A batch that was listed is not there any more."""


class Spool:
    """The batches of one box at a store. folder: of no other box. Methods raise OSError as the store does, and LocationError for what is
    not as it was written."""

    def __init__(self, store: Store, folder: str) -> None:
        self._store, self.folder = store, f"{FOLDER}/{folder}"

    # ------------------------------------------------------------ to be read

    def batch(self, number: int) -> Batch | None:
        """None if it has not been written."""
        name = self._name(number)
        try:
            data = self._store.get(name, MOST_BATCH_BYTES)
        except FileNotFoundError:
            return None
        try:
            said = json.loads(data)
            pieces = tuple(Piece(str(name), int(rows), str(digest)) for name, rows, digest in said["pieces"])
            return Batch(number, int(said["first"]), pieces, bool(said["ended"]))
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise LocationError(f"{self._store.url}: {name} does not say which rows it means; it was altered or cut off") from error

    def rows(self, batch: Batch, skip: int) -> Iterator[pa.RecordBatch]:
        """The rows of a batch but for the first so many, an object at a time."""
        for piece in batch.pieces:
            if piece.rows > skip:
                yield self._opened(piece).slice(skip)
            skip = max(0, skip - piece.rows)

    def _opened(self, piece: Piece) -> pa.RecordBatch:
        name = f"{self.folder}/rows/{piece.name}"
        data = self._store.get(name)
        if digest_of(data) != piece.digest:
            raise LocationError(f"{self._store.url}: {name} is not what was written: it was altered or cut off")
        rows = batch_from_bytes(data)
        if rows.num_rows != piece.rows:
            raise LocationError(f"{self._store.url}: {name} has {rows.num_rows} rows, and is to have {piece.rows}")
        return rows

    def numbers(self) -> list[int]:
        """Of the batches that are there, ascending."""
        names = self._store.names(f"{self.folder}/batches/")
        return sorted(int(match[1]) for name in names if (match := BATCH.fullmatch(name.rpartition("/")[2])) is not None)

    def at(self, position: int) -> Batch:
        """The last batch that begins there or before: what comes behind `position` rows is in it, or in a later one. Raises LookupError if
        these rows are gone, or have never been there."""
        for _ in range(LISTS):
            try:
                return self._at(position)
            except _Forgotten:
                continue  # Older ones go while it is looked for: the writer keeps what is behind a position, and nothing before.
        raise LookupError(f"batches go faster than the rows behind the first {position} can be looked for")

    def _at(self, position: int) -> Batch:
        numbers, found = self.numbers(), dict[int, Batch]()

        def first(number: int) -> int:
            batch = self.batch(number)
            if batch is None:
                raise _Forgotten
            found[number] = batch
            return batch.first

        place = bisect_right(numbers, position, key=first) - 1
        if place < 0:
            raise LookupError(f"the rows behind the first {position} are not kept any more" if numbers else "no batch is there")
        first(numbers[place])
        batch = found[numbers[place]]
        if position > batch.behind:
            raise LookupError(f"there are {batch.behind} rows, and {position} have been read")
        return batch

    # ------------------------------------------------------------ to be written

    def put(self, number: int, task: str, batches: Iterable[pa.RecordBatch]) -> Iterator[Piece]:
        """Bring a task's rows into the store. task: says which attempt it is, for people."""
        nonce = uuid.uuid4().hex[:12]
        for count, batch in enumerate(_in_objects(batches)):
            data = batch_to_bytes(batch)
            name = f"{number:010d}-{task}-{nonce}-{count:04d}.arrow"
            self._store.put(f"{self.folder}/rows/{name}", data)
            yield Piece(name, batch.num_rows, digest_of(data))

    def name(self, number: int, pieces: Sequence[Piece], *, ended: bool = False) -> Batch:
        """The batch is made of these objects, unless it was made before: then that is returned. Batches come one after the other."""
        before = self.batch(number - 1) if number else None
        if number and before is None:
            raise LocationError(f"{self._store.url}: batch {number - 1} of {self.folder} is not there, and {number} was to follow it")
        made = Batch(number, 0 if before is None else before.behind, tuple(pieces), ended)
        said = {"version": 1, "first": made.first, "pieces": [list(piece) for piece in made.pieces], "ended": ended}
        try:
            self._store.create(self._name(number), json.dumps(said).encode())
        except FileExistsError:
            found = self.batch(number)
            assert found is not None, "what exists is there"
            return found
        return made

    def forget(self, position: int) -> int:
        """Delete whatever is of batches that are over at this position; returns how many objects went. The newest one stays. What goes
        first is what names the rows, so a batch that is there is there whole. What killed writers have left of these batches goes, too."""
        numbers, kept = self.numbers(), 0
        while kept < len(numbers) - 1 and (batch := self.batch(numbers[kept])) is not None and batch.behind <= position:
            kept += 1
        if not kept:
            return 0
        gone = [self._name(number) for number in numbers[:kept]]
        gone += [name for name in self._store.names(f"{self.folder}/rows/") if _is_before(name, numbers[kept])]
        for name in gone:
            self._store.delete(name)
        self._store.clear(f"{self.folder}/", lambda name: _is_before(name, numbers[kept]))
        return len(gone)

    def _name(self, number: int) -> str:
        return f"{self.folder}/batches/{number:010d}.json"


def _is_before(name: str, number: int) -> bool:
    """Whether this is an object of a batch before that one. A folder is none."""
    found = NUMBERED.match(name.rpartition("/")[2])
    return found is not None and int(found[1]) < number


def _in_objects(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The same rows in batches of the size of objects."""
    held, rows, size = list[pa.RecordBatch](), 0, 0
    for batch in batches:
        most = min(OBJECT_ROWS, max(1, batch.num_rows * OBJECT_BYTES // max(batch.nbytes, 1)))
        for first in range(0, batch.num_rows, most):
            piece = batch.slice(first, most)
            if held and (rows + piece.num_rows > OBJECT_ROWS or size + piece.nbytes > OBJECT_BYTES):
                yield pa.concat_batches(held)
                held, rows, size = [], 0, 0
            held.append(piece)
            rows, size = rows + piece.num_rows, size + piece.nbytes
    if held:
        yield pa.concat_batches(held)


# ---------------------------------------------------------------- as a source


class SpooledReader(Reader):
    """_batch: that is read, _rows its rows from those on that have not been given, of which there are _missing.

    A store that fails is asked again for as long as it takes: rows wait there, and whoever else reads would find it no better.
    """

    def __init__(self, spool: Spool) -> None:
        self._spool = spool
        self._retry_us = RETRY_US[0]
        self._number, self._missing, self._skipped = 0, 0, 0
        self._batch: Batch | None = None
        self._rows: Iterator[pa.RecordBatch] = iter(())
        self._left: pa.RecordBatch | None = None

    def skip(self, rows: int) -> None:
        self._skipped = rows

    def read(self, now_us: int, max_rows: int) -> pa.RecordBatch | None:
        self.wake_us = None
        try:
            rows = self._read(now_us, max_rows)
        except (OSError, LookupError, ValueError) as error:
            if isinstance(error, OSError) and error.errno not in FOR_GOOD:
                self.wake_us, self._retry_us = now_us + self._retry_us, min(2 * self._retry_us, RETRY_US[1])
                return None
            raise SourceError(f"cannot read {self._spool.folder}: {type(error).__name__}: {error}") from error
        self._retry_us = RETRY_US[0]
        return rows

    def _read(self, now_us: int, max_rows: int) -> pa.RecordBatch | None:
        if self._skipped:
            self._seek()
            return None  # Of what was whole before it is said so before any row comes.
        if self._batch is None and not self._next(now_us):
            return None
        rows = self._left if self._left is not None else self._more()
        self._left = None
        if rows is not None:
            if rows.num_rows > max_rows:
                rows, self._left = rows.slice(0, max_rows), rows.slice(max_rows)
            self._missing -= rows.num_rows
        if not self._missing:
            self._end()
        return rows

    def _more(self) -> pa.RecordBatch | None:
        """The rest of an object of the batch."""
        assert self._batch is not None
        try:
            return next(self._rows, None)
        except OSError:  # What has failed gives nothing any more.
            self._rows = self._spool.rows(self._batch, self._batch.rows - self._missing)
            raise

    def _next(self, now_us: int) -> bool:
        """Begin the next batch, if it is there."""
        batch = self._spool.batch(self._number)
        if batch is None:
            self.wake_us = now_us + POLL_US
            return False
        self._begin(batch, 0)
        return not self.ended

    def _begin(self, batch: Batch, given: int) -> None:
        """Read this batch, behind so many of its rows."""
        self._batch, self._missing, self._rows = batch, batch.rows - given, self._spool.rows(batch, given)
        self._number, self.ended = batch.number, batch.ended

    def _end(self) -> None:
        """All of its rows have been given."""
        self.batch, self._number, self._batch = self._number, self._number + 1, None

    def _seek(self) -> None:
        """Go on behind the rows that were read before. Between two batches nobody knows whether it was said that the first is whole, so it
        is said again; where rows of the second have come, it was: an epoch has rows of one batch only, and that word behind them."""
        position = self._skipped
        batch = self._spool.at(position)
        self._skipped = 0
        self._begin(batch, position - batch.first)
        if not self._missing:
            self._end()
        elif position == batch.first:
            self.batch = batch.number - 1


@dataclass(frozen=True)
class SpooledSource(Declared, Source):
    """columns: the DataFrame's. url: the location, on which nothing depends but where it is. folder: of the box. dataframe: lives in the
    driver only."""

    kind: ClassVar[str] = "spooled"
    blocking: ClassVar[bool] = True
    uncut: ClassVar[str] = "which batches Spark makes of its rows depends on when it looks"
    columns: pa.Schema
    folder: str
    url: str = field(default="", compare=False)
    dataframe: Any = field(default=None, compare=False, repr=False)
    MAY: ClassVar[Mapping[str, May]] = {"url": anything(), "dataframe": anything()}
    option_owner: ClassVar[str] = "spooled source"

    @property
    def schema(self) -> pa.Schema:
        return self.columns

    @property
    def batched(self) -> bool:
        return True

    def partitions(self, sites: int) -> int:
        """One: see `SparkSource`."""
        return 1

    def open(self, partition: int, of: int) -> SpooledReader:
        return SpooledReader(Spool(open_store(self.url), self.folder))

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "dataframe": None}

    def to_json(self) -> dict[str, Any]:
        """Without where the location is: it may be moved."""
        return Source.to_json(SpooledSource(self.columns, self.folder))


__all__ = ["Batch", "Piece", "Spool", "SpooledReader", "SpooledSource"]
