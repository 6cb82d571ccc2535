"""A simulated disk of a site: it takes time, can be full, can refuse what is written, and can spoil or lose what is there."""

from __future__ import annotations

from random import Random
from typing import Protocol

from evenflow.errors import DiskError
from evenflow.site.events import Event, Kept, Load, Loaded, LoadFailed, Spill, Spilled, SpillFailed
from evenflow.world.sim.clock import VirtualClock
from evenflow.world.sim.model import DiskModel


class Spills(Protocol):
    """A simulated site, as far as it has a disk."""

    def deliver(self, event: Event) -> None: ...


class SimKept:
    """State on a simulated disk. Its room is free when nobody holds it any more."""

    def __init__(self, disk: SimDisk, data: bytes) -> None:
        self._disk, self._data = disk, data
        disk.used_bytes += len(data)

    def __del__(self) -> None:
        self._disk.free(len(self._data))

    def __repr__(self) -> str:
        return f"{len(self._data)} bytes"  # Stories name it: without an address in memory, so that a seed's are always the same.

    @property
    def size(self) -> int:
        return len(self._data)

    def to_bytes(self) -> bytes:
        if self._disk.broken:
            raise DiskError("the disk cannot be read")
        return self._data


class SimDisk:
    """capacity_bytes: 0 for no bound. refuses: it takes nothing. broken: it gives nothing back. has_broken: it was broken once. spoils: so
    many of the next reads bring something else than was written, which is noticed. wrong: the last one did; its site may not have heard
    yet. random: of its own. written, read: bytes so far."""

    def __init__(self, model: DiskModel, clock: VirtualClock, random: Random) -> None:
        self._model, self._clock, self._random = model, clock, random
        self.capacity_bytes = model.capacity_bytes
        self.refuses = self.broken = self.has_broken = self.wrong = False
        self.spoils = 0
        self.used_bytes = self.written_bytes = self.read_bytes = 0

    def breaks(self) -> None:
        """From now on it gives nothing back."""
        self.broken = self.has_broken = True

    def free(self, count: int) -> None:
        self.used_bytes -= count

    def _takes_us(self, count: int) -> int:
        return self._random.randint(*self._model.delay_us) + int(count / self._model.bytes_per_us)

    def write(self, site: Spills, action: Spill) -> None:
        """Say how it went when it is over."""
        data = [(partition, step, snapshot.to_bytes()) for partition, step, snapshot in action.states]
        count = sum(len(each) for _, _, each in data)

        def over() -> None:
            if self.refuses or self.broken:
                site.deliver(SpillFailed(action.ticket, "the disk takes nothing"))
            elif self.capacity_bytes and self.used_bytes + count > self.capacity_bytes:
                why = f"the disk is full: {self.used_bytes} of {self.capacity_bytes} bytes are taken, {count} more are too many"
                site.deliver(SpillFailed(action.ticket, why))
            else:
                self.written_bytes += count
                kept: tuple[tuple[int, int, Kept], ...] = tuple((p, step, SimKept(self, each)) for p, step, each in data)
                site.deliver(Spilled(action.ticket, kept))

        self._clock.after(self._takes_us(count), over)

    def read(self, site: Spills, action: Load) -> None:
        """Say how it went when it is over."""
        count = sum(kept.size for _, _, kept in action.kept)

        def over() -> None:
            self.wrong = self.spoils > 0
            if self.wrong:
                self.spoils -= 1
                site.deliver(LoadFailed(action.ticket, "the checksum of what was read is not that of what was written"))
                return
            try:
                states = {(partition, step): kept.to_bytes() for partition, step, kept in action.kept}
            except DiskError as error:
                site.deliver(LoadFailed(action.ticket, str(error)))
                return
            self.read_bytes += count
            site.deliver(Loaded(action.ticket, states))

        self._clock.after(self._takes_us(count), over)
