"""One seed, from its draw to the verdict: faults, then healing, then the demand that everything converges and is right."""

from __future__ import annotations

import traceback
from collections import Counter
from collections.abc import Sequence
from random import Random

from evenflow.availability.mode import MODES, Mode
from evenflow.coordinator.retries import PAUSE_MAX_MS
from evenflow.errors import BoxFailed, DiskError, Fenced, PartitionsLost, UserCodeCrashed
from evenflow.stream.ids import SiteId
from evenflow.swarm.balance_checkers import BalanceCheckers, check_first
from evenflow.swarm.balancing import Balancing
from evenflow.swarm.base_checkers import BaseCheckers
from evenflow.swarm.based_cases import is_based, is_calm
from evenflow.swarm.based_deaths import BasedDeaths
from evenflow.swarm.checkers import Checkers
from evenflow.swarm.coincidences import BLINKS, Coincidences
from evenflow.swarm.divisions import Divisions
from evenflow.swarm.doom import moment_us
from evenflow.swarm.draw import Drawn, draw
from evenflow.swarm.endings import Ending
from evenflow.swarm.faults import Faults
from evenflow.swarm.finishers import Finishers
from evenflow.swarm.full_stores import FullStores
from evenflow.swarm.generations import Generations, losses
from evenflow.swarm.image_checkers import ImageCheckers
from evenflow.swarm.journal_checkers import JournalCheckers
from evenflow.swarm.journals import Journals
from evenflow.swarm.loss_checkers import LossCheckers
from evenflow.swarm.memory import Memory
from evenflow.swarm.movements import Movements
from evenflow.swarm.portions import PortionCheckers
from evenflow.swarm.recurring import Recurring
from evenflow.swarm.regional import is_regional, run_regional
from evenflow.swarm.remoded_cases import is_alone
from evenflow.swarm.remodes import Remodes
from evenflow.swarm.replacements import Replacements
from evenflow.swarm.scaling import Scaling
from evenflow.swarm.story import StoryTeller
from evenflow.swarm.taken import differing
from evenflow.swarm.verdict import Coverage as Coverage
from evenflow.swarm.verdict import Verdict as Verdict
from evenflow.swarm.wishes import Wishes
from evenflow.world.sim.world import SimWorld


def run_seed(seed: int, *, tell: bool = False, modes: bool = True) -> Verdict:
    """Run it. tell: with its story. modes: see `draw`."""
    if is_regional(seed):
        return run_regional(seed, tell=tell)
    drawn = draw(seed, modes=modes)
    if count := losses(drawn):
        return _run_generations(drawn, count, tell=tell)
    world = drawn.build()
    teller = StoryTeller(world) if tell else None
    coverage = Coverage(world)
    Checkers(world)
    PortionCheckers(world)
    check_first(world)
    BaseCheckers(world)
    ImageCheckers(world)
    balance, journal, losing = BalanceCheckers(world), JournalCheckers(world), LossCheckers(world, changing=bool(drawn.case.modes))
    until_us = drawn.mix.until_us
    faults = Faults(world, drawn.mix, Random(seed + 1), careful=not drawn.doomed)
    begins_again = modes and is_based(seed)
    lasting = begins_again or (drawn.case.deadly and is_alone(seed))
    dying = BasedDeaths(world, Random(f"deaths of seed {seed}"), until_us, faults, active=lasting)
    others: tuple[Recurring, ...] = (dying,) if begins_again and is_calm(seed) else (dying, *_others(drawn, world, faults))
    Finishers(world, Random(f"who has finished of seed {seed}"), faults)
    ending = Ending(world, drawn.ending, Random(f"the end of seed {seed}"), drawn.case.counts, until_us, faults)
    failure = trace = None
    try:
        failure = play(drawn, world, faults, others, balance, ending) or journal.judge(world.error, stopped=ending.stopped)
        failure = failure or dying.judge()
        ending.afterwards()  # Meanwhile what sites had told comes.
        failure = failure or losing.judge()
    except Exception as error:
        failure = f"{type(error).__name__}: {error}".split("\n")[0][:600]
        trace = traceback.format_exc()
    return Verdict(
        seed,
        failure,
        str(drawn),
        coverage.fired,
        Counter(faults.done),
        Counter(happened.kind for _, happened in world.happened),
        teller.lines if teller else [],
        world.clock.now_us,
        trace or "",
    )


