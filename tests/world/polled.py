"""What happens in a reactor's loop, waited for by turning it."""

from __future__ import annotations

import time
from collections.abc import Callable

from evenflow.world.spark.net.reactor import Reactor


def until(reactor: Reactor, condition: Callable[[], object], timeout_s: float = 20.0) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        reactor.poll(0.05)
