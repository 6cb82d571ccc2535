"""A deployment in the simulator: the only module of the experiments that knows it."""

from __future__ import annotations

from dataclasses import replace

from evenflow.experiments.harness.simulated import Deployment
from evenflow.query.planner import layout
from evenflow.world.sim.model import CostModel, DiskModel, LinkModel
from evenflow.world.sim.world import SimWorld

US_PER_BYTE_AT_1_MBIT = 8.0


def start(deployment: Deployment) -> SimWorld:
    """Start it. Everything that is not of the deployment is as the simulator has it."""
    mbit_per_s = deployment.link_mbit_per_s
    usual = LinkModel(shared=deployment.link_shared)
    link = usual if mbit_per_s is None else replace(usual, bytes_per_us=mbit_per_s / US_PER_BYTE_AT_1_MBIT)
    free = frozenset({"ingress", "egress"}) if deployment.ends_free else frozenset()
    world = SimWorld(
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
    )
    world.coordinator.recovery.spread = deployment.spread
    return world
