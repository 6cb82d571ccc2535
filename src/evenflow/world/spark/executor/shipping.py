"""State on its way from a site to another, beside both event loops (protocol C2).

    hello {"as": "state", run, copy, bytes};  CHUNK...                  -> {"taken": true}

A thread at the source reads the snapshots, so that the operators soon stop keeping old rows for them, and then sends at a bounded
rate. The target's event loop collects the chunks; only when all are there and whole does anybody hear of them. A transfer is never
taken up again: if it breaks, the copy is off, and the coordinator begins another one (C4).

What is sent is never unpickled: words, Arrow IPC and JSON.
"""

from __future__ import annotations

import json
import logging
import sys
import threading
import time
from collections.abc import Callable
from typing import Final

from evenflow.errors import EvenflowError, ProtocolError
from evenflow.state.transfer import CHUNK_BYTES, Assembly, Shipped, chunks
from evenflow.world.spark.executor.resting import Rests
from evenflow.world.spark.net.channel import Channel
from evenflow.world.spark.net.connection import Connection
from evenflow.world.spark.net.framing import CONTROL, ROWS
from evenflow.world.spark.net.handshake import Hello, dial
from evenflow.world.spark.net.priority import SWITCH_INTERVAL_S
from evenflow.world.spark.net.reactor import Reactor
from evenflow.world.spark.net.trust import Trusted

CHUNK: Final = ROWS
"""Kind of a message with a chunk: on this connection nothing else comes in bulk."""
RATE_BYTES_PER_S: Final = 250e6
TRANSFER_BYTES_MAX: Final = 8 << 30
"""More than this is no transfer: the coordinator copies piecemeal (C6)."""

Failed = Callable[[int, int, str], None]
"""failed(run, copy, why), on the event loop."""
Arrived = Callable[[int, int, bytes], None]
"""arrived(run, copy, state), on the event loop."""

log = logging.getLogger("evenflow")


class Pace:
    """Shares out a link's rate among all transfers of a site. Safe from any thread."""

    def __init__(self, bytes_per_s: float, now_s: Callable[[], float] = time.monotonic) -> None:
        self._bytes_per_s, self._now_s = bytes_per_s, now_s
        self._free_s = 0.0
        self._lock = threading.Lock()

    def reserve(self, count: int) -> float:
        """Seconds to wait before sending `count` bytes."""
        with self._lock:
            now = self._now_s()
            start = max(now, self._free_s)
            self._free_s = start + count / self._bytes_per_s
            return start - now


class Shipper:
    """The transfers that start at one site. failed: for those that this end knows have failed; not for those that were called off."""

    def __init__(self, reactor: Reactor, secret: Trusted, failed: Failed, rate_bytes_per_s: float = RATE_BYTES_PER_S) -> None:
        self._reactor, self._secret, self._failed = reactor, secret, failed
        self._pace = Pace(rate_bytes_per_s)
        self._under_way: dict[tuple[int, int], Transfer] = {}

    def ship(self, run: int, copy: int, capture: Shipped, address: tuple[str, int]) -> None:
        """Bring a capture to the site that listens at `address`, as the state of this copy. Returns at once."""
        if sys.getswitchinterval() > SWITCH_INTERVAL_S:
            sys.setswitchinterval(SWITCH_INTERVAL_S)
        transfer = Transfer(run, copy, capture, address, self._secret, self._pace, self._over, self._reactor)
        self._under_way[run, copy] = transfer
        transfer.start()

    def forget(self, run: int, copy: int) -> None:
        """The copy is off; nothing more is heard of it. Unknown ones are ignored: it may be over."""
        transfer = self._under_way.pop((run, copy), None)
        if transfer is not None:
            transfer.abandon()

    def run_ended(self, run: int) -> None:
        for each, copy in list(self._under_way):
            if each == run:
                self.forget(run, copy)

    def close(self) -> None:
        for run, copy in list(self._under_way):
            self.forget(run, copy)

    @property
    def under_way(self) -> int:
        """Transfers that have not ended."""
        return len(self._under_way)

    def _over(self, transfer: Transfer, why: str | None) -> None:
        if self._under_way.get((transfer.run, transfer.copy)) is transfer:
            del self._under_way[transfer.run, transfer.copy]
            if why is not None:
                self._failed(transfer.run, transfer.copy, why)


