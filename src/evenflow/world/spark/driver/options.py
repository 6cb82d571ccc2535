"""What a user can set about an engine, and about the dataflows that it runs."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Final

from evenflow.availability.durability import Durability
from evenflow.availability.mode import Mode
from evenflow.coordinator.recovery import PATIENCE_MS
from evenflow.errors import OptionError
from evenflow.policy.catalogue import described
from evenflow.policy.proposal import Parameters
from evenflow.policy.scaling import Times
from evenflow.sinks.sink import MOST_WRITERS
from evenflow.site.options import FlowOptions
from evenflow.stream.declared import Declared, May, Unfit, a, number, one_of, optional, path, whole
from evenflow.world.spark.driver.network import check_tls, port_range

DEFAULT: Final = FlowOptions()
RACING: Final = ("hedge", "race")
"""Ways of feeding that have a name, and are not there."""


def site_range() -> May:
    """The fewest and the most sites, as a pair."""
    one = whole(1)

    def fit(value: Any) -> tuple[int, int]:
        if not isinstance(value, list | tuple) or len(value) != 2:
            raise Unfit
        least, most = one.fit(value[0]), one.fit(value[1])
        if least > most:
            raise Unfit
        return least, most

    return May("the fewest and the most sites, such as (2, 8)", fit)


@dataclass(frozen=True, slots=True)
class EngineOptions(Declared):
    """Options of an engine and of the dataflows that it runs.

    linger_ms .. max_partitions, capture_max_ms: see `evenflow.site.options.FlowOptions`; none of them changes results.
    site_memory_mb: waiting frames that
    a site may hold for a dataflow before it grants room to the oldest epoch only. state_memory_mb: state that a site may hold in memory
    for a dataflow; what is more goes to its disk by whole partitions, which take turns; None: all of it stays.
    image_memory_mb: memory that a site has for what it backs up of others, None: no bound. lease_s: a site that has
    not heard of the driver for this long ends. place_timeout_s: how long to wait for executors and sites. patience_s: how long a lost
    site's partitions wait for a new site before they are copied onto the remaining ones. user_timeout_s: user code that runs for longer on
    one epoch ends the run, None: never. keep_failed_rows: the newest rows on which a box raised are shown on the page. bind: the address
    at which sites listen, or a network (10.1.0.0/16) in which each has one; None: the one from which they reach the driver. ports: the
    first and the last port at which sites and the driver listen ("40000-40099"), None: any. tls: all that they say to each other is
    encrypted, with a certificate of the engine's own or that in the files tls_ca, tls_certificate and tls_key, which every machine has;
    tls_name: the name in them, None: the address of each machine. writers: parallel writers of sinks inside sites, None: one per site.
    balance: the policy by which load is moved between sites while the query runs (see
    `evenflow.policy`), or "none". balance_parameters: its thresholds and bounds, None: its own. checkpoint_location: a folder in which
    each dataflow has its own, by its name, for what a restart needs; None: nothing is written down. shedding: what is done where more
    comes than can be done: "off", it waits; "reflex", rows of sources that are late are left out, where only outputs with `qos` need them;
    "lp", "fit", plans say besides what is left out within the dataflow, so that outputs are worth most (see `evenflow.policy.shedding`).
    first_placement: where first replicas lie when a run begins, at the start and after the loss of everything: "home", in blocks, and
    by the hash of the name what has one partition; "start", such ones so that they do not meet (see `evenflow.policy.start`).
    durability: of dataflows that begin at a location and do not say another one when they start: "precise", outputs wait until a restart
    could make them again as they are; "no-loss", they wait for nothing, and what came after the newest checkpoint comes again after a loss.
    autoscale: the fewest and the most sites that there shall be, and how many of them follows what is offered; None: as many as there are.
    autoscale_times: when sites come and go (see `evenflow.policy.scaling`), None: its own.
    availability: of dataflows that do not say another one when they start, see `evenflow.availability.mode`.
    feeding: who feeds a replica, "own": the one of its rank, and another one when that is lost. Other ways are refused (decision 180).
    """

    linger_ms: float = DEFAULT.linger_ms
    pipeline: int = DEFAULT.pipeline
    window_epochs: int = DEFAULT.window_epochs
    epoch_rows: int = DEFAULT.epoch_rows
    heartbeat_ms: float = DEFAULT.heartbeat_ms
    ack_ms: float = DEFAULT.ack_ms
    journal_ms: float = DEFAULT.journal_ms
    checkpoint_s: float | None = DEFAULT.checkpoint_s
    capture_max_ms: float = DEFAULT.capture_max_ms
    partitions: int = DEFAULT.partitions
    max_partitions: int | None = DEFAULT.max_partitions
    site_memory_mb: int = DEFAULT.memory_bytes >> 20
    state_memory_mb: float | None = None
    image_memory_mb: float | None = None
    spill_gap_ms: float = DEFAULT.spill_gap_ms
    lease_s: float = 10.0
    place_timeout_s: float = 60.0
    patience_s: float = PATIENCE_MS / 1000
    user_timeout_s: float | None = DEFAULT.user_timeout_s
    keep_failed_rows: bool = DEFAULT.keep_failed_rows
    writers: int | None = None
    bind: str | None = None
    ports: tuple[int, int] | None = None
    tls: bool = False
    tls_ca: str | None = None
    tls_certificate: str | None = None
    tls_key: str | None = None
    tls_name: str | None = None
    balance: str = "none"
    balance_parameters: Parameters | None = None
    checkpoint_location: str | None = None
    durability: str = "precise"
    shedding: str = DEFAULT.shedding
    first_placement: str = "home"
    autoscale: tuple[int, int] | None = None
    autoscale_times: Times | None = None
    availability: str = "pairs"
    feeding: str = "own"

    option_owner: ClassVar[str] = "option"
    MAY: ClassVar[Mapping[str, May]] = {
        "spill_gap_ms": number(0, 1e9), "patience_s": number(0, 1e6), "user_timeout_s": optional(number()),
        "durability": one_of(*map(str, Durability)),
        "writers": optional(whole(1, MOST_WRITERS)), "journal_ms": number(0, 1e6), "checkpoint_s": optional(number(0.001, 1e7)),
        "capture_max_ms": number(1, 1e6), "image_memory_mb": optional(number()),
        "ports": optional(port_range()), "checkpoint_location": optional(path("a directory or a URL")),
        "balance_parameters": optional(a("a Parameters of evenflow.policy.proposal", lambda given: isinstance(given, Parameters))),
        "shedding": one_of("off", "reflex", "lp", "fit"), "first_placement": one_of("home", "start"),
        "availability": one_of(*map(str, Mode)), "feeding": one_of("own", *RACING),
        "autoscale": optional(site_range()),
        "autoscale_times": optional(a("a Times of evenflow.policy.scaling", lambda given: isinstance(given, Times))),
    }  # fmt: skip

    def __post_init__(self) -> None:
        super(EngineOptions, self).__post_init__()
        if self.feeding in RACING:
            raise OptionError(
                f"option feeding={self.feeding!r} is not there: a replica is fed by the one of its rank, and by another one when that is "
                "lost. Leave it out; replicas=2 and sources that are cut by content mask what one site at a time stalls, and replicas=3 "
                "what two do"
            )
        described(self.balance)
        check_tls(self)
        self.flow_options()

    def flow_options(self) -> FlowOptions:
        inner = {"memory_bytes", "state_memory_bytes", "image_memory_bytes", "spill_group_bytes", "piece_bytes"}
        shared = {f.name for f in dataclasses.fields(FlowOptions)} - inner
        state = None if self.state_memory_mb is None else int(self.state_memory_mb * 2**20)
        images = None if self.image_memory_mb is None else int(self.image_memory_mb * 2**20)
        given = {name: getattr(self, name) for name in shared}
        return FlowOptions(**given, memory_bytes=self.site_memory_mb << 20, state_memory_bytes=state, image_memory_bytes=images)
