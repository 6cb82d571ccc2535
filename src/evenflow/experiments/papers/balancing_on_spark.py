"""`rebalance`, `skewed-keys`, `overload` and `after-failure` on real executors: as in the simulator, with a cost that is slept.

Where nobody dies all variants have one cluster, one after the other. Rates are shares of each run's own rate before.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Final

from evenflow.experiments.harness.balancing import SetUp
from evenflow.experiments.harness.experiment import Setting
from evenflow.experiments.harness.on_spark import BalancingWorld, Sessions
from evenflow.experiments.harness.slow import EMULATED_BY_SLEEP, Slowness
from evenflow.experiments.harness.workload import slow_totals
from evenflow.experiments.papers import after_failure, overload, rebalance, skewed_keys
from evenflow.experiments.result.result import Bound, Measurement
from evenflow.query.builder import Dataflow
from evenflow.sources import Source

PATIENCE_S: Final = 15.0
"""Nobody dies."""
GONE_S: Final = 1.0
"""A cluster's manager needs time to give a new machine; where sites die it never does."""
SLOW_OPERATOR: Final = "A slow site is one whose operator needs so many times as long for each row; all else there is as fast as before."


def drawn(slowness: Slowness, history: int, set_up: SetUp, source: Source | None) -> Dataflow:
    """The operator that sleeps, for every row; see `SetUp.drawn`."""
    return slow_totals(keys=set_up.keys, row_us=set_up.row_us, shown=1, source=source, slowness=slowness, history=history)


@contextmanager
def clusters(set_up: SetUp, *, history: int = 0, deaths: bool = False) -> Iterator[tuple[Sessions[BalancingWorld], SetUp]]:
    """What starts worlds whose sites can be slowed, and the set-up with an operator that notices. deaths: sites die, and nobody takes
    their place. history: rows of each key that are kept."""
    with tempfile.TemporaryDirectory(prefix="evenflow-slowness-") as directory:
        slowness = Slowness(directory)
        world = partial(BalancingWorld, slowness=slowness)
        with Sessions(world, replaced=not deaths, patience_s=GONE_S if deaths else PATIENCE_S, kept=not deaths) as start:
            yield start, replace(set_up, drawn=partial(drawn, slowness, history))


SET_UP: Final = SetUp(keys=20_000, row_us=400.0, epoch_rows=20, every_s=0.05, settle_s=5.0)
"""Of 5,000 rows/s, in epochs of some 50 ms: what the sites themselves cost leaves two cores room."""


REBALANCE: Final = rebalance.Times(slow_at_s=12.0, seconds=40.0, static_s=24.0, steady_s=10.0, set_up=SET_UP)
REBALANCE_QUICK: Final = replace(REBALANCE, slow_at_s=6.0, seconds=12.0, static_s=12.0, steady_s=3.0)


def rebalance_on_spark(setting: Setting) -> Measurement:
    times = REBALANCE_QUICK if setting.quick else REBALANCE
    with clusters(times.set_up) as (start, set_up):
        seen = rebalance.compare(setting, start, replace(times, set_up=set_up))
    found = rebalance.figures(times, seen)
    notes = (EMULATED_BY_SLEEP, SLOW_OPERATOR, *REBALANCE_NOTES)
    return Measurement(found, of_evenflow(rebalance.targets()), rebalance.chart(times, seen), notes, rebalance.PAPER)


OVERLOAD: Final = overload.Times(12.0, overload.lengths(heavy=50.0, severe=50.0, own=32.0), 8.0, replace(SET_UP, epoch_rows=12, pipeline=4))
OVERLOAD_QUICK: Final = replace(OVERLOAD, slow_at_s=6.0, seconds=overload.lengths(heavy=12.0, severe=12.0, own=12.0), steady_s=3.0)


