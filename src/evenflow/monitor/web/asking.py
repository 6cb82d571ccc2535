"""Operations that readers of the page ask for: each runs in a thread, is waited for a while, and goes on when that is over.

Who may only look has places and answers apart, and is in no operator's way.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

from evenflow.coordinator.requests import BY_NAME, Operation
from evenflow.monitor.web.feed import Feed
from evenflow.monitor.web.guard import Right
from evenflow.monitor.web.problems import Problem, problem_of

AT_ONCE: Final = 16
"""Operations that may be under way."""
VIEWED_AT_ONCE: Final = 8
"""Of these, asked for with a token that may only look."""
KEPT: Final = 200
"""Of those that are over, whose answer is still known, for each kind of token."""


class Ask(Protocol):
    """Carries an operation out and returns what a command prints with --json. say: is told how far it is. Raises EvenflowError."""

    def __call__(self, name: str, arguments: Mapping[str, Any], say: Callable[[str], None]) -> Mapping[str, Any]: ...


@dataclass(slots=True)
class Asked:
    """One that was asked for. number: its name. right: of who asked. done: its answer, or problem: what it ended with."""

    number: int
    operation: Operation
    right: Right
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

    def find(self, number: int, right: Right) -> Asked:
        """right: of who wants to know. Raises Problem if there is none of that number, or it is an operator's and they may only look:
        numbers can be guessed, and an operator sees more."""
        found = self._asked.get(number)
        if found is None:
            raise Problem(404, "Not Found", f"there is no request {number}, or it is forgotten")
        if found.right == "operate" and right != "operate":
            raise Problem(403, "Not allowed", f"an operator has asked for request {number}, and gets its answer", "OperationRefused")
        return found

    def begin(self, name: str, arguments: Mapping[str, Any], right: Right) -> Asked:
        """arguments: checked. right: of who asks. Raises Problem if too many are under way."""
        under_way = [each for each in self._asked.values() if not each.over.is_set()]
        if right != "operate" and sum(each.right != "operate" for each in under_way) >= VIEWED_AT_ONCE:
            why = f"{VIEWED_AT_ONCE} requests of those who may only look are under way: wait for one of them"
            raise Problem(429, "Too many", why, "OperationRefused")
        if len(under_way) >= AT_ONCE:
            raise Problem(429, "Too many", f"{AT_ONCE} requests are under way: wait for one of them", "OperationRefused")
        self._count += 1
        asked = self._asked[self._count] = Asked(self._count, BY_NAME[name], right)
        for number in [n for n, each in self._asked.items() if each.over.is_set() and each.right == right][:-KEPT]:
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
