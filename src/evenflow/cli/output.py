"""What a command says: people read standard output, or with --json one object is there and everything else on standard error.

In JSON mode file descriptor 1 itself leads to standard error while the command runs, so that neither a user's print nor a child
process can put anything beside the object.
"""

from __future__ import annotations

import json
import os
import sys
import traceback
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import TracebackType
from typing import Any, Final, Self

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.text import Text

from evenflow.errors import BoxFailed, ClusterError, EvenflowError, FileFailed, OperationRefused, PolicyError, QueryError, StatisticsError
from evenflow.stream.visible import visible

OK: Final = 0
FAILED: Final = 1
USAGE: Final = 2
CLUSTER: Final = 3
INTERRUPTED: Final = 130


def exit_code_of(error: BaseException) -> int:
    """Exit code of a command that raised `error`."""
    if isinstance(error, KeyboardInterrupt):
        return INTERRUPTED
    if isinstance(error, QueryError | PolicyError | StatisticsError | OperationRefused):
        return USAGE
    if isinstance(error, ClusterError):
        return CLUSTER
    return FAILED


def error_object(error: BaseException) -> dict[str, Any]:
    """The value of "error" in JSON: type, message, exit_code; for a failed box also box, epoch and user_traceback."""
    described: dict[str, Any] = {"type": type(error).__name__, "message": str(error), "exit_code": exit_code_of(error)}
    if isinstance(error, FileFailed):
        described |= {"user_traceback": error.user_traceback}
    if isinstance(error, BoxFailed):
        described |= {"box": error.box, "epoch": error.epoch, "user_traceback": error.user_traceback}
    return described


class Verbatim(Console):
    """Shows a text as it is, whoever has written it: nothing in it is markup or the name of an emoji, and what would steer the terminal is
    seen (`visible`). Styles are given with `Text`, or `markup=True` where all of it is written here."""

    def __init__(self, *, stderr: bool = False) -> None:
        super().__init__(stderr=stderr, markup=False, emoji=False)

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        for segment in super().render(renderable, options):
            seen = segment.text if segment.control else visible(segment.text)
            yield segment if seen is segment.text else Segment(seen, segment.style)


@contextmanager
def muted(console: Console) -> Iterator[None]:
    """Nothing is written, and what waits to be is lost."""
    quiet, console.quiet = console.quiet, True
    try:
        with console:
            yield
    finally:
        console.quiet = quiet


class Aside(Verbatim):
    """Standard error. Nothing ends because its reader is gone or its disk full: what it does not take is lost."""

    def __init__(self) -> None:
        super().__init__(stderr=True)

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        """Whatever is written is written here: also what turns, and hides the cursor."""
        try:
            super().__exit__(kind, error, trace)
        except OSError:
            self._lose()

    def on_broken_pipe(self) -> None:
        """Rich's own closes standard output and leaves the process."""
        self._lose()

    def _lose(self) -> None:
        """What waits to be written: it would come again before the next line."""
        with muted(self):
            pass


class Output:
    """The two streams of one command. out: for people, where results go. err: what is under way, and errors."""

    def __init__(self, *, as_json: bool) -> None:
        self.as_json = as_json
        self.err = Aside()
        self.out: Console = self.err if as_json else Verbatim()
        self.lost = False
        """Standard output has not taken the object."""
        self._object: str | None = None
        self._stdout = -1
        self._python_stdout = sys.stdout

    def __enter__(self) -> Self:
        if self.as_json:
            sys.stdout.flush()
            self._stdout = os.dup(1)
            os.dup2(2, 1)
            self._python_stdout, sys.stdout = sys.stdout, sys.stderr
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if not self.as_json:
            return
        sys.stdout.flush()
        sys.stdout = self._python_stdout
        os.dup2(self._stdout, 1)
        os.close(self._stdout)
        if self._object is not None:
            try:
                with open(1, "w", encoding="utf-8", closefd=False) as out:
                    out.write(f"{self._object}\n")
            except BrokenPipeError:
                pass  # Whoever reads no more, such as `| head`, need not be told so.
            except OSError as full:
                self.lost = True
                self._wrong(f"standard output does not take the object: {full.strerror}")

    @property
    def reported(self) -> bool:
        return self._object is not None

    def report(self, content: Mapping[str, Any] | Sequence[Any]) -> None:
        """The command's one object, or list; nothing without --json. Raises ValueError for numbers that JSON has not."""
        told = dict(content) if isinstance(content, Mapping) else list(content)
        self._object = json.dumps(told, default=str, allow_nan=False) if self.as_json else ""

    def say(self, text: str) -> None:
        """One line about what is under way."""
        self.err.print(Text(text, style="dim"), soft_wrap=True)

    def show(self, text: str) -> None:
        """Lines that are laid out already, on standard output as they are; what would steer a terminal is seen (`visible`)."""
        print(visible(text), end="")

    def error(self, error: Exception) -> None:
        """One message: what is wrong and what to do. Only a bug shows its traceback."""
        self.report({"error": error_object(error)})
        if not isinstance(error, EvenflowError):
            self.err.print(Text("".join(traceback.format_exception(error)).rstrip(), style="dim"))
        label = "error" if isinstance(error, EvenflowError) else "unexpected error"
        self._wrong(str(error) or type(error).__name__, label)

    def _wrong(self, text: str, label: str = "error") -> None:
        self.err.print(Text.assemble((f"{label}: ", "bold red"), (text, "red")), soft_wrap=True)

    def usage_error(self, error: Exception) -> int:
        """Typer's own message for wrong options."""
        message = str(getattr(error, "format_message", lambda: error)())
        self.report({"error": {"type": "UsageError", "message": message, "exit_code": USAGE}})
        context = getattr(error, "ctx", None)
        if context is not None:
            self.err.print(Text(context.get_usage(), style="dim"))
        self._wrong(message)
        if context is not None:
            self.err.print(Text(f"Try '{context.command_path} --help'.", style="dim"))
        return USAGE

    def interrupted(self) -> int:
        if not self.reported:
            self.report({"error": {"type": "Interrupted", "message": "interrupted", "exit_code": INTERRUPTED}})
        self.err.print(Text("interrupted", style="bold yellow"))
        return INTERRUPTED
