"""What a driver that stands by shows on the terminal: for whom it waits, and when that one has last given a sign of life."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Final

from rich.status import Status
from rich.text import Text

from evenflow.cli.output import Output

if TYPE_CHECKING:
    from evenflow.world.spark.driver.standing_by import StandbyProgress

LINE_EVERY_S: Final = 10.0
"""Without a terminal: a line this often, and one for whatever happens."""


def standby_line(progress: StandbyProgress) -> str:
    """One line. The journal's entries are the run's, so who sees their number grow sees that it lives."""
    if not progress.generation:
        text = f"stands by at {progress.location}: nobody has begun there yet"
    else:
        text = (
            f"stands by at {progress.location}: generation {progress.generation}, entry {progress.entry:,}, last sign of life "
            f"{progress.silent_s:.1f} s ago, takes over after {progress.patience_s:.1f} s of silence"
        )
    return text if progress.trouble is None else f"{text}; {progress.trouble}"


class Lines:
    """Told of each look; says what is new. status: where the newest line stands, None: there is no terminal."""

    def __init__(self, output: Output, status: Status | None, now_s: Callable[[], float] = time.monotonic) -> None:
        self._output, self._status, self._now_s = output, status, now_s
        self._said, self._trouble = "", False
        self._next_s = now_s() + LINE_EVERY_S

    def __call__(self, progress: StandbyProgress) -> None:
        if progress.said != self._said:
            self._said = progress.said
            self._output.say(progress.said)
        if self._status is not None:
            self._status.update(Text(standby_line(progress)))
            return
        troubled, now_s = progress.trouble is not None, self._now_s()
        if now_s >= self._next_s or troubled != self._trouble:
            self._next_s, self._trouble = now_s + LINE_EVERY_S, troubled
            self._output.say(standby_line(progress))


@contextlib.contextmanager
def standing_by(output: Output, standby: bool) -> Iterator[Lines | None]:
    """What to tell of each look, while it is waited; None for a driver that does not stand by."""
    if not standby:
        yield None
    elif output.err.is_terminal:
        with output.err.status("stands by …") as status:
            yield Lines(output, status)
    else:
        yield Lines(output, None)
