"""The experiments that can be run, and in which worlds. One that cannot run yet is not here."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from evenflow.experiments.harness.experiment import Experiment, Setting
from evenflow.experiments.harness.simulated import StartBalancing
from evenflow.experiments.papers import (
    after_failure,
    availability_modes,
    checkpoint_schedule,
    correlation,
    degradation,
    failover,
    hybrid,
    large_state,
    memory,
    overload,
    pair_overhead,
    rebalance,
    reliability,
    resilient,
    shedding,
    skewed_keys,
    stalls,
    transient_skew,
    wide_area,
)
from evenflow.experiments.result.result import Measurement, World

Measure = Callable[[Setting], Measurement]


def _in_simulator(measure: Callable[[Setting, StartBalancing], Measurement]) -> Measure:
    def run(setting: Setting) -> Measurement:
        from evenflow.experiments.harness.simulator import start

        return measure(setting, start)

    return run


def _pair_overhead_in_simulator(setting: Setting) -> Measurement:
    from evenflow.experiments.harness.simulator import start

    load_of = pair_overhead.load_in_simulator(start, quick=setting.quick)
    rounds = 1 if setting.quick else pair_overhead.ROUNDS
    return pair_overhead.measure(setting, load_of, rounds, pair_overhead.NOTES_IN_SIMULATOR)


def _availability_modes_in_simulator(setting: Setting) -> Measurement:
    from evenflow.experiments.harness.simulator import start

    return availability_modes.measure(setting, start)


def _availability_modes_on_spark(setting: Setting) -> Measurement:
    from evenflow.experiments.papers.availability_modes_on_spark import measure

    return measure(setting)


def _stalls_in_simulator(setting: Setting) -> Measurement:
    from evenflow.experiments.harness.simulator import start

    return stalls.measure(setting, start)


def _stalls_on_spark(setting: Setting) -> Measurement:
    from evenflow.experiments.papers.stalls_on_spark import measure

    return measure(setting)


def _failover_on_spark(setting: Setting) -> Measurement:
    from evenflow.experiments.papers.failover_on_spark import measure

    return measure(setting)


def _pair_overhead_on_spark(setting: Setting) -> Measurement:
    from evenflow.experiments.papers.overhead_on_spark import NOTES, loads

    with loads(quick=setting.quick) as load_of:
        return pair_overhead.measure(setting, load_of, 1 if setting.quick else pair_overhead.ROUNDS, NOTES)


def _after_failure_on_spark(setting: Setting) -> Measurement:
    from evenflow.experiments.papers.balancing_on_spark import after_failure_on_spark

    return after_failure_on_spark(setting)


def _rebalance_on_spark(setting: Setting) -> Measurement:
    from evenflow.experiments.papers.balancing_on_spark import rebalance_on_spark

    return rebalance_on_spark(setting)


def _overload_on_spark(setting: Setting) -> Measurement:
    from evenflow.experiments.papers.balancing_on_spark import overload_on_spark

    return overload_on_spark(setting)


def _skewed_keys_on_spark(setting: Setting) -> Measurement:
    from evenflow.experiments.papers.balancing_on_spark import skewed_keys_on_spark

    return skewed_keys_on_spark(setting)


def _memory_on_spark(setting: Setting) -> Measurement:
    from evenflow.experiments.papers.memory_on_spark import memory_on_spark

    return memory_on_spark(setting)


def _large_state_on_spark(setting: Setting) -> Measurement:
    from evenflow.experiments.papers.recovery_on_spark import large_state_on_spark

    return large_state_on_spark(setting)


def _experiment(name: str, title: str, source: str, worlds: dict[World, Measure]) -> Experiment:
    return Experiment(name, title, source, tuple(worlds), {}, lambda setting: worlds[setting.world](setting))


_ALL: Final = (
    reliability.EXPERIMENT,
    _experiment(
        "failover",
        "what is seen of a machine that dies under load",
        "FT fig. 3.16",
        {"sim": _in_simulator(failover.measure), "spark": _failover_on_spark},
    ),
    _experiment(
        "pair-overhead",
        "what it costs to compute everything twice",
        "FT fig. 3.17",
        {"sim": _pair_overhead_in_simulator, "spark": _pair_overhead_on_spark},
    ),
    _experiment(
        "after-failure",
        "how much of the rate is left when no other machine takes a dead one's place",
        "FT fig. 5.4, table 5.2",
        {"sim": _in_simulator(after_failure.measure), "spark": _after_failure_on_spark},
    ),
    _experiment(
        "availability-modes",
        "what a mode of availability costs, and what a lost machine costs then",
        "HW 3.6, tables 3.5 to 3.8",
        {"sim": _availability_modes_in_simulator, "spark": _availability_modes_on_spark},
    ),
    _experiment(
        "large-state",
        "does the output stall while much state is recovered",
        "FT fig. 5.5, table 5.3",
        {"sim": _in_simulator(large_state.measure), "spark": _large_state_on_spark},
    ),
    _experiment(
        "rebalance",
        "one of four machines at half speed",
        "FT fig. 5.3, table 5.1",
        {"sim": _in_simulator(rebalance.measure), "spark": _rebalance_on_spark},
    ),
    _experiment("degradation", "more and more slow machines of 32", "FL fig. 8", {"sim": _in_simulator(degradation.measure)}),
    _experiment(
        "skewed-keys",
        "80/20 keys, and how long is collected",
        "FL fig. 9",
        {"sim": _in_simulator(skewed_keys.measure), "spark": _skewed_keys_on_spark},
    ),
    _experiment(
        "overload",
        "a machine that becomes 12 and 23 times slower",
        "FT fig. 5.6, 5.7, table 5.4",
        {"sim": _in_simulator(overload.measure), "spark": _overload_on_spark},
    ),
    _experiment(
        "memory",
        "a machine loses half of its memory",
        "FL fig. 11, 12",
        {"sim": _in_simulator(memory.measure), "spark": _memory_on_spark},
    ),
    _experiment("hybrid", "processors and memory under pressure at once", "FL fig. 15", {"sim": _in_simulator(hybrid.measure)}),
    _experiment(
        "transient-skew",
        "a short load that goes round the machines",
        "FT fig. 5.2, FL fig. 3",
        {"sim": _in_simulator(transient_skew.measure)},
    ),
    _experiment(
        "checkpoint-schedule",
        "who captures what when, and who backs up whom",
        "HW fig. 4.6-4.10",
        {"sim": checkpoint_schedule.measure},
    ),
    _experiment(
        "stalls", "sites that hang for a moment, one after the other", "HW 5", {"sim": _stalls_in_simulator, "spark": _stalls_on_spark}
    ),
    shedding.EXPERIMENT,
    _experiment("resilient", "how many mixes of rates a placement takes", "BO fig. 5", {"sim": resilient.measure}),
    _experiment("correlation", "what bursts together must be apart", "BO fig. 3, 4", {"sim": correlation.measure}),
    wide_area.EXPERIMENT,
)
EXPERIMENTS: Final[dict[str, Experiment]] = {experiment.name: experiment for experiment in _ALL}
