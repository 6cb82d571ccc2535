"""The simulated network does not give what real ones cannot: bytes of a connection that is gone."""

from __future__ import annotations

from random import Random

from evenflow.exchange.section import Section
from evenflow.world.sim.clock import VirtualClock
from evenflow.world.sim.model import DetectionModel, LinkModel
from evenflow.world.sim.network import Ends, Network


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
