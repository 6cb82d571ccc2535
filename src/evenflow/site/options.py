"""What a user can set about how a dataflow runs. None of it changes results, only when they come (protocol E5, A5); but for `shedding`,
which is off unless somebody asks for it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar

from evenflow.errors import OptionError
from evenflow.stream.declared import Declared, May, number, one_of, optional, whole


@dataclass(frozen=True, slots=True)
class FlowOptions(Declared):
    """Options of one dataflow.

    linger_ms: an ingress closes an epoch this long after its first row (E5). It closes later when the sites lag: see pipeline.
    pipeline: epochs that may be under way between close and the slowest site before an ingress waits; this is what makes epochs
    grow when CPU is short. window_epochs: epochs that may be unfinished by some sink (A5). epoch_rows: most rows that one ingress
    partition puts into an epoch. heartbeat_ms: an idle dataflow closes an empty epoch this often, so that time moves on. ack_ms: an
    acknowledgement waits this long for a message to travel with. memory_bytes: waiting frames a site may hold before it grants room
    to the oldest epoch only. partitions: P of keyed segments at the start; max_partitions: how many they may be divided into while the
    dataflow runs, None: not into more. state_memory_bytes: state that a site may hold in memory before whole
    partitions go to its disk and take turns (M1), None for all of it. spill_group_bytes: most state that goes to disk and comes back in
    one piece, unless one partition has more. spill_gap_ms: least time from the end of a rotation through the partitions on disk to the
    next one (t_gap, FL 6.1): more rows with less reading, later. piece_bytes: about how much of a copy's state is taken in before the site
    looks at anything else. user_timeout_s: user code that runs for longer on one epoch ends the run; None: never. keep_failed_rows: each
    box keeps the newest rows on which it raised, to be shown to whoever looks; they are data. journal_ms: least time between two times at
    which a site tells what the journal is to have, if there is one (J2). checkpoint_s: from one checkpoint to the next, if there is a place
    for them (K1); None: only when somebody asks for one. shedding: what is done where more comes than can be done: "off", it waits;
    "reflex", rows of late sources are left out that are needed by outputs with a quality of service only; "lp", "fit", the plan says
    besides which share of the rows between segments goes on, by a linear program or a table.
    capture_max_ms: where a site backs up another one, from one capture of what has changed to the next (P6). image_memory_bytes: memory
    that a site has for others' images, None: no bound.
    """

    linger_ms: float = 5.0
    pipeline: int = 2
    window_epochs: int = 64
    epoch_rows: int = 131_072
    heartbeat_ms: float = 1000.0
    ack_ms: float = 10.0
    memory_bytes: int = 256 * 2**20
    partitions: int = 256
    max_partitions: int | None = None
    state_memory_bytes: int | None = None
    spill_group_bytes: int = 16 * 2**20
    spill_gap_ms: float = 0.0
    piece_bytes: int = 512 * 2**10
    user_timeout_s: float | None = None
    keep_failed_rows: bool = False
    journal_ms: float = 5.0
    checkpoint_s: float | None = 10.0
    shedding: str = "off"
    capture_max_ms: float = 1000.0
    image_memory_bytes: int | None = None

    option_owner: ClassVar[str] = "option"
    MAY: ClassVar[Mapping[str, May]] = {
        "memory_bytes": whole(1, 2**46), "state_memory_bytes": optional(whole(1, 2**46)), "spill_gap_ms": number(0, 1e9),
        "journal_ms": number(0, 1e6), "checkpoint_s": optional(number(0.001, 1e7)),
        "user_timeout_s": optional(number()), "shedding": one_of("off", "reflex", "lp", "fit"),
        "capture_max_ms": number(1, 1e6), "image_memory_bytes": optional(whole(1, 2**46)),
    }  # fmt: skip

    def paced(self, every_us: int | None) -> FlowOptions:
        """For a dataflow of which nobody wants rows more often than this; None: somebody wants them as soon as they are there.

        An idle one beats no faster, since an epoch that the beat closes would be another one of those that nobody wants.
        """
        if every_us is None:
            return self
        return replace(self, linger_ms=max(self.linger_ms, every_us / 1000), heartbeat_ms=max(self.heartbeat_ms, every_us / 1000))

    def __post_init__(self) -> None:
        super(FlowOptions, self).__post_init__()
        most = self.partitions if self.max_partitions is None else self.max_partitions
        if most > 4096:
            name = "partitions" if self.max_partitions is None else "max_partitions"
            raise OptionError(f"option {name} is {most}; a partition is a range of the 4096 key groups, so 4096 is the most")
        if most < self.partitions:
            raise OptionError(f"option max_partitions is {most}, which is less than the {self.partitions} partitions at the start")
