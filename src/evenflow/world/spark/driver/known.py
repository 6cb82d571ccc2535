"""What the driver knows of a site that lives: its line, its address, what it has reported."""

from __future__ import annotations

from dataclasses import dataclass

from evenflow.coordinator.fleet import Member
from evenflow.world.spark.net import control
from evenflow.world.spark.net.channel import Line
from evenflow.world.spark.net.handshake import Hello as Greeting


@dataclass(slots=True)
class KnownSite:
    """A site that has said hello and is not dead. member: what the fleet knows of it. reported_s: when its
    newest report came, by the driver's monotonic clock."""

    index: int
    line: Line
    hello: Greeting
    address: tuple[str, int]
    member: Member
    report: control.Report | None = None
    reported_s: float = 0.0
    confirmed: int = 0

    @property
    def linked(self) -> bool:
        """It has reached all its peers."""
        return self.member.linked

    @property
    def incarnation(self) -> str:
        return self.member.newcomer.incarnation

    @property
    def executor(self) -> str:
        return str(self.hello["executor"])
