"""Operations that readers of the page ask for: each runs in a thread, is waited for a while, and goes on when that is over."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

from evenflow.coordinator.requests import BY_NAME, Operation
from evenflow.monitor.web.feed import Feed
from evenflow.monitor.web.problems import Problem, problem_of

AT_ONCE: Final = 16
"""Operations that may be under way."""
KEPT: Final = 200
"""Of those that are over, whose answer is still known."""


class Ask(Protocol):
    """Carries an operation out and returns what a command prints with --json. say: is told how far it is. Raises EvenflowError."""

    def __call__(self, name: str, arguments: Mapping[str, Any], say: Callable[[str], None]) -> Mapping[str, Any]: ...


@dataclass(slots=True)
class Asked:
    """One that was asked for. number: its name. done: its answer, or problem: what it ended with."""

    number: int
    operation: Operation
    said: list[str] = field(default_factory=list)
    done: Mapping[str, Any] | None = None
    problem: Problem | None = None
    over: asyncio.Event = field(default_factory=asyncio.Event)

    def to_json(self) -> dict[str, Any]:
        return {"request": self.number, "operation": self.operation.name, "said": self.said, "over": self.over.is_set(), "done": self.done}


class Desk:
    """Takes what is asked for."""

    def __init__(self, ask: Ask, feed: Feed) -> None:
        self._ask, self._feed = ask, feed
        self._asked: dict[int, Asked] = {}
        self._count = 0

    def find(self, number: int) -> Asked | None:
        return self._asked.get(number)

    def begin(self, name: str, arguments: Mapping[str, Any]) -> Asked:
        """arguments: checked. Raises Problem if too many are under way."""
        under_way = [each for each in self._asked.values() if not each.over.is_set()]
        if len(under_way) >= AT_ONCE:
            raise Problem(429, "Too many", f"{AT_ONCE} requests are under way: wait for one of them", "OperationRefused")
        self._count += 1
        asked = self._asked[self._count] = Asked(self._count, BY_NAME[name])
        for number in [n for n, each in self._asked.items() if each.over.is_set()][:-KEPT]:
            del self._asked[number]
        loop = asyncio.get_running_loop()
        threading.Thread(target=self._carry_out, args=(asked, arguments, loop), name=f"evenflow-ui-{name}", daemon=True).start()
        return asked

    def _carry_out(self, asked: Asked, arguments: Mapping[str, Any], loop: asyncio.AbstractEventLoop) -> None:
        told: dict[str, Any] = {"request": asked.number, "operation": asked.operation.name}
        reads = asked.operation.effect == "read"

        def say(text: str) -> None:
            asked.said.append(text)
            if not reads:
                self._feed.say({**told, "said": text})

        try:
            asked.done = self._ask(asked.operation.name, arguments, say)
        except Exception as error:
            asked.problem = problem_of(error)
        if not reads:
            ending = {"over": True, "problem": None if asked.problem is None else asked.problem.detail}
            self._feed.say({**told, **ending})
        try:
            loop.call_soon_threadsafe(asked.over.set)
        except RuntimeError:
            pass  # The server has stopped meanwhile.