class Transfer:
    """One transfer, on a thread of its own. over(transfer, None or what went wrong) is called on the event loop when it has ended."""

    def __init__(
        self,
        run: int,
        copy: int,
        capture: Shipped,
        address: tuple[str, int],
        secret: Trusted,
        pace: Pace,
        over: Callable[[Transfer, str | None], None],
        reactor: Reactor,
    ) -> None:
        self.run, self.copy = run, copy
        self._capture: Shipped | None = capture
        self._address, self._secret, self._pace = address, secret, pace
        self._over, self._reactor = over, reactor
        self._abandoned = threading.Event()
        self._guard = threading.Lock()
        self._connection: Connection | None = None
        self._thread = threading.Thread(target=self._carry_out, name=f"evenflow-copy-{run}-{copy}", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def abandon(self) -> None:
        """Stop soon: what waits for the other end is woken up. A snapshot that is being read is read to its end."""
        self._abandoned.set()
        with self._guard:
            if self._connection is not None:
                self._connection.shut_down()

    def join(self, timeout_s: float) -> bool:
        """Whether the thread has ended. For tests."""
        self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def _carry_out(self) -> None:
        why: str | None = None
        try:
            self._send()
        except (OSError, EvenflowError, ValueError) as error:
            why = f"the transfer to {self._address[0]}:{self._address[1]} broke off: {error}"
        except BaseException as error:  # A state that cannot be read must not leave the coordinator waiting for it.
            why = f"the state cannot be read: {type(error).__name__}: {error}"
            log.exception("the state of copy %s cannot be read", self.copy)
        self._capture = None
        self._reactor.call_soon(lambda: self._over(self, why))

    def _send(self) -> None:
        assert self._capture is not None
        state = self._capture.to_bytes(Rests(self._abandoned.wait))
        self._capture = None
        if self._abandoned.is_set():
            return
        hello = {"as": "state", "run": self.run, "copy": self.copy, "bytes": len(state)}
        with dial(self._address, self._secret, hello) as connection:
            try:
                with self._guard:
                    self._connection = connection
                for chunk in chunks(state, CHUNK_BYTES):
                    if self._abandoned.wait(self._pace.reserve(len(chunk[1]))):
                        return
                    connection.send(CHUNK, list(chunk))
                answer = connection.hear()
            finally:
                with self._guard:  # Once it is closed, the descriptor's number may be somebody else's.
                    self._connection = None
        if not answer.get("taken"):
            raise ProtocolError(str(answer.get("refused", "it was refused")))


class Receiver:
    """The target's end of a transfer: a guest, as those in `guests.py`. arrived or failed is called once, unless it is forgotten.

    Raises KeyError or ValueError for a hello that makes no sense, or that announces more than `TRANSFER_BYTES_MAX`.
    """

    def __init__(self, hello: Hello, arrived: Arrived, failed: Failed) -> None:
        self.run, self.copy, length = int(hello["run"]), int(hello["copy"]), int(hello["bytes"])
        if not 0 < length <= TRANSFER_BYTES_MAX:
            raise ValueError(f"a transfer of {length} bytes is not between 1 and {TRANSFER_BYTES_MAX}")
        self._assembly = Assembly(length)
        self._arrived, self._failed = arrived, failed
        self._over = False

    def take(self, channel: Channel, kind: int, body: bytes | memoryview) -> None:
        """Raises ProtocolError, TransferCorrupt: then the channel closes, and `broke` is called."""
        if kind != CHUNK or self._over:
            raise ProtocolError(f"a message of kind {kind} in the transfer of copy {self.copy}")
        self._assembly.add(body)
        if self._assembly.complete:
            self._over = True
            state = self._assembly.take()
            channel.send(CONTROL, [json.dumps({"taken": True}).encode()])
            self._arrived(self.run, self.copy, state)

    def broke(self, reason: str) -> None:
        """The connection has ended."""
        if not self._over:
            self._over = True
            done = f"after {self._assembly.filled} of {self._assembly.length} bytes"
            self._failed(self.run, self.copy, f"the state broke off {done}: {reason}")

    def forget(self) -> None:
        """The copy or the run is over; nobody wants to hear of it."""
        self._over = True
