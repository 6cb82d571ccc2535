"""Ctrl-C and other signals that end a program, in the steps that take long: whoever asked for the end gets it.

Python raises KeyboardInterrupt in whatever the main thread is doing. When that is a callback of native code (kernels
are loaded by some), a finaliser, or a weak reference's (every object of the JVM that is let go has one, which asks the
JVM), the exception has nobody to go to: Python prints it, and the program goes on as if nothing had been said. So what
a signal raised is noted, and raised again at the next place where somebody hears it.

In the middle of a question to the JVM it is only noted, and raised when that is answered: a connection that is given up between question
and answer is of no use to whoever asks next, and what ends the sites has to ask. Questions that take long do not keep anybody waiting:
after a second, or when the signal comes again, they are given up all the same, and their connection with them: Spark's
client keeps one for each thread and closes it on KeyboardInterrupt alone. After SystemExit it would use it for the next
question, and take the late answer for its.

Where a job of Spark's is waited for, what was raised may wait for its end, too: PySpark, which has such jobs cancelled by its own handler,
asks for the job's result while it clears up. So whoever has let Spark begin one is told first (`called_off`), and cancels it.
"""

from __future__ import annotations

import signal
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, Final

ENDING: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
"""Signals that end a program, if it has a handler for them that raises."""

ANSWER_S: Final = 1.0
"""For which an answer of the JVM is waited for."""

_noted: list[BaseException] = []
_insisting: list[BaseException] = []
_late: list[threading.Timer] = []
_calls: list[Callable[[], None]] = []
_watching = 0


def heed() -> None:
    """Raise what a signal has raised where nobody could hear it. Cheap; for loops that wait. Does nothing in other threads."""
    if _noted and threading.current_thread() is threading.main_thread():
        error = _noted[0]
        _noted.clear()
        raise error


@contextmanager
def heeded() -> Iterator[None]:
    """What a signal raises meanwhile ends this, at the latest when it is over. May be nested. Does nothing in other threads."""
    global _watching
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    installed = {} if _watching else _install()
    _watching += 1
    try:
        yield
    except BaseException as error:
        noted = _noted.pop() if _noted else error
        if noted is not error and isinstance(error, Exception):  # What went wrong may be a consequence.
            raise noted from error
        raise
    else:
        heed()
    finally:
        try:
            if _watching == 1:
                _end_late()
        finally:
            _watching -= 1
            for number, (watcher, before) in installed.items():
                if signal.getsignal(number) is watcher:
                    signal.signal(number, before)
            if not _watching:
                _noted.clear()


@contextmanager
def called_off(call: Callable[[], None]) -> Iterator[None]:
    """For a part of a step that is heeded: `call` comes as soon as a signal has raised something, before anybody hears that.

    It is called in the middle of whatever this thread does, so it may take no lock. Does nothing in other threads."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    _calls.append(call)
    try:
        yield
    finally:
        _calls.remove(call)


def _install() -> dict[int, tuple[Any, Any]]:
    """Watchers before the handlers that there are. A signal that is ignored, or ends the process as it is, has none."""
    installed: dict[int, tuple[Any, Any]] = {}
    for number in ENDING:
        before = signal.getsignal(number)
        if callable(before):
            watcher = _watcher(before)
            signal.signal(number, watcher)
            installed[number] = (watcher, before)
    return installed


def _watcher(before: Callable[[int, FrameType | None], Any]) -> Callable[[int, FrameType | None], None]:
    def note(number: int, frame: FrameType | None) -> None:
        if _insisting and not _is_noted(_insisting.pop()):
            return  # It was heard in the moment in which it was said once more.
        try:
            if (getattr(before, "__module__", None) or "").startswith("pyspark"):
                # Spark's own handler asks the JVM to cancel all jobs, perhaps in the middle of another question to it,
                # and tears the sites away under their engine, which ends them itself.
                raise KeyboardInterrupt
            before(number, frame)
        except BaseException as error:
            again = bool(_noted)
            _noted[:] = [error]
            for call in _calls:
                call()
            asked = _asked_by(frame)
            if again and asked is not None:
                _give_up(asked)
            if again or asked is None:
                raise
            late = threading.Timer(ANSWER_S, _insist, (error, number))
            late.daemon = True
            _late.append(late)
            late.start()

    return note


def _asked_by(frame: FrameType | None) -> FrameType | None:
    """The frame of the JVM's client in which a question is asked, if one is."""
    while frame is not None:
        if str(frame.f_globals.get("__name__")).startswith("py4j."):
            return frame
        frame = frame.f_back
    return None


def _give_up(asked: FrameType) -> None:
    """Nobody uses the connection of this question any more. Its stream is left to whoever reads it at this moment."""
    frame: FrameType | None = asked
    while frame is not None and str(frame.f_globals.get("__name__")).startswith("py4j."):
        connection: Any = frame.f_locals.get("self")
        if isinstance(getattr(connection, "socket", None), socket.socket):
            connection.socket.close()
            connection.socket = None
        frame = frame.f_back


def _is_noted(error: BaseException) -> bool:
    return any(noted is error for noted in _noted)


def _insist(error: BaseException, number: int) -> None:
    """The signal comes once more, unless what it raised has been heard."""
    if _is_noted(error):
        ident = threading.main_thread().ident
        assert ident is not None
        _insisting.append(error)
        signal.pthread_kill(ident, number)  # A simulated one would not end what the thread waits for.


def _end_late() -> None:
    """Nobody insists any more: a signal that comes behind the end would be taken for one of the user's."""
    while _late:
        late = _late.pop()
        late.cancel()
        late.join()
    _insisting.clear()
