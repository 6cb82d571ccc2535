"""The simulated network does not give what real ones cannot: bytes of a connection that is gone."""

from __future__ import annotations

from random import Random

import pyarrow as pa

import evenflow as ef
from evenflow.exchange.section import Section
from evenflow.query.planner import layout
from evenflow.world.sim.clock import VirtualClock
from evenflow.world.sim.model import DetectionModel, LinkModel
from evenflow.world.sim.network import Ends, Network
from evenflow.world.sim.world import SimWorld


def run_for(clock: VirtualClock, us: int) -> None:
    over = list[bool]()
    clock.after(us, lambda: over.append(True))
    while not over:
        clock.step()


def test_what_is_said_on_a_connection_that_the_other_end_has_given_up_never_comes() -> None:
    """Goal: an old demand does not come out of nowhere. Method: cut one direction; its end gives the connection up, and the other one,
    which has not heard of that yet, says something on it; the cut is healed before there is a new connection. Then all comes."""
    clock, came = VirtualClock(), list[Section]()
    ends = Ends(lambda _: True, lambda *_: True, lambda *_: None, lambda *_: None, lambda *said: came.append(said[2]))
    network = Network(clock, Random(1), LinkModel(reconnect_us=2_000), DetectionModel(), ends)
    for site in (0, 1):
        network.add(site, linked=True)
    network.cut(0, 1)
    network.lose(0, 1, by=1)
    assert network.is_open(0, 1) and not network.is_open(1, 0), "one end does not know"
    network.send(0, 1, lost := Section())
    network.heal(0, 1)
    run_for(clock, 1_000)
    assert came == []
    run_for(clock, 20_000)
    assert network.is_open(0, 1) and network.is_open(1, 0)
    network.send(0, 1, again := Section())
    run_for(clock, 2_000)
    assert len(came) == 1 and came[0] is again and lost is not again


def test_a_process_that_is_gone_says_nothing_of_a_new_roster() -> None:
    """Goal: a silent death is silent. Method: a site dies and its connection to the driver stands; another one is lost at once, so that all
    are told of a new roster. When the driver has heard of the first one last lies before its death."""
    flow = ef.Dataflow("gone")
    flow.source(ef.sources.memory([], schema=pa.schema([("k", pa.int64())])), name="rows").to(ef.sinks.memory("out"), name="out")
    world = SimWorld(layout(flow.network, sites=4, partitions=4), sites=4, replicas=2, seed=3)
    world.sources_may_end = False
    world.run_for(0.05)
    watched = world.driver.fleet.detector.sites[0]
    world.kill(0, silently=True)
    died_us = world.clock.now_us + world.link.delay_us[1]
    world.kill(2)
    world.run_for(0.05)
    assert 2 not in world.coordinator.sites and watched.heard_us <= died_us
