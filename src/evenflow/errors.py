"""Every error that Evenflow raises on purpose. Each says what happened, where, and what to do about it.

All derive from `EvenflowError`, so one `except` is enough; the subclasses say which part of the program to look at.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Self


class EvenflowError(Exception):
    """Base of all errors raised on purpose by Evenflow."""


LINE_LENGTH = 1_000


def in_a_line(error: BaseException) -> str:
    """What an error says, for a table or a log: its only line, or the first and the last, which of a traceback is what was raised. At most
    LINE_LENGTH letters."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()] or [type(error).__name__]
    text = lines[0] if len(lines) == 1 else f"{lines[0]} {lines[-1]}"
    return text if len(text) < LINE_LENGTH else f"{text[: LINE_LENGTH - 1]}…"


class QueryError(EvenflowError, ValueError):
    """The query network is wrong. Raised while it is built, naming the box. Nothing has run yet.

    parameter: of the box, where one is wrong; item: which one of it, where it has several. span: the part of an expression that is wrong,
    from a letter up to one behind it; expression: of which it is a part.
    """

    parameter: str | None = None
    item: int | None = None
    span: tuple[int, int] | None = None
    expression: str = ""

    def about(self, parameter: str, item: int | None = None) -> Self:
        """The same error, of this parameter if it has not said yet of which: who is nearest to the fault knows best."""
        if self.parameter is None:
            self.parameter, self.item = parameter, item
        return self

    def at(self, start: int, end: int) -> Self:
        """The same error, of these letters if it has not said yet of which."""
        if self.span is None:
            self.span = (start, end)
        return self

    def of(self, other: QueryError) -> Self:
        """This error, which says where as the other one does."""
        self.parameter, self.item, self.span, self.expression = other.parameter, other.item, other.span, other.expression
        return self


class UnknownColumn(QueryError):
    """A box names a column that its input does not have."""


class TypeMismatch(QueryError):
    """An expression or a box cannot work on the types of its input."""


class QosError(QueryError):
    """What an output's results are worth cannot be said so: a curve that rises or falls the wrong way, or a value whose column is
    computed on its way. The message names the box and the column."""


class AvailabilityError(QueryError):
    """A mode of availability that there is not, that these boxes or sites cannot have, or that cannot give what was asked for."""


class OptionError(QueryError, TypeError):
    """An option of an engine, a source, a sink or a command has a value that it cannot have. The message says what it can be."""


class FileFailed(QueryError):
    """A user's Python file raised while it was imported, or while its dataflow() drew the dataflow. Nothing has run.

    user_traceback: the traceback of the code in the file, as text.
    """

    def __init__(self, message: str, user_traceback: str = "") -> None:
        self.user_traceback = user_traceback
        super().__init__(message)

    def __reduce__(self) -> tuple[type, tuple[str, str]]:
        return (type(self), (str(self), self.user_traceback))


class ExpressionError(QueryError):
    """An expression string is not Spark SQL, or uses a function that Evenflow does not have."""


class CodeNotAllowed(QueryError):
    """A saved dataflow names Python code, or holds a pickle, and who reads it has not said that it may be run. Nothing was imported."""


class NotPortable(QueryError):
    """Something in a query of Structured Streaming that Evenflow does not run. The message says what to do instead.

    node: what Spark calls that part of the plan. expression: the expression in it that is meant, or the whole part, as Spark writes it.
    """

    def __init__(self, message: str, expression: str = "", node: str = "") -> None:
        self.expression, self.node = expression, node
        super().__init__(message)

    def __reduce__(self) -> tuple[type, tuple[str, str, str]]:
        return (type(self), (str(self), self.expression, self.node))


class SourceError(EvenflowError):
    """A source cannot deliver: truncated file, changed schema, unreadable path."""


class SchemaChanged(SourceError):
    """A source delivered rows whose schema is not the declared one."""


class TableError(SourceError):
    """A refreshed table cannot be read, or cannot take the place of what was there before. At the start nothing has run; later the run goes
    on with what it has."""


