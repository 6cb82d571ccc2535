"""Where a host's name leads, without an event loop that waits for it.

The system's resolver answers after seconds where no server of names does, and a name that is known may not be for a moment. So each name is
asked for in a thread of its own, once however many want it; and where nobody knows it, or says nothing for a while, it is taken to lead
where it led last.
"""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable
from typing import Final

from evenflow.world.spark.net.reactor import Reactor

PATIENCE_S: Final = 1.0
"""How long an answer is waited for where one is known from before."""
AGAIN_S: Final = 0.25
"""How long a name that did not resolve is not asked for again: who dials again after 30 ms is a burden to a server in trouble."""

Told = Callable[[str | None, str], None]


class Names:
    """What has been asked for in this process. From any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._known: dict[str, str] = {}
        self._waiting: dict[str, list[Told]] = {}
        self._failed: dict[str, tuple[float, str]] = {}

    def known(self, host: str) -> str | None:
        """Where it led last."""
        return self._known.get(host)

    def remember(self, host: str, address: str) -> None:
        if not is_address(host):
            self._known[host] = address

    def ask(self, host: str, told: Told) -> None:
        """told(an address, "") or told(None, why): in another thread, or in this one before this returns."""
        with self._lock:
            failed_s, why = self._failed.get(host, (0.0, ""))
            if not why or time.monotonic() - failed_s >= AGAIN_S:
                waiting = self._waiting.setdefault(host, [])
                waiting.append(told)
                if len(waiting) > 1:
                    return
                why = ""
        if why:
            told(None, why)
            return
        try:
            threading.Thread(target=self._look_up, args=(host,), name="evenflow-name", daemon=True).start()
        except RuntimeError as error:  # No more threads.
            self._answer(host, None, str(error))

    def _look_up(self, host: str) -> None:
        try:
            self._answer(host, resolve(host), "")
        except Exception as error:  # OSError; UnicodeError of what can be no name.
            self._answer(host, None, f"the name {host!r} does not resolve: {getattr(error, 'strerror', None) or error}")

    def _answer(self, host: str, address: str | None, why: str) -> None:
        with self._lock:
            waiting = self._waiting.pop(host, [])
            if address is None:
                self._failed[host] = time.monotonic(), why
            else:
                self._known[host] = address
                self._failed.pop(host, None)
        for told in waiting:
            told(address, why)


NAMES = Names()


def find(host: str, reactor: Reactor, found: Callable[[str], None], failed: Callable[[str], None]) -> None:
    """Call `found(an address)` or `failed(why)`, one of them, once, in the reactor's thread; if `host` is an address, at once. There
    is no bound: who has waited long enough no longer listens. In the reactor's thread."""
    if is_address(host):
        found(host)
        return
    names, over = NAMES, False

    def tell(address: str | None, why: str) -> None:
        nonlocal over
        if not over:
            over = True
            failed(why) if address is None else found(address)

    def told(address: str | None, why: str) -> None:
        reactor.call_soon(lambda: tell(address or names.known(host), why))

    def late() -> None:
        if (known := names.known(host)) is not None:
            tell(known, "")

    reactor.call_later(PATIENCE_S, late)
    names.ask(host, told)


def resolve(host: str) -> str:
    """Where a name leads: to an address of IPv4 if it has one, else to one of IPv6. An address leads to itself. It takes as long as the
    system's resolver does. Raises OSError, and UnicodeError for what can be no name."""
    if is_address(host):
        return host
    found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    return str(min(found, key=lambda each: each[0] != socket.AF_INET)[4][0])


def family_of(address: str) -> socket.AddressFamily:
    """Of what a socket has to be that uses it; of IPv4 for "", which is every interface."""
    return socket.AF_INET6 if ":" in address else socket.AF_INET


def is_address(host: str) -> bool:
    try:
        socket.inet_pton(family_of(host), host)
    except (OSError, ValueError):
        return False
    return True


__all__ = ["NAMES", "Names", "family_of", "find", "is_address", "resolve"]
