"""What the experiments with memory pressure share: FL's set-up of section 6, all sizes and speeds of bytes a 256th of the paper's.

Every machine has 128 partitions of four groups each, 6 MB a partition, and 1 GB for them, until another process takes half of that. With
bytes, disks and links that are smaller by the same factor all times stay as they are.
Keys are chosen so that every partition has its four, as in the paper: by hash alone some would have none and others ten.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from typing import Any, ClassVar, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from evenflow.experiments.harness import balancing
from evenflow.experiments.harness.balancing import FLUX_2002, Balanced, SetUp, Slow, Variant
from evenflow.experiments.harness.simulated import Balancing, Deployment, StartBalancing
from evenflow.experiments.harness.workload import grouped
from evenflow.kernels.hash import hash_columns, partition_of, table_of_ranges
from evenflow.sources.generator import GeneratorReader, GeneratorSource

SCALE: Final = 256
"""All sizes, and bytes per second, are divided by this."""
GROUPS: Final = 4
"""Of a partition: 16K in all on 32 machines."""
HISTORY: Final = 360
"""Rows of a group: 6 MB a partition."""
BYTES_PER_MB: Final = 1_000_000 / SCALE
DISK_MB_PER_S: Final = 20.0
LINK_MBIT_PER_S: Final = 250.0
INGRESS: Final = 16
WAITS: Final = "_waits"
WAITS_US: Final = 200_000_000
"""So long a site that lacks memory waits for moves of such a variant: longer than one partition a round takes."""


@dataclass(frozen=True, slots=True)
class Machine:
    """partitions: of each machine. mb: its memory for state, in MB of the paper, before any is taken (FL 6.3)."""

    partitions: int = 128
    mb: float = 1024.0


SET_UP: Final = SetUp(
    sites=8, replicas=1, row_us=500.0, link_mbit_per_s=LINK_MBIT_PER_S / SCALE, every_s=0.05, epoch_rows=100, pipeline=8, settle_s=2.0,
    read_every_us=(5_000, 20_000),
)  # fmt: skip


@lru_cache(maxsize=4)
def even_keys(partitions: int) -> npt.NDArray[np.int64]:
    """int64 (partitions * GROUPS,): keys of which each partition owns GROUPS, in an order that is mixed, and always the same."""
    tried = np.arange(partitions * GROUPS * 16)
    owner = partition_of(hash_columns(pa.record_batch({"key": pa.array(tried)}), ["key"]), table_of_ranges(partitions))
    by_owner = np.argsort(owner, kind="stable")
    first = np.searchsorted(owner[by_owner], np.arange(partitions))
    keys: npt.NDArray[np.int64] = by_owner[np.arange(tried.size) - first[owner[by_owner]] < GROUPS]
    assert keys.size == partitions * GROUPS
    return np.random.default_rng(0).permutation(keys)


class EvenReader(GeneratorReader):
    """As the generator's, with keys of `even_keys`: first each of them once, so that all groups are there, then at random."""

    def __init__(self, source: GeneratorSource, partition: int, of: int) -> None:
        super().__init__(source, partition, of)
        self._partition, self._of = partition, of

    def _make(self, first: int, count: int) -> pa.RecordBatch:
        self._number = np.arange(first, first + count) * self._of + self._partition
        return super()._make(first, count)

    def _keys(self, bits: npt.NDArray[np.uint64]) -> npt.NDArray[np.int64]:
        keys = even_keys(self._source.keys // GROUPS)
        drawn = super()._keys(bits)
        return keys[np.where(self._number < keys.size, self._number % keys.size, drawn)]


class EvenSource(GeneratorSource):
    """Keys that are the same number for each partition, as fast as they are taken. keys: GROUPS for each partition."""

    kind: ClassVar[str] = "even"
    reader: ClassVar[type[Any]] = EvenReader


@dataclass(frozen=True, slots=True)
class Pressed:
    """From at_s on a site has so much memory, in MB of the paper."""

    at_s: float
    site: int
    mb: float


def variants(set_up: SetUp, machine: Machine, *names: str) -> tuple[Variant, ...]:
    """One for each name: the papers' policies with the papers' parameters, Evenflow's with its own. With `WAITS` behind its name a policy
    of the papers' has time for its moves before a site writes."""
    labels = {"none": "nothing moves", "evenflow": "Evenflow's policy", "utilization": "the load balancing of Flux 2002"}
    found = []
    for name in names:
        policy = name.removesuffix(WAITS)
        parameters = None if policy in ("none", "evenflow") else FLUX_2002 if policy == name else replace(FLUX_2002, relief_us=WAITS_US)
        label = labels.get(policy, f"the {policy} policy of Flux 2002") + ("" if policy == name else ", moves before the disk")
        found.append(Variant(name, label, policy, set_up.sites * machine.partitions, parameters))
    return tuple(found)


def run(
    start: StartBalancing,
    set_up: SetUp,
    machine: Machine,
    variant: Variant,
    seconds: float,
    pressed: Sequence[Pressed],
    slow: Sequence[Slow] = (),
) -> Balanced:
    """One run, in which memory is taken from sites, and some become slow."""

    def acts(world: Balancing) -> list[tuple[float, Callable[[], None]]]:
        return [(each.at_s, partial(world.limit_memory, each.site, int(each.mb * BYTES_PER_MB))) for each in pressed]

    source = EvenSource(rate=None, keys=variant.partitions * GROUPS, count=INGRESS)
    flow = grouped(keys=source.keys, shown=1, history=HISTORY, source=source)
    return balancing.run(start, set_up, variant, seconds, slow, flow, partial(limited, machine), acts)


def limited(machine: Machine, deployed: Deployment) -> Deployment:
    """With the paper's memory, disk and network; a partition goes to disk by itself."""
    options = replace(deployed.options, state_memory_bytes=int(machine.mb * BYTES_PER_MB), spill_group_bytes=1)
    disk = DISK_MB_PER_S / SCALE
    return replace(deployed, options=options, disk_bytes_per_us=disk, disk_delay_us=(4_800, 5_200), link_shared=True)


NOTES: Final = (
    "8 sites instead of 32. Bytes, and what disks and links do with them, are a 256th of the paper's; MB are given as in the paper.",
    "The disk works beside the processor; in the paper one waits for the other. Copies from a site share its link of 250 Mbit/s.",
    "Latency is an epoch's, from when it is opened to when it has been put out, also of the rows that wait for a partition on disk.",
)