def _others(drawn: Drawn, world: SimWorld, faults: Faults) -> tuple[Recurring, ...]:
    """What happens besides faults."""
    Wishes(world, Random(f"who wishes of seed {drawn.seed}"), drawn.mix.until_us)
    seed, until_us = drawn.seed, drawn.mix.until_us
    if drawn.case.deadly and is_alone(seed):
        return (
            Coincidences(world, Random(f"coincidences of seed {seed}"), until_us, faults),
            Remodes(world, Random(f"modes of the run of seed {seed}"), until_us, drawn.case, faults),
        )
    return (
        Movements(world, Random(~seed), until_us),
        Divisions(world, Random(f"numbers of seed {seed}"), until_us),
        Memory(world, Random(f"memory of seed {seed}"), until_us, faults),
        Balancing(world, Random(f"balancing of seed {seed}"), until_us),
        Replacements(world, Random(f"versions of seed {seed}"), until_us),
        Scaling(world, Random(f"scaling of seed {seed}"), until_us),
        Coincidences(world, Random(f"coincidences of seed {seed}"), until_us, faults),
        Coincidences(world, Random(f"blinks of seed {seed}"), until_us, faults, BLINKS),
        Journals(world, Random(f"faults of the journal of seed {seed}"), until_us),
        Remodes(world, Random(f"modes of the run of seed {seed}"), until_us, drawn.case, faults),
        FullStores(world, Random(f"full stores of seed {seed}"), until_us),
    )


def _run_generations(drawn: Drawn, count: int, *, tell: bool) -> Verdict:
    """One whose run is lost so often, and goes on."""
    coverages: list[Coverage] = []
    tellers: list[StoryTeller] = []

    def watch(world: SimWorld) -> None:
        coverages.append(Coverage(world))
        tellers.extend([StoryTeller(world)] if tell else [])

    generations = Generations(drawn, watch)
    failure = trace = None
    try:
        failure = generations.play(count, heal)
    except Exception as error:
        failure = f"{type(error).__name__}: {error}".split("\n")[0][:600]
        trace = traceback.format_exc()
    worlds = generations.cluster.worlds
    return Verdict(
        drawn.seed,
        failure,
        f"{drawn}, lost {count} times",
        sum([coverage.fired for coverage in coverages], Counter()),
        generations.struck + Counter({"lost": len(worlds) - 1}),
        Counter(happened.kind for world in worlds for _, happened in world.happened),
        [line for teller in tellers for line in teller.lines],
        worlds[-1].clock.now_us,
        trace or "",
    )


def play(
    drawn: Drawn, world: SimWorld, faults: Faults, others: Sequence[Recurring], balance: BalanceCheckers, ending: Ending
) -> str | None:
    """What is wrong, or None. others: what happens besides faults."""
    if drawn.doomed:
        world.clock.after(moment_us(world, drawn.mix.until_us), lambda: faults.strike("doom"))
    world.run_for(drawn.mix.until_us / 1e6)
    for each in others:
        each.end()
    heal(drawn, world, faults)
    if drawn.held and not world.ended:
        replicas = drawn.world["replicas"]
        joined = lambda: {*world.driver.present} <= {*world.coordinator.sites}  # noqa: E731
        world.run_until(joined, drawn.converge_s(world), "every site that is there to have joined")
        paused_s = PAUSE_MAX_MS / 1e3  # Copies that failed often have a pause of their own.
        world.run_until(lambda: whole(world, replicas), drawn.converge_s(world) + paused_s, f"{replicas} live replicas of every partition")
        rounds = balance.rounds
        if world.coordinator.rounds.active:
            world.run_until(lambda: balance.rounds > rounds, drawn.converge_s(world), "a round of balancing")
        ending.begin()
    ending.go_on(drawn.converge_s(world))
    tables = {sink: world.output(sink) for sink in world.released}
    if world.error is None:
        if not ending.stopped and (complaint := differing(world)):
            return complaint
        if ending.stopped or (ending.drained and not drawn.case.cut and not ending.all_taken()):
            return drawn.case.judge_part(tables)
        return (drawn.cut(ending.taken()) if ending.drained and drawn.case.cut else drawn.case).judge(tables)
    if isinstance(world.error, Fenced) or ending.expects(world.error):
        cut = ending.drained and drawn.case.cut  # Its last windows have been closed by the end, before another driver was heard of.
        return (drawn.cut(ending.taken()) if cut else drawn.case).judge_part(tables)
    if isinstance(world.error, PartitionsLost) and drawn.doomed:
        return judge_loss(world, world.error) or drawn.case.judge_part(tables)
    if isinstance(world.error, PartitionsLost) and (unbased(world) or nobody_left(world, world.error)):
        return judge_loss(world, world.error) or drawn.case.judge_part(tables)
    if isinstance(world.error, UserCodeCrashed):
        return judge_crash(world, world.error) or drawn.case.judge_part(tables)
    if isinstance(world.error, BoxFailed) and "user_timeout_s" in world.error.reason and world.endless:
        return drawn.case.judge_part(tables)
    if isinstance(world.error, DiskError) and nobody_else(drawn, world):
        return drawn.case.judge_part(tables)
    return f"{type(world.error).__name__}: {world.error}"


