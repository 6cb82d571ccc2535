"""A thread beside the event loop that carries out orders one after the other, and answers each on the loop with an event."""

from __future__ import annotations

import threading
from collections.abc import Callable
from queue import Empty, SimpleQueue
from typing import Generic, TypeVar

from evenflow.site.events import Event
from evenflow.world.spark.net.reactor import Reactor

Order = TypeVar("Order")


class Beside(Generic[Order]):
    """answer: is called on the event loop. Who has more to set up calls this last: the thread begins at once."""

    def __init__(self, name: str, reactor: Reactor, answer: Callable[[Event], None]) -> None:
        self._reactor, self._answer = reactor, answer
        self._asked: SimpleQueue[Order | None] = SimpleQueue()
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._serve, name=name, daemon=True)
        self._thread.start()

    def ask(self, order: Order) -> None:
        """Carry it out, and answer with its event, if it has one."""
        self._asked.put(order)

    def withdraw(self, unwanted: Callable[[Order], bool]) -> list[Order]:
        """Forget orders that have not been begun: nobody hears of them any more. Returns them, for who says so all the same."""
        waiting: list[Order | None] = []
        try:
            while True:
                waiting.append(self._asked.get_nowait())
        except Empty:
            pass
        withdrawn = []
        for order in waiting:
            if order is not None and unwanted(order):
                withdrawn.append(order)
            else:
                self._asked.put(order)
        return withdrawn

    def close(self) -> None:
        """No more answers. What is being written or read is so to its end, and forgotten."""
        self._closed.set()
        self._asked.put(None)

    def join(self, timeout_s: float) -> bool:
        """Whether the thread has ended. For tests."""
        self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def _serve(self) -> None:
        while (order := self._asked.get()) is not None:
            event = None if self._closed.is_set() else self._done(order)
            del order  # State is in it, as in the event: neither is to be kept here until the next order comes.
            if event is not None:
                self._reactor.call_soon(lambda event=event: self._tell(event))  # type: ignore[misc]
            del event

    def _tell(self, event: Event) -> None:
        if not self._closed.is_set():
            self._answer(event)

    def _done(self, order: Order) -> Event | None:
        """What comes of it, in the thread; None: nothing that anybody waits for."""
        raise NotImplementedError
