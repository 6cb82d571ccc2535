"""A dataflow in the simulator, watched: what came out when, and what recovery did. Experiments see the simulator through this alone."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal, Protocol

import numpy as np
import pyarrow as pa

from evenflow.coordinator.events import Happened
from evenflow.policy.proposal import Parameters
from evenflow.query.builder import Dataflow
from evenflow.site.options import FlowOptions
from evenflow.stream.arrays import Floats, Int64s

EMULATED: Final = (
    "CPU is emulated: a simulated site is busy for a fixed time per row of every operator, per epoch and per message; virtual time is "
    "exact and says nothing about how fast Evenflow is, only how its parts compare."
)


class World(Protocol):
    """A run in the simulator.

    latencies_us: one per epoch with rows that a sink took, in the order of `released` over all sinks. copied_bytes: state that copies
    have sent so far.
    """

    @property
    def ended(self) -> bool: ...

    @property
    def released(self) -> Mapping[str, Sequence[tuple[int, pa.RecordBatch]]]: ...

    @property
    def latencies_us(self) -> Sequence[int]: ...

    @property
    def copied_bytes(self) -> int: ...

    def run_for(self, seconds: float) -> None:
        """Let virtual time pass."""

    def kill(self, site: int) -> None:
        """The site is gone, now, without a word."""

    def redundancy(self) -> int:
        """Least number of live replicas over all partitions."""

    def cpu_us(self) -> int:
        """What all sites have been busy for so far."""


class Balancing(World, Protocol):
    """A run whose sites can be made slow, and which tells of its moves. happened: what the coordinator told of, and when by the world's
    clock, microseconds."""

    @property
    def happened(self) -> Sequence[tuple[int, Happened]]: ...

    @property
    def now_us(self) -> int: ...

    def slow_down(self, site: int, factor: float) -> None:
        """From now on the site needs so many times as long for everything; 1 ends it."""

    def limit_memory(self, site: int, state_bytes: int | None) -> None:
        """From now on the site may hold so much state in memory; None: all of it."""


@dataclass(frozen=True, slots=True)
class Deployment:
    """A dataflow and where it runs. partitions: P of keyed segments. row_us: CPU of a row in each operator. link_mbit_per_s: of a site.

    ends_free: rows cost nothing where they come in and go out, as if ingress and egress had machines of their own (FT 5.2.1). policy,
    parameters: by which load is balanced (None: the policy's own). spread: lost replicas are recovered onto all sites, not onto one.
    read_every_us: least and greatest time between two times that a source is asked for rows. disk_bytes_per_us: of a site's own disk, which
    begins within disk_delay_us (least and greatest). link_shared: several copies from one site share its link.
    availability: mode of all boxes. metered: what sites say to each other is encoded and counted.
    """

    flow: Dataflow
    sites: int
    partitions: int
    replicas: int = 1
    spares: int = 0
    placement: Literal["mirrored", "chained"] = "mirrored"
    row_us: float = 0.2
    link_mbit_per_s: float | None = None
    seed: int = 0
    options: FlowOptions = field(default_factory=FlowOptions)
    ends_free: bool = False
    policy: str = "none"
    parameters: Parameters | None = None
    spread: bool = True
    read_every_us: tuple[int, int] = (50, 1_000)
    disk_bytes_per_us: float = 100.0
    disk_delay_us: tuple[int, int] = (50, 500)
    link_shared: bool = False
    availability: str = "pairs"
    metered: bool = False


Start = Callable[[Deployment], World]
StartBalancing = Callable[[Deployment], Balancing]


@dataclass(frozen=True, slots=True)
class Watched:
    """What was seen in equal intervals. Element i is of the interval that ends (i + 1) * every_s after the watch began.

    rows: that the sink got. latency_us: sum over the epochs that it got, and epochs: how many. redundancy, copied_bytes: at the end of
    the interval.
    """

    every_s: float
    rows: Int64s
    latency_us: Int64s
    epochs: Int64s
    redundancy: Int64s
    copied_bytes: Int64s

    def _at(self, second: float) -> int:
        return round(second / self.every_s)

    def rate(self, first_s: float, last_s: float) -> float:
        """Rows per second."""
        return float(self.rows[self._at(first_s) : self._at(last_s)].sum()) / (last_s - first_s)

    def latency_ms(self, first_s: float, last_s: float) -> float:
        """Mean over the epochs that came out; NaN if none did."""
        span = slice(self._at(first_s), self._at(last_s))
        epochs = int(self.epochs[span].sum())
        return float(self.latency_us[span].sum()) / epochs / 1e3 if epochs else float("nan")

    def bins(self, width_s: float) -> tuple[Floats, Floats, Floats]:
        """Middle of each bin in seconds, its rows per second, and its mean latency in ms (NaN where nothing came out)."""
        per_bin = self._at(width_s)
        count = len(self.rows) // per_bin
        rows, latency, epochs = (
            x[: count * per_bin].reshape(count, per_bin).sum(axis=1) for x in (self.rows, self.latency_us, self.epochs)
        )
        mean_ms = np.full(count, np.nan)
        np.divide(latency / 1e3, epochs, out=mean_ms, where=epochs > 0)
        middle = np.asarray((np.arange(count) + 0.5) * width_s, np.float64)
        return middle, np.asarray(rows / width_s, np.float64), mean_ms

    def longest_gap_ms(self, first_s: float, last_s: float) -> float:
        """The longest time without output, at most an interval more than it was."""
        empty = np.concatenate(([False], self.rows[self._at(first_s) : self._at(last_s)] == 0, [False]))
        edges = np.flatnonzero(np.diff(empty))
        longest = int((edges[1::2] - edges[::2]).max()) if len(edges) else 0
        return (longest + 1) * self.every_s * 1e3

    def longest_gap(self, first_s: float, within_s: float, last_s: float) -> tuple[float, float]:
        """(seconds, when it ended) of the longest time without output, up to `last_s`, of those that begin from `first_s` to `within_s`.
        It ends at `last_s` if nothing comes any more."""
        first, within, last = self._at(first_s), self._at(within_s), self._at(last_s)
        full = np.concatenate((np.flatnonzero(self.rows[first:last]) + first, [last]))
        begins = np.concatenate(([first], full[:-1] + 1))
        lengths = np.where(begins <= within, full - begins, -1)
        longest = int(lengths.argmax())
        return float(lengths[longest] + 1) * self.every_s, float(full[longest] + 1) * self.every_s

    def whole_after_s(self, since_s: float, replicas: int) -> float:
        """Seconds from `since_s` until every partition had `replicas` live ones again; NaN if that did not come about."""
        start = self._at(since_s)
        lost = np.flatnonzero(self.redundancy[start:] < replicas)
        if not len(lost):
            return float("nan")
        whole = np.flatnonzero(self.redundancy[start + lost[0] :] >= replicas)
        return float(lost[0] + whole[0] + 1) * self.every_s if len(whole) else float("nan")

    def copied_mb(self, first_s: float, last_s: float) -> float:
        """10^6 bytes."""
        return float(self.copied_bytes[self._at(last_s) - 1] - self.copied_bytes[self._at(first_s) - 1]) / 1e6


Act = tuple[float, Callable[[], None]]
"""What to do so many seconds after the watch began."""


def watch(world: World, sink: str, seconds: float, *, every_s: float = 0.005, acts: Sequence[Act] = ()) -> Watched:
    """Let the world run for `seconds` and see what a sink gets. It stops sooner if the run ends."""
    count = round(seconds / every_s)
    seen = Watched(every_s, *(np.zeros(count, np.int64) for _ in range(5)))
    todo = sorted(((round(at_s / every_s), act) for at_s, act in acts), key=lambda pair: pair[0])
    batches, waited = len(world.released[sink]), len(world.latencies_us)
    for i in range(count):
        while todo and todo[0][0] <= i:
            todo.pop(0)[1]()
        world.run_for(every_s)
        new = world.released[sink][batches:]
        late = world.latencies_us[waited:]
        batches, waited = batches + len(new), waited + len(late)
        seen.rows[i] = sum(batch.num_rows for _, batch in new)
        seen.latency_us[i], seen.epochs[i] = sum(late), len(late)
        seen.redundancy[i], seen.copied_bytes[i] = world.redundancy(), world.copied_bytes
        if world.ended:
            break
    return seen


def output(world: World, sink: str) -> pa.Table:
    """All rows that a sink has been given."""
    batches = [batch for _, batch in world.released[sink]]
    return pa.Table.from_batches(batches) if batches else pa.table({})


def difference(expected: pa.Table, found: pa.Table) -> tuple[int, int]:
    """(lost, repeated): rows of `expected` that are not in `found`, and rows of `found` that are there too often. Order does not count."""
    if not expected.num_rows or not found.num_rows:
        return expected.num_rows, found.num_rows
    columns: Any = expected.column_names
    signed = [table.append_column("count", pa.array(np.full(table.num_rows, sign))) for table, sign in ((expected, 1), (found, -1))]
    left = pa.concat_tables(signed).group_by(columns).aggregate([("count", "sum")])["count_sum"].to_numpy()
    return int(left[left > 0].sum()), int(-left[left < 0].sum())
