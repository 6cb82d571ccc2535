"""The thread of the user's code, beside a site's event loop: one work after the other, and where it is."""

from __future__ import annotations

import os
import sys
import threading
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Final

import evenflow
from evenflow.site.hosted import Work
from evenflow.site.outcome import Outcome
from evenflow.site.overdue import Running
from evenflow.world.spark.net.reactor import Reactor

PACKAGE: Final = str(Path(evenflow.__file__).parent) + os.sep
LOOK_S: Final = 0.01


class UserThread:
    """Runs the user's code of one part, and hands outcomes back to the loop."""

    def __init__(self, name: str, reactor: Reactor, done: Callable[[Outcome], None]) -> None:
        self._reactor, self._done = reactor, done
        self._works: SimpleQueue[Work | None] = SimpleQueue()
        self._running: tuple[Work, float] | None = None
        self._thread = threading.Thread(target=self._serve, name=name, daemon=True)
        self._thread.start()

    def submit(self, work: Work) -> None:
        self._works.put(work)

    def stop(self) -> int:
        """No more works: returns how many of the last ones will not be begun. One that is being done cannot be interrupted; its outcome
        will be nobody's."""
        left = 0
        try:
            while True:
                self._works.get_nowait()
                left += 1
        except Empty:
            self._works.put(None)
        return left

    def over(self, within_s: float) -> bool:
        """Whether the thread has ended, at the latest after `within_s`: at once after `stop`, unless user code is still running."""
        self._thread.join(within_s)
        return not self._thread.is_alive()

    def running(self) -> Running | None:
        """The user code that it is in, since when by the monotonic clock. From any thread."""
        running = self._running
        if running is None or not running[0].hosted.user_code:
            return None
        return Running(*running, self._stack)

    def _stack(self) -> str:
        """What the thread is at, from where the engine called the user's code on; all of it, if it is the engine that is called last."""
        frame = sys._current_frames().get(self._thread.ident or 0)
        if frame is None:
            return ""
        frames = traceback.extract_stack(frame)
        engine = [at for at, called in enumerate(frames) if called.filename.startswith(PACKAGE)]
        users = frames[engine[-1] + 1 :] if engine else frames
        return "".join(traceback.format_list(users or frames))

    def _serve(self) -> None:
        while (work := self._works.get()) is not None:
            self._running = (work, time.monotonic())
            self._reactor.working.begin()
            try:
                outcome = work.run(time.perf_counter_ns)
            except KeyboardInterrupt as error:  # The user's code has raised it: a signal's comes in the main thread.
                outcome = work.failed(error)
            self._reactor.working.end()
            self._running = None
            del work
            self._reactor.call_soon(lambda outcome=outcome: self._done(outcome))  # type: ignore[misc]


class Ending:
    """Threads of parts that are over. What one of them is doing, a commit of a table perhaps, is done to its end."""

    def __init__(self, reactor: Reactor) -> None:
        self._reactor = reactor
        self._threads: list[UserThread] = []

    def add(self, thread: UserThread | None, ended: Callable[[], None]) -> None:
        """ended: is called on the loop, when the thread has ended: at once if there is none."""
        if thread is None:
            ended()
            return
        self._threads.append(thread)
        self._look(thread, ended)

    def _look(self, thread: UserThread, ended: Callable[[], None]) -> None:
        if thread.over(0.0):
            self._threads.remove(thread)
            ended()
        else:
            self._reactor.call_later(LOOK_S, lambda: self._look(thread, ended))

    def stuck(self, patience_s: float) -> bool:
        """Whether one has not ended after so long: it cannot be stopped, only the end of the process ends it."""
        deadline_s = time.monotonic() + patience_s
        return not all(thread.over(max(0.0, deadline_s - time.monotonic())) for thread in self._threads)
