"""What is shown of a run, and what else goes on beside it. The run depends on none of that: what fails is said once and left."""

from __future__ import annotations

import contextlib
import errno
import logging
from collections.abc import Callable
from typing import Final

from rich.console import Console, RenderableType
from rich.live import Live
from rich.text import Text

from evenflow.cli.output import muted

log: Final = logging.getLogger("evenflow")


class Accessories:
    """Calls what a run does not depend on. say: who is told, once of each, that it failed and is not called any more."""

    def __init__(self, say: Callable[[str], None]) -> None:
        self._say = say
        self._failed: set[str] = set()

    def call(self, name: str, function: Callable[[], object]) -> bool:
        """Whether it went well. name: as people know it."""
        if name in self._failed:
            return False
        try:
            function()
        except (Exception, SystemExit) as error:  # Rich leaves the process where a pipe is broken.
            self._failed.add(name)
            log.debug("%s", name, exc_info=error)
            self._say(f"{name}: {_reason(error)}; the run does without it")
            return False
        return True


def _reason(error: BaseException) -> str:
    if isinstance(error, OSError):
        return error.strerror or str(error)
    return "nobody reads it any more" if isinstance(error, SystemExit) else f"{type(error).__name__}: {error}"


class Screen:
    """A view in a terminal, drawn by whoever calls `draw`: a thread of its own would fail by itself, and `Live.stop` once more."""

    def __init__(self, view: RenderableType, console: Console) -> None:
        self._console = console
        self._live = Live(view, console=console, auto_refresh=False)

    def begin(self) -> None:
        """Raises what the terminal or the view raises, as `draw` and `end` do: then call `leave`."""
        self._live.start()
        self.draw()

    def draw(self) -> None:
        if not self._console.is_terminal:  # Rich would say nothing until the end.
            raise OSError(errno.EIO, "the terminal is gone")
        self._live.refresh()

    def end(self) -> None:
        """The view stays as it is now."""
        self._live.stop()

    def leave(self) -> None:
        """Without a look at the view. What was being written is lost; the cursor is there again, if the terminal is."""
        with muted(self._console):
            self._live.update(Text())
            with contextlib.suppress(Exception):
                self._live.stop()
        try:
            self._console.show_cursor()
        except (OSError, SystemExit):
            with muted(self._console):
                pass