class SinkError(EvenflowError):
    """A sink cannot take results and retrying did not help."""


class ClusterError(EvenflowError):
    """The Spark cluster cannot host the sites: unreachable master, too few executors or slots, Spark Connect."""


class OperationRefused(EvenflowError, ValueError):
    """A running engine or a checkpoint location cannot do what it was asked: there is no such site, box or checkpoint, or it cannot move,
    or is needed. Nothing has changed."""


class VersionChanged(OperationRefused):
    """A dataflow was to be replaced as it was when somebody compared, and somebody else has replaced it since. Nothing has changed."""


class EngineUnreachable(ClusterError):
    """No running engine answers at its control port: there is none, it has ended, or its file cannot be read."""


class PartitionsLost(ClusterError):
    """The last replica of some partitions is dead, and their state with it. Nothing wrong was released (protocol: two invariants).

    site: whose death it was. partitions: those that are gone, by segment. epoch: the newest that any site was known to have closed:
    results up to the last one that the sinks have are right, later ones are lost.
    """

    def __init__(self, site: int, why: str, partitions: Mapping[str, Sequence[int]], epoch: int, replicas: int = 1) -> None:
        self.site, self.why, self.partitions, self.epoch, self.replicas = site, why, partitions, epoch, replicas
        if replicas == 1:
            text = f"site {site} is lost: {why}. A run without replicas cannot go on; start it again, or with replicas=2."
        else:
            gone = "; ".join(f"{name}: {_ranges(numbers)}" for name, numbers in partitions.items())
            text = (
                f"site {site} is lost: {why}. It had the last of {replicas} replicas of these partitions: {gone or 'all'}. What they held "
                f"up to epoch {epoch} is gone; everything that the sinks were given is right. Start the run again, with spares or more "
                "replicas."
            )
        super().__init__(text)

    def __reduce__(self) -> tuple[type, tuple[object, ...]]:
        return (type(self), (self.site, self.why, self.partitions, self.epoch, self.replicas))


def _ranges(numbers: Sequence[int]) -> str:
    """1, 2, 3, 7 as 1-3, 7."""
    parts: list[list[int]] = []
    for number in numbers:
        if parts and number == parts[-1][-1] + 1:
            parts[-1][1:] = [number]
        else:
            parts.append([number])
    return ", ".join("-".join(map(str, part)) for part in parts)


class LostBeforeStart(ClusterError):
    """A site was lost while its run was being started: nothing has run yet. Start it again; with a checkpoint location the run does."""


class DriverAway(ClusterError):
    """The driver did nothing for longer than its sites live without it: it was stopped, or its machine slept. Their state is gone.

    away_s: for how long. lease_s: the engine's option. epoch: the newest that any site was known to have closed. Nothing wrong was
    released.
    """

    def __init__(self, away_s: float, lease_s: float, epoch: int) -> None:
        self.away_s, self.lease_s, self.epoch = away_s, lease_s, epoch
        super().__init__(
            f"the driver was away for {away_s:.1f} s (stopped, or its machine asleep), which is longer than lease_s ({lease_s:g} s): its "
            f"sites have ended meanwhile, and what they held up to epoch {epoch} is gone; everything that the sinks were given is right. "
            "Start the run again; if the driver may be away for so long, set lease_s to more."
        )

    def __reduce__(self) -> tuple[type, tuple[object, ...]]:
        return (type(self), (self.away_s, self.lease_s, self.epoch))


class BoxFailed(EvenflowError):
    """A box raised while it processed an epoch.

    box, epoch: where it happened. user_traceback: the traceback of the code in the box, as text.
    """

    def __init__(self, box: str, epoch: int, user_traceback: str, reason: str = "raised an exception") -> None:
        self.box, self.epoch, self.user_traceback, self.reason = box, epoch, user_traceback, reason
        super().__init__(f"box {box!r} {reason} in epoch {epoch}:\n{user_traceback}")

    def __reduce__(self) -> tuple[type, tuple[str, int, str, str]]:
        return (type(self), (self.box, self.epoch, self.user_traceback, self.reason))


