"""What the simulator assumes about links, processors, sinks and detection. Every draw comes from the world's own seeded generator."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from random import Random

from evenflow.availability.durability import Durability
from evenflow.coordinator.detector import Patience


@dataclass(frozen=True, slots=True)
class LinkModel:
    """delay_us: least and greatest one-way delay of a message. Order per direction is kept, as on a TCP connection.

    bytes_per_us: bandwidth for state; pack_us: least and greatest time from its capture until it is bytes.

    drop_every_us: mean time between losses of a connection with everything under way on it, 0 for never; it is back after
    reconnect_us. shared: what copies bring from one site goes one after the other, at that bandwidth together.
    """

    delay_us: tuple[int, int] = (50, 400)
    drop_every_us: int = 0
    reconnect_us: int = 2_000
    bytes_per_us: float = 1_000.0
    pack_us: tuple[int, int] = (0, 5_000)
    shared: bool = False

    def draw_delay(self, random: Random) -> int:
        low, high = self.delay_us
        return low + int(random.random() * (high - low + 1))


@dataclass(frozen=True, slots=True)
class CostModel:
    """CPU microseconds of a site: per event, per epoch of a segment, per row. slow: factor per site, for uneven machines.

    free: kinds of segments whose rows cost nothing, as if they had machines of their own. boxes: by name of a box, what a row costs
    that comes into any step of it; if any are named, they cost that and no others cost anything, instead of row_us per row of a segment.
    """

    event_us: float = 10.0
    work_us: float = 60.0
    row_us: float = 0.2
    slow: tuple[float, ...] = ()
    free: frozenset[str] = frozenset()
    boxes: Mapping[str, float] = field(default_factory=dict)

    def epoch_us(self, kind: str, rows: int) -> float:
        """An epoch of so many rows of a segment of that kind, on a site that is not slow."""
        return self.work_us + (0.0 if kind in self.free or self.boxes else self.row_us * rows)

    def factor(self, site: int) -> float:
        return self.slow[site % len(self.slow)] if self.slow else 1.0


@dataclass(frozen=True, slots=True)
class DiskModel:
    """A site's own disk. delay_us: least and greatest time until a request begins. bytes_per_us: bandwidth.

    capacity_bytes: 0 for no bound.
    """

    delay_us: tuple[int, int] = (50, 500)
    bytes_per_us: float = 100.0
    capacity_bytes: int = 0


@dataclass(frozen=True, slots=True)
class StoreModel:
    """What holds a checkpoint location. delay_us: least and greatest time until a request is answered; it is done some time before.

    lost: the share of answers that get lost, so that nobody knows what became of the request; late_us: it may be done so much later at
    most. torn: the share of reads that bring a part of an object. durability: of the run whose location it is.
    """

    delay_us: tuple[int, int] = (200, 3_000)
    lost: float = 0.0
    late_us: int = 20_000
    torn: float = 0.0
    durability: Durability = Durability.PRECISE

    @property
    def cuts(self) -> bool:
        """They are journalled."""
        return self.durability is Durability.PRECISE


@dataclass(frozen=True, slots=True)
class SinkModel:
    """delay_us: least and greatest time that a sink needs for an epoch. Commits come in order.

    reads: it reads by itself, as Spark's streaming queries do: all epochs that there are make a batch, it needs that time for a batch,
    and says that one is stored when it plans the next, which may have nothing in it only when the stream has ended. poll_us: how often it
    looks for more.
    """

    delay_us: tuple[int, int] = (20, 1_000)
    reads: bool = False
    poll_us: int = 2_000


@dataclass(frozen=True, slots=True)
class DetectionModel:
    """How a death is noticed. patience: the detector's, and the sites' beats; lease_us of it is also how long a site lives without the
    coordinator. Least and greatest time: link_us, until a peer or the coordinator sees that a connection has ended; removed_us, until
    Spark says that the executor is gone; ready_us, until a new site has built its part.
    """

    link_us: tuple[int, int] = (100, 5_000)
    removed_us: tuple[int, int] = (20_000, 120_000)
    ready_us: tuple[int, int] = (100, 5_000)
    patience: Patience = field(default_factory=lambda: Patience(lease_us=2_000_000, busy_us=2_000_000))
