"""What a sink owes the engine: a description that can be sent anywhere, and a writer where results are released.

Whole epochs are released, in order, each once (protocol O1). Where a sink lives is the first thing the planner asks:

    none     rows are consumed and counted where they are produced
    driver   epochs are sent to the driver, which calls the writer
    site     the sites write by themselves: the planner ends the dataflow with the sink's own steps (stage, commit; protocol O2)
    spark    frames are kept until Spark's own commit (O2)
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar, Final, Literal

import pyarrow as pa

from evenflow.errors import SinkError
from evenflow.sources.description import description_to_json
from evenflow.stream.declared import May, whole

PATIENCE: Final[Mapping[str, May]] = {"retries": whole(0, 10**6), "backoff_ms": whole(0, 10**9)}
"""What the options may be that all sinks share."""
MOST_WRITERS: Final = 4096
Where = Literal["none", "driver", "site", "spark"]


class RunOver(SinkError):
    """An epoch is not written, since the run is over: nobody waits for it any more."""


class Writer(ABC):
    """One open sink of one run. newest: the last epoch of the run that it had when it was opened, as far as it remembers epochs."""

    newest: int = 0

    @abstractmethod
    def write(self, epoch: int, batch: pa.RecordBatch) -> None:
        """Take all the results of `epoch`. Epochs come in ascending order; one that fails is offered again by the caller.

        Raises whatever went wrong; the caller retries `retries` times, waiting `backoff_ms`, twice that, and so on, and holds the
        source back meanwhile.
        """

    def write_portion(self, epoch: int, batch: pa.RecordBatch) -> None:
        """Take some partitions' results of `epoch`, of a sink that `takes_portions`. Those of a partition come once and in ascending order
        of epochs; portions of an epoch may come after those of a later one. Raises as `write`."""
        self.write(epoch, batch)

    def begin_behind(self, epoch: int) -> None:
        """What is written first is behind this epoch, the last one with rows before it. Called before the first `write`, of a region that
        began in the middle (race.md, W4)."""
        return

    def interrupt(self) -> None:
        """The run is over: a `write` that waits for others does so no more, and raises RunOver, having written nothing. Called from another
        thread, which it may not hold up, perhaps twice; `close` follows."""
        return

    def ended(self) -> None:
        """Every source of the run has ended, and all its epochs have been written. Called before `close`, and not for a run that was
        stopped."""
        return

    def close(self) -> None:
        """Give everything back. May be called twice."""
        return


class Appender(ABC):
    """An open sink to which the regions of a group write. It remembers the last epoch with rows and that one's digest.

    fenced: the last `append` took nothing because another region writes now. noted: whose the last epoch is, as `last` found it: what
    the appender that took it was opened with; "" if that is not known. forgets: what it has is forgotten if nobody says it for some days.
    """

    forgets: ClassVar[bool] = False
    fenced: bool = False
    noted: str = ""

    @abstractmethod
    def last(self) -> tuple[int, int]:
        """(epoch, digest) of the last epoch that it has of the group; (0, 0) before the first."""

    @abstractmethod
    def append(self, prev: int, epoch: int, digest: int, batch: pa.RecordBatch) -> bool:
        """Take all rows of `epoch` if the last epoch is `prev`, in one step with noting it. False if it is another one: nothing was done.
        After an error it is not known whether it was taken; `last` says."""

    def say_again(self) -> None:
        """Note again what it has, of a sink that `forgets`. Raises SinkError."""
        return

    def close(self) -> None:
        """Give everything back. May be called twice."""
        return


def replaced(sink: str, generation: int, run: str) -> SinkError:
    """What a writer says that belongs to an earlier generation of a run than the one that writes by now. run: without a generation."""
    return SinkError(
        f"{sink} is written by a later generation than {generation} of run {run}: another driver has taken this one's place, or the "
        "checkpoint location was put back to an earlier time"
    )


def with_note(digest: int, whose: str) -> str:
    """A digest and whose it is, as one text."""
    return f"{digest} {whose}" if whose else str(digest)


def read_note(text: str | None) -> tuple[int, str]:
    """What `with_note` has made one text of; (0, "") of none."""
    digest, _, whose = (text or "").partition(" ")
    return int(digest or 0), whose


class Sink(ABC):
    """A description of where results go. Subclasses are frozen dataclasses.

    kind: its name in JSON. where: see above. retries, backoff_ms: how often and how patiently a failing `write` is tried again.
    at_least_once: the sink cannot remember an epoch, so one may be seen twice after a failure; the plan's text says so.
    takes_portions: rows may come first come, first served (`Writer.write_portion`).
    compares: regions of a group can write to it (`open_for_group`).
    marked: its readers want to know up to which epoch no rows have come, too.
    """

    kind: ClassVar[str]
    where: ClassVar[Where]
    at_least_once: ClassVar[bool] = False
    takes_portions: ClassVar[bool] = False
    compares: ClassVar[bool] = False
    marked: ClassVar[bool] = False
    retries: int = 5
    backoff_ms: int = 100

    @property
    def place(self) -> tuple[object, ...] | None:
        """Where it writes, if two boxes of a dataflow cannot write there: equal for equal places, as far as can be told without a look."""
        return None

    @abstractmethod
    def open(self, run_id: str) -> Writer:
        """A writer for one run. Raises SinkError if nothing could ever be written; no row has been acknowledged then."""

    def open_for_group(self, group: str, name: str, whose: str = "") -> Appender:
        """For a region of that group, where `compares` says that it can be. name: of the sink in its dataflow. whose: is noted with each
        epoch, at most 1,000 bytes. Raises SinkError."""
        raise NotImplementedError(f"a {self.kind} sink cannot compare what it has with what a region brings")

    def goes_on_as(self, known: Mapping[str, Any]) -> Sink:
        """The description with which a run goes on. known: what was said of the one with which it was begun, as JSON has it."""
        return self

    def prepare(self, run_id: str, schema: pa.Schema) -> int:
        """See that rows of these columns can be written, where sites write by themselves; in the driver, before a row is read. Returns the
        last epoch of the run that is there, 0 if none is. Raises SinkError."""
        writer = self.open(run_id)
        writer.close()
        return writer.newest

    def check(self, schema: pa.Schema) -> None:
        """Raise QueryError, or a subclass of it, if rows of these columns cannot go here."""
        return

    def to_json(self) -> dict[str, Any]:
        """`kind` and the fields, for `evenflow.sinks.from_json`."""
        return description_to_json(self.kind, self)
