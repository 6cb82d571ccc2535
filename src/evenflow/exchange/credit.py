"""Credit: what every site has processed, and up to which epoch every site has room (protocol A2, A5).

Room is granted by epoch, not by arrival, and only ingress waits for it. A site grants its finished epoch plus the window; over its memory
budget it grants the oldest unfinished epoch only, which is always admitted, so the oldest epoch can always advance.
"""

from __future__ import annotations

from collections.abc import Iterable

from evenflow.exchange.section import Ack


class Credit:
    """One site's view of all sites.

    granted: last epoch that every site has room for. processed: last epoch that every site has processed. told: what each peer in
    `listeners` has been told already is compared by identity, so an acknowledgement is sent once.
    """

    __slots__ = ("_granted", "_processed", "_site", "_told", "_window", "finished", "granted", "listeners", "own", "processed")

    def __init__(self, site: int, sites: Iterable[int], listeners: Iterable[int], window_epochs: int) -> None:
        self._site, self._window = site, window_epochs
        self._granted = dict.fromkeys([*sites, site], window_epochs)
        self._processed = dict.fromkeys(self._granted, 0)
        self.granted, self.processed, self.finished = window_epochs, 0, 0
        self.listeners = tuple(listeners)
        self.own = Ack((), 0, 0, window_epochs)
        self._told: dict[int, Ack | None] = dict.fromkeys(self.listeners)

    def hear(self, peer: int, ack: Ack) -> bool:
        """Take a peer's acknowledgement. True if every site has now processed more, or granted more, than before."""
        before = (self.granted, self.processed)
        if ack.granted > self._granted[peer]:
            self._granted[peer] = ack.granted
            self.granted = min(self._granted.values())
        self._note(peer, ack.processed)
        return before != (self.granted, self.processed)

    def advance(self, processed: int, finished: int, *, room: bool) -> None:
        """This site has come this far. room: it may take a whole window; otherwise its oldest unfinished epoch only."""
        self.finished = finished
        self._note(self._site, processed)
        granted = max(self._granted[self._site], finished + (self._window if room else 1))
        if granted > self._granted[self._site]:
            self._granted[self._site] = granted
            self.granted = min(self._granted.values())
        self.own = Ack((), processed, finished, granted)

    def _note(self, site: int, epoch: int) -> None:
        before = self._processed[site]
        if epoch > before:
            self._processed[site] = epoch
            if before == self.processed:
                self.processed = min(self._processed.values())

    def untold(self) -> list[int]:
        """Listeners that have not been told the newest acknowledgement."""
        return [peer for peer, told in self._told.items() if told is not self.own]

    def tell(self, peer: int, received: tuple[int, ...]) -> Ack | None:
        """The acknowledgement to send to `peer` with what it has been received from it, or None if it knows."""
        if self._told.get(peer, self.own) is self.own:
            return None
        self._told[peer] = self.own
        return Ack(received, self.own.processed, self.own.finished, self.own.granted)

    def forget(self, peer: int) -> None:
        """What `peer` was told last may be lost."""
        if peer in self._told:
            self._told[peer] = None
