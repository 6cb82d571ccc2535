"""How the system's scheduler weighs threads: those that serve epochs come before those that start and prepare.

A lost executor starts anew on cores that others work on, and to start is seconds of work. An epoch needs some ten turns of a millisecond
or two, one after the other on several sites: among equals each of them lasts as many times longer as there are others who want the core.

Who holds the interpreter that a serving thread waits for holds that thread up, whatever it weighs itself. At a site there is nobody else;
in the driver there is the user's program, so all of its threads weigh as much as the coordinator's while there is one.
"""

from __future__ import annotations

import contextlib
import gc
import os
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from typing import Final, TypeVar

SERVING: Final = -5
"""Added to the nice value of who serves epochs: three times the weight. With more a busy site would keep a new executor from starting."""
SWITCH_INTERVAL_S: Final = 0.0005
"""How long another thread may keep the interpreter from who serves; Python's default of 5 ms is a whole linger."""
T = TypeVar("T")


@contextlib.contextmanager
def weighed(nice: int) -> Iterator[None]:
    """Add this to the nice value of the calling thread meanwhile; threads that it starts then have the same.

    Less than nothing is for those whom the system lets (root, RLIMIT_NICE); for others everything stays as it is.
    """
    thread = threading.get_native_id()
    before = _weigh([thread], nice)
    try:
        yield
    finally:
        _restore(before)


def aside(nice: int, do: Callable[[], T]) -> T:
    """What `do` returns, or raises, done with this added to the nice value, in a thread of its own that ends then.

    Anybody may weigh less, but only whom the system lets weighs as much again as before: others would weigh less each time.
    """

    def run(answer: Future[T]) -> None:
        try:
            with weighed(nice):
                made = do()
        except BaseException as error:
            answer.set_exception(error)
        else:
            answer.set_result(made)

    done: Future[T] = Future()
    threading.Thread(target=run, args=(done,), name=f"{threading.current_thread().name}-aside", daemon=True).start()
    try:
        return done.result()
    finally:
        del done  # What is raised leads to this frame, and would lead to itself, with all that it was about.


class Interpreter:
    """The interpreter of a process in which some threads serve beside those of the user's program. Safe from any thread.

    nice: added to the nice value of all of its threads, and so of those that they start, while somebody serves.
    """

    def __init__(self, nice: int) -> None:
        self._nice = nice
        self._lock = threading.Lock()
        self._serving = 0
        self._before: dict[int, int] = {}
        self._interval_s = 0.0

    @contextlib.contextmanager
    def serving(self) -> Iterator[None]:
        """Somebody serves meanwhile: whoever has the interpreter gets the processor soon, and gives the interpreter back soon."""
        with self._lock:
            self._serving += 1
            if self._serving == 1:
                self._interval_s = sys.getswitchinterval()
                sys.setswitchinterval(min(self._interval_s, SWITCH_INTERVAL_S))
                self._before = _weigh(_threads(), self._nice)
        try:
            yield
        finally:
            with self._lock:
                self._serving -= 1
                if not self._serving:
                    sys.setswitchinterval(self._interval_s)
                    gc.unfreeze()
                    self._rest()

    def settle(self) -> None:
        """What the program has by now it mostly keeps: collections of garbage, which stop all threads, pass it by while somebody serves.

        To go over some hundred thousand objects takes a tenth of a second, and several times as long on a busy machine.
        """
        with self._lock:
            if self._serving:
                gc.freeze()

    def tidy(self) -> None:
        """What has become garbage of what collections pass by goes. It takes as long as they would: not while epochs are served."""
        with self._lock:
            if self._serving:
                gc.unfreeze()
                gc.collect()
                gc.freeze()

    def _rest(self) -> None:
        """Threads that were started meanwhile have what those had that started them: they get what the calling thread had."""
        mine = self._before.get(threading.get_native_id())
        if self._before:
            usual = max(self._before.values()) if mine is None else mine
            _restore({thread: self._before.get(thread, usual) for thread in _threads()})
        self._before = {}


DRIVER: Final = Interpreter(SERVING)


def _threads() -> list[int]:
    """Of the interpreter, by the system's numbers."""
    return [thread.native_id for thread in threading.enumerate() if thread.native_id is not None]


def _weigh(threads: list[int], nice: int) -> dict[int, int]:
    """Add to their nice values. Returns the former ones of those for whom that was allowed."""
    before: dict[int, int] = {}
    if sys.platform == "linux":  # Elsewhere it is one value for the whole process.
        for thread in threads:
            with contextlib.suppress(OSError):
                value = os.getpriority(os.PRIO_PROCESS, thread)
                os.setpriority(os.PRIO_PROCESS, thread, value + nice)
                before[thread] = value
    return before


def _restore(before: dict[int, int]) -> None:
    for thread, nice in before.items():
        with contextlib.suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, thread, nice)
