"""Credit: what every site has processed, and up to which epoch every site has room (protocol A2, A5).

Room is granted by epoch, not by arrival, and only ingress waits for it. A site grants its finished epoch plus the window; over its memory
budget it grants the oldest unfinished epoch only, which is always admitted, so the oldest epoch can always advance.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Sequence

from evenflow.exchange.section import NEVER_US, Ack
from evenflow.stream.ids import SiteId


class Credit:
    """One site's view of all sites.

    granted: last epoch that every site has room for. processed: last epoch that every site has processed. news: counts what has
    changed here, so that each of the `listeners` is told once.
    """

    __slots__ = (
        "_ack", "_due_us", "_dues", "_early", "_granted", "_news", "_own", "_processed", "_shares", "_site", "_told", "_told_us", "_window",
        "finished", "granted", "listeners", "processed",
    )  # fmt: skip

    def __init__(self, site: SiteId, window_epochs: int, epoch: int = 0) -> None:
        """epoch: the last one that is over everywhere from the start."""
        self._site, self._window = site, window_epochs
        self._early: dict[SiteId, tuple[int, int]] = {}
        self._granted: dict[SiteId, int] = {}
        self._processed: dict[SiteId, int] = {}
        self.granted, self.processed, self.finished = epoch + window_epochs, epoch, epoch
        self.listeners: tuple[SiteId, ...] = ()
        self._own = (epoch, epoch, epoch + window_epochs, NEVER_US, 0)
        self._shares: dict[SiteId, int] = {}
        self._due_us: dict[SiteId, int] = {}
        self._dues: list[int] = []
        self._news = 0
        self._told: dict[SiteId, int] = {}
        self._told_us: dict[SiteId, int] = {}
        self._ack: tuple[int, Ack] | None = None

    def set_sites(self, sites: Iterable[SiteId], listeners: Iterable[SiteId]) -> None:
        """Wait for these sites only, and tell these. A newcomer counts as being as far as the others until it says how far it is."""
        sites = tuple(sites)
        granted = min([self._granted[site] for site in sites if site in self._granted], default=self.granted)
        processed = min([self._processed[site] for site in sites if site in self._processed], default=self.processed)
        said = self._early | {site: (self._granted[site], self._processed[site]) for site in self._granted}
        self._granted = {site: self._granted.get(site, max(granted, said.get(site, (0, 0))[0])) for site in sites}
        self._processed = {site: self._processed.get(site, max(processed, said.get(site, (0, 0))[1])) for site in sites}
        # A site that hosts nothing now may host again later. It will not repeat its last ack, so it is kept.
        self._early = {site: words for site, words in said.items() if site not in self._granted}
        self.granted = max(self.granted, min(self._granted.values(), default=0))
        self.processed = max(self.processed, min(self._processed.values(), default=0))
        self.listeners = tuple(listeners)
        self._find_due()
        self._told = {peer: self._told.get(peer, -1) for peer in self.listeners}
        self._told_us = {peer: self._told_us.get(peer, 0) for peer in self.listeners}

    def hear(self, peer: SiteId, ack: Ack) -> bool:
        """Take a peer's acknowledgement. True if every site has now processed more, or granted more, than before."""
        granted, processed = self.granted, self.processed
        if ack.due_us != self._due_us.get(peer, NEVER_US):
            self._due_us[peer] = ack.due_us
            self._find_due()
        self._shares[peer] = ack.share
        if peer not in self._granted:
            # The peer hosts nothing that counts, or this site has not heard yet that it does. It will not repeat this ack.
            self._early[peer] = (ack.granted, ack.processed)
            return False
        if ack.granted > self._granted[peer]:
            self._granted[peer] = ack.granted
            self.granted = min(self._granted.values())
        self._note(peer, ack.processed)
        return granted != self.granted or processed != self.processed

    def received_more(self) -> None:
        """Frames have come in since the listeners were told."""
        self._news += 1

    def advance(self, processed: int, finished: int, *, room: bool, due_us: int = NEVER_US, share: int = 0) -> None:
        """Note how far this site has come, and grant room (A5). room: whether it may take a whole window of epochs.

        Without room the site grants its oldest unfinished epoch only, and always that one. due_us, share: as in Ack.
        """
        assert finished <= processed, f"epoch {finished} is finished and {processed} is the last that was processed"
        self.finished = finished
        granted = max(self._own[2], finished + (self._window if room else 1))
        if self._site in self._granted:
            self._note(self._site, processed)
            self._granted[self._site] = granted
            self.granted = min(self._granted.values())
        self._own = (processed, finished, granted, due_us, share)
        self._find_due()
        self._news += 1

    def slowest(self, epoch: int, pipeline: int) -> list[SiteId]:
        """Who keeps that epoch from closing: those that have granted least, or processed least if it has room and too many epochs are under
        way; nobody if neither."""
        if epoch > self.granted:
            return [site for site, granted in self._granted.items() if granted == self.granted]
        if epoch - 1 - self.processed >= pipeline:
            return [site for site, processed in self._processed.items() if processed == self.processed]
        return []

    def surely_processed(self, pipeline: int) -> int:
        """Last epoch that every site has processed, by whatever any of them has said: none closes an epoch further than the pipeline ahead
        of all (E5), so one that is not heard of meanwhile is no further behind the first. What is made again has no such bound."""
        return max(self.processed, max(self._processed.values(), default=0) - pipeline)

    def shares(self) -> list[int]:
        """What those others keep who leave anything out, as they have said last (see Ack)."""
        return [share for peer, share in self._shares.items() if share > 0 and peer in self._granted]

    @property
    def timed(self) -> bool:
        """Some site has a timer of processing time."""
        return bool(self._dues)

    def due_after(self, stamp: int) -> int:
        """The least stamp behind this one at which a timer comes at any site. What comes up to it is under way, if not heard of yet."""
        return min([due for due in self._dues if due > stamp], default=NEVER_US) if self._dues else NEVER_US

    def _find_due(self) -> None:
        """Only who hosts something that counts has timers that do."""
        heard = [due for site, due in self._due_us.items() if site in self._granted]
        self._dues = [due for due in {self._own[3], *heard} if due != NEVER_US]

    def _note(self, site: SiteId, epoch: int) -> None:
        before = self._processed[site]
        if epoch > before:
            self._processed[site] = epoch
            if before == self.processed:
                self.processed = min(self._processed.values())

    def untold(self, before_us: int) -> list[SiteId]:
        """Listeners that lack the newest acknowledgement and were told nothing since `before_us`."""
        return [peer for peer, told in self._told.items() if told != self._news and self._told_us[peer] <= before_us]

    def lacks(self, said: Container[SiteId]) -> bool:
        """Whether a listener lacks the newest acknowledgement and is not among those to which something is being said."""
        news = self._news
        for peer, told in self._told.items():
            if told != news and peer not in said:
                return True
        return False

    @property
    def has_news(self) -> bool:
        """There is more to be said than what everybody takes for granted at the start."""
        return self._news > 0

    def must_tell(self, peer: SiteId) -> bool:
        return self._told.get(peer, self._news) != self._news

    def tell(self, peer: SiteId, received: Sequence[int], now_us: int) -> Ack:
        """The acknowledgement to send to `peer`: the same one to all, until there are news. received: as in Ack."""
        self._told[peer], self._told_us[peer] = self._news, now_us
        if self._ack is None or self._ack[0] != self._news:
            self._ack = self._news, Ack(tuple(received), *self._own)
        return self._ack[1]

    def forget(self, peer: SiteId) -> None:
        """What `peer` was told last may be lost."""
        if peer in self._told:
            self._told[peer] = -1
