"""Every error that Evenflow raises on purpose. Each says what happened, where, and what to do about it.

All derive from `EvenflowError`, so one `except` is enough; the subclasses say which part of the program to look at.
"""

from __future__ import annotations


class EvenflowError(Exception):
    """Base of all errors raised on purpose by Evenflow."""


class QueryError(EvenflowError, ValueError):
    """The query network is wrong. Raised while it is built, naming the box. Nothing has run yet."""


class UnknownColumn(QueryError):
    """A box names a column that its input does not have."""


class TypeMismatch(QueryError):
    """An expression or a box cannot work on the types of its input."""


class ExpressionError(QueryError):
    """An expression string is not Spark SQL, or uses a function that Evenflow does not have."""


class SourceError(EvenflowError):
    """A source cannot deliver: truncated file, changed schema, unreadable path."""


class SchemaChanged(SourceError):
    """A source delivered rows whose schema is not the declared one."""


class SinkError(EvenflowError):
    """A sink cannot take results and retrying did not help."""


class ClusterError(EvenflowError):
    """The Spark cluster cannot host the sites: unreachable master, too few executors or slots, Spark Connect."""


class CoordinatorLost(EvenflowError):
    """A site has lost its coordinator for longer than its lease and has stopped itself."""


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


class ArithmeticOverflow(EvenflowError, ArithmeticError):
    """An integer aggregate left the range of its type, as in Spark's ANSI mode."""


class ProtocolError(EvenflowError):
    """A machine met an event that no rule allows. A bug in Evenflow: the message tells the story."""


class StrangerRefused(EvenflowError):
    """A connection did not prove that it knows the run's secret, or did not speak the protocol."""


class TransferCorrupt(ProtocolError):
    """State that came from another site is cut off, altered, or of another version. Nothing of it was taken."""
