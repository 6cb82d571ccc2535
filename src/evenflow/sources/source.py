"""What a source owes the engine: a description that can be sent anywhere, and a reader for each of its partitions.

A description is picklable and opens nothing; `open` is called where the partition runs. A reader is asked for rows again and
again and never waits, unless its description says `blocking`: then the site runs it beside its event loop. Nobody here reads a
clock: `now_us` is an argument. Rows come out in the source's order; the ingress decides what forms an epoch.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from evenflow.sources.description import description_to_json
from evenflow.stream.cut import Grid
from evenflow.stream.waiting import Waiting

NO_PULSES: Final[npt.NDArray[np.int64]] = np.empty(0, np.int64)


class Reader(ABC):
    """One open partition of a source.

    ended: no row will come any more. wake_us: wall clock, microseconds since 1970, when asking again is worth while; None: as
    soon as `fileno()` is readable or, without one, in a millisecond. It is a hint for after a `read` that returned None.
    punctual: a row is there at `wake_us` and none before, so who needs none for a while may come later, and knows when the first came.
    complete: of a source that is cut by content, all rows of the epochs up to this one have been given, after each `read`. batch: of one
    that comes in whole batches, all rows of those up to this one have been, and none of a later one by the same `read`. next_place: no row
    comes that is at a smaller place, where the source has places; None: nobody knows.
    """

    ended: bool = False
    wake_us: int | None = None
    punctual: bool = False
    complete: int = 0
    batch: int = -1
    next_place: int | None = None

    @abstractmethod
    def read(self, now_us: int, max_rows: int) -> pa.RecordBatch | None:
        """The next rows, 1 to `max_rows` of them, in the declared schema; None if there is nothing now.

        now_us: wall clock, microseconds since 1970. The first call's is the reader's start. Raises SourceError naming the place.
        """

    def skip(self, rows: int) -> None:
        """Go on as if the first `rows` rows had been read here: what another reader read before it was lost is not read again. Of a source
        with a position, `rows` is the position after the last row.

        Called once, before the first `read`. Nothing left: the reader is ended, now or at its first `read`. A reader with a pace
        goes on from the last of these rows, which counts as due at the first `read`, so that nothing comes in a burst. This one
        reads the rows and throws them away, which is enough where rows wait for nobody.
        """
        while rows > 0 and not self.ended:
            batch = self.read(0, rows)
            if batch is None:
                return
            rows -= batch.num_rows

    def expect(self, through: int) -> None:
        """Rows up to here, counted as `skip` counts, were given before, so they are there, or lost. Called after `skip`, before the first
        `read`, where they are needed again. A reader that cannot wait for ever for what is lost, since it notices, need not care."""
        return

    def begin_behind(self, epoch: int) -> None:
        """Epochs up to this one have been cut by whoever read before, and all their rows are skipped: of a source that is cut by content.
        Called after `skip`, before the first `read`, if there are any."""
        return

    def meet(self, names: Sequence[str]) -> None:
        """What has come to the source while the run goes on, all of it in the order of its places (`Source.look`). Called before the first
        `read` if there is any, and whenever there is more, perhaps while another thread reads."""
        return

    def behind(self) -> tuple[str, int] | None:
        """What is read here, by name, and how much of it is there that has not been read; None if nobody can say. Asks nobody, and may be
        called while another thread reads."""
        return None

    def waiting(self, now_us: int) -> Waiting | None:
        """Rows that are there or due, and have not been read; None if nobody can say, or the source has no pace and so is never late.
        Changes nothing, asks nobody, and may be called while another thread reads. now_us: wall clock, as for `read`."""
        told = self.behind()
        return None if told is None else Waiting(told[1])

    def times(self, batch: pa.RecordBatch) -> npt.NDArray[np.int64]:
        """int64 (n,): the log times, microseconds, of what `read` has returned last; NO_NUMBER of a row without one. Only of a source that
        can be cut by time."""
        raise NotImplementedError(f"{type(self).__name__} has no log times")

    def promise(self, now_us: int) -> int | None:
        """No row comes whose log time is smaller than this: true, and never a guess by a clock (E10). None: nobody can say. Called after
        `read`, with the same `now_us`."""
        return None

    def heed_pulses(self) -> None:
        """Rows that are only there to say that time goes on are not given (E10): `pulses` says their log times. Called before the first
        `read`, of a source that is cut by content."""
        return

    def pulses(self) -> npt.NDArray[np.int64]:
        """int64 (n,): the log times, microseconds, of the pulses that the last `read` met, in order, which are before the rows that it has
        returned. They count as those of rows do. Called after each `read`."""
        return NO_PULSES

    def reach(self, way: Any) -> None:
        """Of a source that reads what other engines have made: how these are reached, which is a world's business. Called before the first
        `read`."""
        return

    def forgo(self, before: int) -> None:
        """Rows whose log times are smaller than this are not wanted, and need not be given. Called before the first `read`, of a source
        that is cut by time."""
        return

    def fileno(self) -> int | None:
        """A file descriptor that becomes readable when rows may be there, or None."""
        return None

    def close(self) -> None:
        """Give everything back. May be called twice."""
        return


def place(reader: Reader, rows: int, through: int = 0, end: int = 0) -> Reader:
    """A new reader where it goes on. rows: as for `skip`. through: as for `expect`. end: as for `begin_behind`."""
    if rows:
        reader.skip(rows)
    if through > rows:
        reader.expect(through)
    if end:
        reader.begin_behind(end)
    return reader


class Source(ABC):
    """A description of where rows come from. Subclasses are frozen dataclasses whose fields are plain values.

    kind: its name in JSON. blocking: `read` may wait for a disk, so it must not run on an event loop. pushed: Spark's tasks push
    the rows into the ingress and there is no reader. replayable: what has been read can be read again, so that after the loss of a site
    only rows in nobody's log have to be. position: a column, bigint, that ascends within a partition: where a reader is after a row is
    that row's value plus 1, greater than 0; None: it is how many rows have been read. streaming: it may go on for ever. looked_up: fields
    that were looked up, and not given: a run that is gone on with has those of its first start.
    repeats: rows that are read again, by another driver at another time, are the same ones. cuts: by what its content can be cut, "time" or
    "place", the best first (E9); none: see `not_cut`.
    """

    kind: ClassVar[str]
    blocking: ClassVar[bool] = False
    pushed: ClassVar[bool] = False
    replayable: ClassVar[bool] = True
    looked_up: ClassVar[tuple[str, ...]] = ()
    cuts: ClassVar[tuple[str, ...]] = ()
    uncut: ClassVar[str] = "its rows have neither a log time nor a place that is the same for all who read them"

    @property
    def kept(self) -> bool:
        """Where there is a checkpoint location, rows that nobody gives again are written there first (availability.md, J5). Else those
        that came after the newest checkpoint are lost with the run, and that is said."""
        return True

    @property
    def repeats(self) -> bool:
        return self.replayable and not self.pushed

    @property
    def batched(self) -> bool:
        """Its rows come in whole batches, in any order within one: event times count when their batch is whole."""
        return self.pushed

    def not_cut(self, by: str, *, trusted: bool, mirrored: bool) -> str | None:
        """Why it cannot be cut by content, by time or by place; None if it can. trusted: wrong log times have a bound. mirrored: the
        user says that it has kept the times of the source that it is a copy of."""
        if not self.cuts:
            return self.uncut
        if by not in self.cuts:
            return f"it has no {'log time' if by == 'time' else 'place'} to be cut by; give cut_by={self.cuts[0]!r}"
        return None if self.repeats else "what is read again is not the same"

    def ask_cut(self, by: str, *, trusted: bool, mirrored: bool) -> str | None:
        """As `not_cut`, if somebody else must be asked for it. Raises SourceError."""
        return None

    def grid(self, partition: int) -> Grid | None:
        """Where epochs of a partition begin and end, if it is cut by content."""
        return None

    def began_us(self, now_us: int) -> int:
        """When its first epoch begins, of a run that begins now."""
        return now_us

    def first_time(self, begin_us: int) -> int:
        """The log time at which the first epoch begins, of a run that begins at `begin_us`."""
        return begin_us

    def first_place(self, partition: int) -> int:
        """The place at which the first epoch of a partition begins."""
        return 0

    def begun(self, now_us: int) -> Source:
        """The description with which a run begins that others may go on with. now_us: wall clock, microseconds since 1970."""
        return self

    def begun_in_group(self, begin_us: int) -> Source:
        """As `begun`, of a region: in each of them, whenever and wherever it is started, the same rows are read. Raises SourceError."""
        return self.begun(begin_us)

    def lacks(self, now_us: int) -> str | None:
        """Why rows that it begins with may be gone, so that who begins now would miss them; None: they are there, or nobody can say. It may
        have to ask. Raises SourceError."""
        return None

    def places_alike(self, by: str) -> Any:
        """Where it begins and ends, of what regions have to have alike, as JSON can say it; None if that follows from the rest. by: what it
        is cut by."""
        return None

    def goes_on(self, looked_up: str, was: Any, is_: Any) -> bool:
        """Whether a source that was begun with `was` in that field, pairs of a place and a number, reads all that there is now."""
        return [place for place, _ in was] == [place for place, _ in is_]

    @property
    def waits(self) -> bool:
        """Some of its partitions wait for what may come, so that they may be without rows for ever."""
        return False

    @property
    def tells_due(self) -> bool:
        """Its readers can say since when a row that waits was due (`Reader.waiting`). Only then may rows be late, and be left out."""
        return False

    @property
    def newcomers_most(self) -> int:
        """For so many newcomers there are places; 0: nobody looks for any."""
        return 0

    def look(self, known: Sequence[str]) -> tuple[str, ...]:
        """Newcomers that are there now and have no place. known: those that have one. May take some seconds. Raises SourceError."""
        return ()

    @property
    @abstractmethod
    def schema(self) -> pa.Schema:
        """The columns of every batch that a reader returns."""

    @property
    def streaming(self) -> bool:
        return True

    @property
    def position(self) -> str | None:
        return None

    @abstractmethod
    def partitions(self, sites: int) -> int:
        """How many partitions it is read with when there are `sites` sites, >= 1."""

    def warm_up(self) -> None:
        """Make what all readers of a process share, if that takes long. Called once at every site before the run starts: whoever takes over
        a partition later opens it while others wait."""
        return

    @abstractmethod
    def open(self, partition: int, of: int) -> Reader:
        """Start reading partition `partition` of `of`. Raises SourceError if it cannot be read at all."""

    def open_for(self, partition: int, of: int, columns: Sequence[str]) -> Reader:
        """As `open`, for somebody who wants these columns, in the order of the schema. Batches may have others as well."""
        return self.open(partition, of)

    def to_json(self) -> dict[str, Any]:
        """`kind` and the fields, for `evenflow.sources.from_json`."""
        return description_to_json(self.kind, self)
