"""Warnings of a site on their way to whoever looks at its engine: at most ten a second, the rest are counted.

They are what is logged in the site's process from WARNING on, by Evenflow, by the user's code or by a library. They are in the executor's
log as well, whole; nobody has to look for it on another machine to see that something is wrong.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Final

from evenflow.world.spark.net.control import Warned

PER_SECOND: Final = 10
LONGEST: Final = 400
"""Characters of a text that are told."""


class Warnings(logging.Handler):
    """clock: seconds, of any beginning. Filled by any thread; `take` is called by one."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__(logging.WARNING)
        self._clock = clock
        self._second, self._told_in_it = 0, 0
        self._lines: list[Warned] = []
        self.left_out = 0
        """So far."""

    def emit(self, record: logging.LogRecord) -> None:
        if logging.lastResort is not None and self._is_alone(record.name):
            logging.lastResort.handle(record)  # Python writes what nobody handles; that this one looks on must not take it away.
        second = int(self._clock())
        if second != self._second:
            self._second, self._told_in_it = second, 0
        self._told_in_it += 1
        if self._told_in_it > PER_SECOND or len(self._lines) >= 10 * PER_SECOND:
            self.left_out += 1
            return
        try:
            text = record.getMessage()
            if record.exc_info and record.exc_info[1] is not None:
                text = f"{text} ({type(record.exc_info[1]).__name__}: {record.exc_info[1]})"
        except Exception as error:  # Arguments that do not fit the message are the user's.
            text = f"{record.msg!r} cannot be written ({type(error).__name__})"
        told = text.encode("utf-8", "replace").decode()
        shown = told if len(told) <= LONGEST else f"{told[: LONGEST - 1]}…"
        self._lines.append(Warned(int(record.created * 1e6), record.levelname, record.name, shown))

    @property
    def waiting(self) -> bool:
        """There are some to be told."""
        return bool(self._lines)

    def _is_alone(self, name: str) -> bool:
        """Whether nobody else is told of what this logger says."""
        logger: logging.Logger | None = logging.getLogger(name)
        while logger is not None:
            if any(handler is not self for handler in logger.handlers):
                return False
            logger = logger.parent if logger.propagate else None
        return True

    def take(self) -> tuple[Warned, ...]:
        """What has come since the last call, oldest first."""
        with self.lock:  # type: ignore[union-attr]
            lines, self._lines = self._lines, []
        return tuple(lines)
