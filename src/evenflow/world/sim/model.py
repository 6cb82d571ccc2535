"""What the simulator assumes about links, processors and faults. Every draw comes from the world's own seeded generator."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random


@dataclass(frozen=True, slots=True)
class LinkModel:
    """delay_us: least and greatest one-way delay of a message. Order per direction is kept, as on a TCP connection.

    bytes_per_us: bandwidth for state; pack_us: least and greatest time from its capture until it is bytes.

    drop_every_us: mean time between losses of a connection with everything under way on it, 0 for never; it is back after
    reconnect_us.
    """

    delay_us: tuple[int, int] = (50, 400)
    drop_every_us: int = 0
    reconnect_us: int = 2_000
    bytes_per_us: float = 1_000.0
    pack_us: tuple[int, int] = (0, 5_000)

    def draw_delay(self, random: Random) -> int:
        return random.randint(*self.delay_us)


@dataclass(frozen=True, slots=True)
class CostModel:
    """CPU microseconds of a site: per event, per epoch of a segment, per row. slow: factor per site, for uneven machines."""

    event_us: float = 10.0
    work_us: float = 60.0
    row_us: float = 0.2
    slow: tuple[float, ...] = ()

    def of_work(self, site: int, rows: int) -> int:
        factor = self.slow[site % len(self.slow)] if self.slow else 1.0
        return int(factor * (self.work_us + self.row_us * rows))


@dataclass(frozen=True, slots=True)
class SinkModel:
    """delay_us: least and greatest time that a sink needs for an epoch. Commits come in order."""

    delay_us: tuple[int, int] = (20, 1_000)


@dataclass(frozen=True, slots=True)
class DetectionModel:
    """Least and greatest time until a death is noticed. link_us: by a peer whose link ends. death_us: by the coordinator."""

    link_us: tuple[int, int] = (100, 5_000)
    death_us: tuple[int, int] = (1_000, 60_000)
