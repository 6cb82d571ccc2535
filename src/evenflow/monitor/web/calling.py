"""What may take long is called in a thread of its own, so that the loop goes on: a few at a time, and none keeps the server from ending."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any

from evenflow.monitor.web.problems import Problem


class Calls:
    """at_once: how many. patient: more wait for their turn; else they are refused."""

    def __init__(self, at_once: int, *, patient: bool = True) -> None:
        self._at_once, self._patient = at_once, patient
        self._under_way = 0
        self._waiting: list[asyncio.Future[None]] = []
        self._answers: set[asyncio.Future[Any]] = set()

    async def call(self, make: Callable[[Any], Any], given: object) -> Any:
        """What `make` returns or raises. Called in one loop only. Raises Problem if too many are under way."""
        if self._under_way >= self._at_once:
            if not self._patient:
                raise Problem(429, "Too many", f"{self._at_once} requests are under way: wait for one of them", "OperationRefused")
            turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiting.append(turn)
            try:
                await turn
            except asyncio.CancelledError:
                if turn in self._waiting:
                    self._waiting.remove(turn)
                else:
                    self._ended()
                raise
        else:
            self._under_way += 1
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[Any] = loop.create_future()
        self._answers.add(answer)

        def run() -> None:
            result, wrong = None, None
            try:
                result = make(given)
            except BaseException as error:
                wrong = error
            try:
                loop.call_soon_threadsafe(self._tell, answer, result, wrong)
            except RuntimeError:
                pass  # The server has ended meanwhile.

        threading.Thread(target=run, name="evenflow-ui-call", daemon=True).start()
        return await asyncio.shield(answer)

    def close(self) -> None:
        """The server ends: whoever waits is told so. Called in its loop."""
        for each in [*self._waiting, *self._answers]:
            if not each.done():
                each.set_exception(Problem(503, "Not there", "this server ends", "EngineUnreachable", 3))

    def _tell(self, answer: asyncio.Future[Any], result: object, wrong: BaseException | None) -> None:
        self._ended()
        self._answers.discard(answer)
        if answer.done():
            return
        if wrong is None:
            answer.set_result(result)
        else:
            answer.set_exception(wrong)
            answer.exception()  # Whoever asked may have gone.

    def _ended(self) -> None:
        """The place is given to who has waited longest."""
        self._under_way -= 1
        while self._waiting:
            turn = self._waiting.pop(0)
            if not turn.done():
                self._under_way += 1
                turn.set_result(None)
                return


__all__ = ["Calls"]
