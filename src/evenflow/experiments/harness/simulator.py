"""A deployment in the simulator: the only module of the experiments that knows it."""

from __future__ import annotations

from dataclasses import replace

from evenflow.experiments.harness.simulated import Deployment
from evenflow.query.planner import layout
from evenflow.site.events import Event, Heard
from evenflow.world.sim.model import CostModel, DiskModel, LinkModel
from evenflow.world.sim.observer import Observer
from evenflow.world.sim.site import SimSite
from evenflow.world.sim.world import SimWorld
from evenflow.world.spark.net.wire import encode_sections

US_PER_BYTE_AT_1_MBIT = 8.0


class Meter(Observer):
    """bytes_said: what sites have said to each other so far, as it is encoded for a socket."""

    def __init__(self) -> None:
        self.bytes_said = 0

    def before_handled(self, site: SimSite, event: Event) -> None:
        if isinstance(event, Heard) and event.peer != site.index:
            self.bytes_said += sum(map(len, encode_sections([(0, event.section)])))


class Watched(SimWorld):
    """A world that knows what its sites have said."""

    @property
    def bytes_said(self) -> int:
        return sum(each.bytes_said for each in self.observers if isinstance(each, Meter))


def start(deployment: Deployment) -> Watched:
    """Start it. Everything that is not of the deployment is as the simulator has it."""
    mbit_per_s = deployment.link_mbit_per_s
    usual = LinkModel(shared=deployment.link_shared)
    link = usual if mbit_per_s is None else replace(usual, bytes_per_us=mbit_per_s / US_PER_BYTE_AT_1_MBIT)
    free = frozenset({"ingress", "egress"}) if deployment.ends_free else frozenset()
    world = Watched(
        layout(deployment.flow.network, sites=deployment.sites, partitions=deployment.partitions),
        sites=deployment.sites,
        replicas=deployment.replicas,
        spares=deployment.spares,
        availability=deployment.availability,
        placement=deployment.placement,
        seed=deployment.seed,
        options=deployment.options,
        cost=CostModel(row_us=deployment.row_us, free=free),
        link=link,
        disk=DiskModel(deployment.disk_delay_us, deployment.disk_bytes_per_us),
        read_every_us=deployment.read_every_us,
        policy=deployment.policy,
        parameters=deployment.parameters,
        observers=(Meter(),) if deployment.metered else (),
    )
    world.coordinator.recovery.spread = deployment.spread
    return world