class NondeterministicBox(BoxFailed):
    """A box gave two different results for the same state and input (protocol E3)."""


class UserCodeCrashed(BoxFailed):
    """Two sites died, one after the other, while they ran user code of the same box on the same epoch and partitions.

    A replica does what the others do, so a row on which user code ends its process (`os._exit`, a crash in a library, memory) would end
    every site that meets it. box: the one that calls user code, or several. segment, partitions: what both sites had; the row is of one of
    these partitions. sites: that died there. Nothing wrong was released: what the sinks were given is right.
    """

    def __init__(self, box: str, epoch: int, segment: str, partitions: tuple[int, ...], sites: tuple[int, ...], why: str) -> None:
        self.segment, self.partitions, self.sites, self.why = segment, partitions, sites, why
        at = " and then ".join(f"site {site}" for site in sites)
        super().__init__(
            box,
            epoch,
            f"{at} died while they ran it on this epoch, with partitions {_ranges(partitions)} of {segment}. The last one: {why}. Look for "
            "what ends a process: os._exit, a crash in a library (its worker's stderr on the executor has it), or memory. Other sites "
            "would have died of the same row, so the run has ended.",
            "has ended the processes that ran it",
        )

    def __reduce__(self) -> tuple[type, tuple[object, ...]]:  # type: ignore[override]
        return (type(self), (self.box, self.epoch, self.segment, self.partitions, self.sites, self.why))


class RunFailed(EvenflowError):
    """A run that somebody watches from elsewhere has failed: why, on one line. Who has started it is told more."""


class PreviewFailed(EvenflowError):
    """A preview took more than it may, or its process has ended. Nothing else has run.

    why: "cpu", "memory", "time", "size" of what it shows, or "ended".
    """

    def __init__(self, why: str, message: str) -> None:
        self.why = why
        super().__init__(message)

    def __reduce__(self) -> tuple[type, tuple[str, str]]:
        return (type(self), (self.why, str(self)))


class ArithmeticOverflow(EvenflowError, ArithmeticError):
    """An integer aggregate left the range of its type, as in Spark's ANSI mode."""


class MatchTooWide(EvenflowError):
    """The rows from one on can match a pattern in too many ways between which its conditions tell. The message names the box."""


class ProtocolError(EvenflowError):
    """A machine met an event that no rule allows. A bug in Evenflow: the message tells the story."""


class UnreadableMessage(ProtocolError):
    """What the other end of a connection says cannot be decoded: it was altered on its way, or the ends are of different versions.

    The connection is closed and the message said again over the next one; who says such things again and again is given up.
    """


class MessageForged(UnreadableMessage):
    """A message does not bear the seal of its connection: somebody on the way altered it, said it again, or put it in.

    Nothing of it was read. The connection is closed, and no other one; the ends connect again.
    """


class StrangerRefused(EvenflowError):
    """A connection did not prove that it knows the run's secret, or did not speak the protocol."""


class TlsRefused(StrangerRefused, ClusterError):
    """TLS did not come about: a certificate that has expired, is for another name or of another authority, a file that cannot be read, or
    an end that does not speak TLS. The message says which, and what to do."""


class PortsTaken(ClusterError):
    """Every port of the range that the engine's option `ports` names is taken on a machine."""


class StatisticsError(EvenflowError, ValueError):
    """Statistics are not whole: a field is missing or wrong, or windows cannot be merged."""


class PolicyError(EvenflowError, ValueError):
    """A policy is unknown, or its parameters or the hosting it is to work on are wrong."""


class DiskError(EvenflowError):
    """A site's disk cannot take state, or cannot give it back as it was. Nothing wrong was released.

    The disk that is meant is the one that holds Spark's local directories (`spark.local.dir`) on the executor's machine: make room there,
    mend it, or raise `state_memory_mb` so that less state goes to it. With `replicas=2` a site whose disk has lost state leaves, and the
    run goes on.
    """


