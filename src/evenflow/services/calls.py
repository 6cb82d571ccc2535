"""Calls of one function, several at a time, beside the thread that waits for them.

An `async def` is awaited in a loop of its own; any other function is called in one of as many threads as there may be calls. A call that
is not back in time is given up. A coroutine is cancelled then; a thread cannot be, so it stays with its call until that returns, and if
all of them do, calls that wait for one are given up as well. So a service that never answers costs no more than these threads.

The loop and the threads begin with the first call and end when nobody has the `Calls` any more.
"""

from __future__ import annotations

import asyncio
import inspect
import threading
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from queue import SimpleQueue
from typing import Any, Final

LONGEST_PAUSE_S: Final = 60.0
"""Between two tries: the pauses double up to this."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What came of a call. error: what its last try raised, if none of `tries` gave a value."""

    value: Any = None
    error: BaseException | None = None
    tries: int = 1


@dataclass(frozen=True, slots=True)
class Manner:
    """How a service is called. concurrency: so many calls at a time. timeout_s: for each try. retries: tries after the first one, with
    pauses of backoff_s, then twice that, and so on; who waits for the next try counts as one that is under way."""

    concurrency: int = 16
    timeout_s: float = 10.0
    retries: int = 2
    backoff_s: float = 0.1


def is_async(function: Any) -> bool:
    """Whether it can be called in a loop: what it has to wait for it awaits."""
    return inspect.iscoroutinefunction(function)


class Calls:
    """Calls of `function`. Used by one thread at a time."""

    def __init__(self, function: Callable[..., Any], manner: Manner) -> None:
        self._function, self._manner, self._is_async = function, manner, is_async(function)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._tasks: SimpleQueue[_Task | None] = SimpleQueue()

    def all(self, arguments: Sequence[tuple[Any, ...]], *, while_all_answer: bool = False) -> list[Answer | None]:
        """The answer to each call, in the order of the arguments. while_all_answer: no more calls behind one that has failed; those that
        were not made by then, or not back, have None. Never raises because of a call."""
        if not arguments:
            return []
        answers: list[Answer | None] = [None] * len(arguments)
        waiting = iter(enumerate(arguments))
        asyncio.run_coroutine_threadsafe(self._make_all(waiting, answers, while_all_answer), self._running_loop()).result()
        return answers

    # ------------------------------------------------------------ in the loop

    async def _make_all(self, waiting: Waiting, answers: list[Answer | None], while_all_answer: bool) -> None:
        callers = range(min(self._manner.concurrency, len(answers)))
        under_way = {asyncio.ensure_future(self._make(waiting, answers, while_all_answer)) for _ in callers}
        while under_way:
            done, under_way = await asyncio.wait(under_way, return_when=asyncio.FIRST_COMPLETED)
            if any(each.result() is False for each in done):
                for each in under_way:
                    each.cancel()
                await asyncio.gather(*under_way, return_exceptions=True)
                return

    async def _make(self, waiting: Waiting, answers: list[Answer | None], while_all_answer: bool) -> bool:
        """Make calls until there are no more. False if that is because one has failed."""
        for number, arguments in waiting:
            answers[number] = answer = await self._ask(arguments)
            if while_all_answer and answer.error is not None:
                return False
        return True

    async def _ask(self, arguments: tuple[Any, ...]) -> Answer:
        manner, pause_s = self._manner, self._manner.backoff_s
        for tries in range(1, manner.retries + 2):
            try:
                async with asyncio.timeout(manner.timeout_s):
                    return Answer(await self._try(arguments), tries=tries)
            except asyncio.CancelledError:
                raise
            except TimeoutError as error:
                failed: BaseException = error if str(error) else TimeoutError(f"no answer within {manner.timeout_s:g} s")
            except Exception as error:  # It is the user's function.
                failed = error
            except BaseException as error:  # It wants to end the process: that is not tried again.
                return Answer(error=error, tries=tries)
            if tries <= manner.retries:
                await asyncio.sleep(pause_s)
                pause_s = min(2 * pause_s, LONGEST_PAUSE_S)
        return Answer(error=failed, tries=manner.retries + 1)

    async def _try(self, arguments: tuple[Any, ...]) -> Any:
        if self._is_async:
            return await self._function(*arguments)
        loop = asyncio.get_running_loop()
        task = _Task(self._function, arguments, loop, loop.create_future())
        self._tasks.put(task)
        value = await task.returned
        return await value if inspect.isawaitable(value) else value

    # ------------------------------------------------------------ threads

    def _running_loop(self) -> asyncio.AbstractEventLoop:
        if self._loop is None:
            name = f"calls of {getattr(self._function, '__name__', type(self._function).__name__)}"
            self._loop = asyncio.new_event_loop()
            threads = 0 if self._is_async else self._manner.concurrency
            threading.Thread(target=_run, args=(self._loop,), name=name, daemon=True).start()
            for number in range(threads):
                threading.Thread(target=_serve, args=(self._tasks,), name=f"{name} {number}", daemon=True).start()
            weakref.finalize(self, _end, self._loop, self._tasks, threads)
        return self._loop


@dataclass(frozen=True, slots=True)
class _Task:
    """A call for a thread. returned: what it gives, if somebody still waits for it."""

    function: Callable[..., Any]
    arguments: tuple[Any, ...]
    loop: asyncio.AbstractEventLoop
    returned: asyncio.Future[Any]


def _serve(tasks: SimpleQueue[_Task | None]) -> None:
    while (task := tasks.get()) is not None:
        if task.returned.cancelled():
            continue  # Its time was over before there was a thread for it.
        value, error = None, None
        try:
            value = task.function(*task.arguments)
        except BaseException as raised:  # It is the user's function, which may call sys.exit.
            error = raised
        with suppress(RuntimeError):  # The loop has ended meanwhile.
            task.loop.call_soon_threadsafe(_give_back, task.returned, value, error)
        del task, value, error


def _give_back(returned: asyncio.Future[Any], value: Any, error: BaseException | None) -> None:
    if returned.cancelled():
        return
    if error is None:
        returned.set_result(value)
    else:
        ended = isinstance(error, StopIteration)  # No future takes that one.
        returned.set_exception(RuntimeError("the function raised StopIteration") if ended else error)


def _run(loop: asyncio.AbstractEventLoop) -> None:
    asyncio.set_event_loop(loop)
    loop.run_forever()
    loop.close()


def _end(loop: asyncio.AbstractEventLoop, tasks: SimpleQueue[_Task | None], threads: int) -> None:
    for _ in range(threads):
        tasks.put(None)
    with suppress(RuntimeError):
        loop.call_soon_threadsafe(loop.stop)


Waiting = Iterator[tuple[int, tuple[Any, ...]]]
"""Calls that nobody has begun: their numbers and arguments."""