def overload_on_spark(setting: Setting) -> Measurement:
    times = OVERLOAD_QUICK if setting.quick else OVERLOAD
    with clusters(times.set_up) as (start, set_up):
        seen = overload.compare(setting, start, replace(times, set_up=set_up))
    found = overload.figures(times, seen)
    notes = (EMULATED_BY_SLEEP, SLOW_OPERATOR, OVERLOAD_NOTE)
    return Measurement(found, of_evenflow(overload.targets()), overload.chart(times, seen), notes, overload.PAPER)


SKEWED: Final = skewed_keys.Times(
    (150, 500),
    ("no_load", "load"),
    15.0,
    7.0,
    SetUp(sites=4, replicas=1, keys=16_384, row_us=500.0, every_s=0.05, epoch_rows=32, pipeline=4),
    partitions=256,
)
SKEWED_QUICK: Final = replace(SKEWED, deltas_ms=(250,), loads=("no_load",), seconds=6.0, skipped_s=3.0)


def skewed_keys_on_spark(setting: Setting) -> Measurement:
    times = SKEWED_QUICK if setting.quick else SKEWED
    with clusters(times.set_up) as (start, set_up):
        rates = skewed_keys.compare(setting, start, replace(times, set_up=set_up))
    notes = (EMULATED_BY_SLEEP, SLOW_OPERATOR, *SKEWED_NOTES)
    return Measurement(
        skewed_keys.figures(times, rates), skewed_keys.targets(times), skewed_keys.chart(times, rates), notes, skewed_keys.PAPER
    )


AFTER_FAILURE_VARIANTS: Final = [variant.name for variant in after_failure.VARIANTS]
AFTER_FAILURE: Final = after_failure.Times(9.0, dict.fromkeys(AFTER_FAILURE_VARIANTS, 27.0), 7.0, replace(SET_UP, settle_s=4.0))
AFTER_FAILURE_QUICK: Final = after_failure.Times(6.0, dict.fromkeys(AFTER_FAILURE_VARIANTS, 14.0), 3.0, replace(SET_UP, settle_s=3.0))


def after_failure_on_spark(setting: Setting) -> Measurement:
    """A cluster for each run. The slot that Spark would give to a new site is taken by another job."""
    times = AFTER_FAILURE_QUICK if setting.quick else AFTER_FAILURE
    with clusters(times.set_up, deaths=True) as (start, set_up):
        seen = after_failure.compare(setting, start, replace(times, set_up=set_up))
    found, notes = after_failure.figures(times, seen), (EMULATED_BY_SLEEP, *AFTER_FAILURE_NOTES)
    return Measurement(found, of_evenflow(after_failure.targets()), after_failure.chart(times, seen), notes, after_failure.PAPER)


def of_evenflow(targets: dict[str, Bound]) -> dict[str, Bound]:
    """What the papers' policy does here is shown; that it does what it did there is for the simulator to prove."""
    return {name: bound for name, bound in targets.items() if "thesis" not in name}


REBALANCE_NOTES: Final = (
    "P = 32 is the thesis' 64 partitions, which count both replicas. Its output is first come, first served; Evenflow's is in order.",
)
OVERLOAD_NOTE: Final = "P = 32 is 16 replicas on each machine, as in the thesis. Only its Flux with pairs is repeated, not Flux-LB."
SKEWED_NOTES: Final = (
    "4 sites with 64 partitions each instead of 32 sites; the external load is on one of them instead of eight.",
    "80/20 is self-similar over 16,384 keys: one key has a quarter of all rows. The paper does not say which 80/20 it uses.",
)
AFTER_FAILURE_NOTES: Final = (
    "No site comes in the place of the dead one: another Spark job takes the slot.",
    "P = 4 and P = 32 are the thesis' 8 and 64 partitions, which count both replicas. Its output is first come, first served; Evenflow's "
    "is in order.",
    "Unbalanced recovery puts all lost replicas on one site, and is there for this experiment alone; Evenflow spreads them.",
)
