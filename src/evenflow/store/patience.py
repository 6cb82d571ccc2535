"""What a failure of a store means is decided here, once: `Patience` tries again what may pass and turns everything else into a SinkError
that says what to do.
"""

from __future__ import annotations

import errno
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, TypeVar

from evenflow.errors import SinkError

T = TypeVar("T")

HOPELESS: Final = frozenset({errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOTDIR, errno.EEXIST, errno.ENAMETOOLONG})
"""Errors that waiting does not mend. A full disk is not among them: somebody may make room."""


def no_wait(delay_ms: int) -> None:
    """Try again at once: for callers that have no clock to wait with."""


@dataclass(frozen=True, slots=True)
class Patience:
    """How a failing action is repeated: `retries` times more, waiting `backoff_ms`, then twice that, and so on, by `wait(ms)`."""

    root: str
    retries: int = 5
    backoff_ms: int = 100
    wait: Callable[[int], None] = no_wait
    owner: str = "parquet sink"

    def attempt(self, what: str, action: Callable[[], T]) -> T:
        """The action's result. Raises SinkError, naming `what` and the directory, when it is hopeless or patience has ended."""
        for tries in range(self.retries + 1):
            try:
                return action()
            except OSError as error:
                if error.errno in HOPELESS or tries == self.retries:
                    raise SinkError(explain(what, self.root, error, tries + 1, self.owner)) from error
                self.wait(self.backoff_ms << tries)
        raise AssertionError("unreachable: the last try returns or raises")


def explain(what: str, root: str, error: OSError, tries: int, owner: str = "parquet sink") -> str:
    """What failed, where, and what to do about it."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        advice = "the disk is full: make room there or choose another path"
    elif error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
        advice = "the directory is not writable: give the user of the executors the right to write there or choose another path"
    elif error.errno in (errno.ENOTDIR, errno.EEXIST):
        advice = "a part of the path is a file: choose another path"
    else:
        advice = "check that every executor can reach and write it"
    return f"{owner} cannot {what} in {root} ({tries} tries): {error}; {advice}. No row of this commit has been acknowledged"