class TransferCorrupt(ProtocolError):
    """State that came from another site is cut off, altered, or of another version. Nothing of it was taken."""


class LocationError(EvenflowError):
    """A checkpoint location cannot be used: it is of another dataflow or of a newer format, or its store cannot be reached, is not
    writable, or cannot create an object only if it is absent. Nothing of it was changed.
    """


class ProgramChanged(LocationError):
    """The dataflow is another one than that which was begun at the location. It starts from a savepoint at a location of its own; the
    message says how. Nothing was changed.
    """


class ProgramMissing(LocationError):
    """The run at the location was replaced, and a restart needs a version of it that was not given, and is not read from there unasked. The
    message says which, and what to do. Nothing was changed.
    """


class Overtaken(LocationError):
    """Another driver has begun at the location at the very moment at which this one wanted to, or has appended to its journal. Only one
    of them can go on; this one has changed nothing."""


class JournalCorrupt(LocationError):
    """An entry of the journal is missing, altered, or contradicts those before it. Nothing after it was believed."""


class CheckpointCorrupt(LocationError):
    """No retained checkpoint can be restored: objects are missing or altered. The message names the object, the box and its partitions."""


class Fenced(ClusterError):
    """Another driver has taken the checkpoint location over. This one has ended; what its sinks took is in the journal.

    Two drivers must not use one location. If that was not meant: give each dataflow a location of its own.
    """


class GroupDiffers(ClusterError):
    """A region is not of the group that was meant: it runs another program, under another name, in another shape or version.

    region: which one. field: what differs first. Nothing of that region was read or written.
    """

    def __init__(self, region: str, field: str, ours: object, theirs: object, remedy: str) -> None:
        self.region, self.field, self.ours, self.theirs, self.remedy = region, field, ours, theirs, remedy
        super().__init__(f"region {region} is of another group: its {field} is {theirs!r:.100} and not {ours!r:.100}; {remedy}")

    def __reduce__(self) -> tuple[type, tuple[object, ...]]:
        return (type(self), (self.region, self.field, self.ours, self.theirs, self.remedy))


class RegionsDisagree(EvenflowError):
    """Two regions of a group have different rows in the same epoch. That sink, or that subscription, has stopped; others go on.

    sink, epoch, region: where, and who says something else than what was taken before. Usual causes: user code that depends on a clock or
    on chance, sums of floats on different types of CPU, a source that does not give the same rows to all regions.
    """

    def __init__(self, sink: str, epoch: int, region: str, what: str) -> None:
        self.sink, self.epoch, self.region, self.what = sink, epoch, region, what
        super().__init__(
            f"sink {sink!r}, epoch {epoch}: region {region} {what}. Nothing was replaced. Look for user code that depends on a clock, on "
            "chance or on the type of CPU, and for a source that does not give all regions the same rows in the same order"
        )

    def __reduce__(self) -> tuple[type, tuple[object, ...]]:
        return (type(self), (self.sink, self.epoch, self.region, self.what))


class EpochsGone(EvenflowError):
    """A reader wants to go on behind an epoch, and no region keeps what follows on it any more.

    sink, after: what was wanted. first: behind which epoch the regions could go on, the earliest of them. Nothing was skipped.
    """

    def __init__(self, sink: str, after: int, first: int) -> None:
        self.sink, self.after, self.first = sink, after, first
        super().__init__(
            f"sink {sink!r}: what comes after epoch {after} is kept by no region any more; they can go on behind epoch {first}. Read what "
            f"is missing from a table that the group writes, and subscribe with after={first}; or keep more (keep_s, keep_mb)"
        )

    def __reduce__(self) -> tuple[type, tuple[object, ...]]:
        return (type(self), (self.sink, self.after, self.first))


class RegionsUnreachable(ClusterError):
    """None of a group's regions could be reached for as long as a subscriber is patient. It can go on later behind the last epoch that
    it was given."""