def heal(drawn: Drawn, world: SimWorld, faults: Faults) -> None:
    """All faults end. Where sites were to be replaced, they are; in any case there are as many as there are replicas."""
    faults.end()
    world.link = type(world.link)(world.link.delay_us, 0, world.link.reconnect_us, world.link.bytes_per_us, world.link.pack_us)
    world.transfer_fates.clear()
    if world.ended:
        return
    wanted = drawn.world["sites"] if drawn.mix.replaced else drawn.world["replicas"]
    alive = sum(site.alive and site.index in world.driver.present for site in world.sites)
    for _ in range(wanted - alive):
        world.add_site()
    world.run_for(2 * world.detection.patience.grace_us / 1e6)
    while not world.ended and sum(site.alive and site.index in world.driver.present for site in world.sites) < wanted:
        world.add_site()


def whole(world: SimWorld, replicas: int) -> bool:
    """Every partition has as many live replicas as its mode asks for."""
    modes = world.coordinator.plan.modes
    wanted = replicas if not modes or any(MODES[mode].replicates for mode in modes) else 1
    return world.redundancy() >= wanted and not world.coordinator.membership.joining


def unbased(world: SimWorld) -> bool:
    """Something is lost with upstream backup whose producers lack what it follows from: they got their partitions since, with no frames. Or
    images do not have all that is lost: whether they were to is another question (`BasedDeaths.judge`)."""
    machine = world.coordinator
    lost = [segment.id for segment in world.layout.segments if segment.name in machine.recovery.lost()]
    upstream = [segment for segment in lost if machine.plan.mode(segment) is Mode.UPSTREAM]
    if machine.backing.active:
        return not machine.reviving.can()
    return upstream == lost and any(not machine.reviving.has_base(segment) for segment in lost)


def nobody_left(world: SimWorld, error: PartitionsLost) -> bool:
    """What is lost begins anew where there is a site. Here the last one is lost, and another one has left before that was seen."""
    machine = world.coordinator
    return set(machine.sites) <= {error.site} and set(machine.plan.modes) == {Mode.AMNESIA}


def nobody_else(drawn: Drawn, world: SimWorld) -> bool:
    """A disk has broken, and what its site has is nowhere else: every replica may be lost, or it would have begun again when the disk
    broke and cannot by the time that somebody reads, as what is made again of its producers' frames cannot once it has moved."""
    machine, broken = world.coordinator, [SiteId(site.index) for site in world.sites if site.disk.has_broken]
    if drawn.doomed:
        return bool(broken)
    return bool(machine.plan.modes) and any(not machine.outlives(site) for site in broken)


def judge_crash(world: SimWorld, error: UserCodeCrashed) -> str | None:
    """The sites that it names have died there; if a row was deadly, the error says which epoch it was in."""
    segment = next(segment.id for segment in world.layout.segments if segment.name == error.segment)
    if any((segment, error.epoch) not in world.sites[site].doing() or world.sites[site].alive for site in error.sites):
        return f"UserCodeCrashed names sites {error.sites}, of which not all died there"
    epochs = {epoch for of, partition, epoch in world.deadly if of == segment and partition in error.partitions}
    return f"UserCodeCrashed names epoch {error.epoch}, not one of {epochs}" if epochs and error.epoch not in epochs else None


def judge_loss(world: SimWorld, error: PartitionsLost) -> str | None:
    """The error names what is gone, and only that."""
    names = {segment.name: segment for segment in world.layout.segments}
    if not error.partitions and world.coordinator.sites:
        return "PartitionsLost names no partition"
    for name, partitions in error.partitions.items():
        for partition in partitions:
            living = set(world.coordinator.membership.live(world.coordinator.plan, names[name].id, partition))
            if living - {error.site}:
                return f"PartitionsLost names {name} {partition}, which lives at {living}"
    return None
