"""What must hold at every step of a simulated run. Outside the product: they only look."""

from __future__ import annotations

from weakref import WeakKeyDictionary

from evenflow.stream.epoch import NO_WATERMARK
from evenflow.world.sim.world import SimWorld


def window_is_kept(world: SimWorld) -> None:
    """A5: no ingress is further ahead of the slowest site than the window, but for an epoch that a plan or an idle clock asked for."""
    slowest = min(site.part.finished for site in world.sites if site.part.hosted)
    for site in world.sites:
        assert site.part.closed - slowest <= world.options.window_epochs + 8, f"{site.part} is ahead of {slowest}"


def order_is_kept(world: SimWorld) -> None:
    """O1: a sink gets epochs once each, in order."""
    for name, released in world.released.items():
        if len(released) > 1:
            assert released[-2][0] < released[-1][0], f"sink {name} got epoch {released[-1][0]} after {released[-2][0]}"


def acknowledged_is_dropped(world: SimWorld) -> None:
    """A1: nobody keeps more epochs than can be under way, and those that were closed while the link to a slow acknowledger was down."""
    for site in world.sites:
        for retention in site.part.retained.values():
            kept = len(retention.replay(retention.consumers[0], 0).marks) if retention.consumers else 0
            assert kept <= world.options.window_epochs + 64, f"{site.part} keeps {kept} epochs of stream {retention.stream}"


def plans_agree(world: SimWorld) -> None:
    """V2: plans are committed in one order everywhere, and nobody closed an epoch of a plan before it was committed here."""
    known = {plan.number: plan for site in world.sites for plan in site.part.plans}
    for site in world.sites:
        first, last = site.part.plans[0].number, site.part.plans[-1].number  # Plans that govern no epoch any more are forgotten.
        assert site.part.plans == [known[number] for number in sorted(known) if first <= number <= last]
        hold = site.part.ingress.hold_from
        assert hold is None or site.part.closed < hold, f"{site.part} promised to wait at {hold}"


def watermarks_do_not_go_back(world: SimWorld) -> None:
    """E6: event time moves forward at every segment."""
    for site in world.sites:
        for segment, hosted in site.part.hosted.items():
            seen = _seen.setdefault(world, {})
            assert hosted.watermark >= seen.get((site.index, segment), NO_WATERMARK), f"segment {segment} at {site.part}"
            seen[site.index, segment] = hosted.watermark


_seen: WeakKeyDictionary[SimWorld, dict[tuple[int, int], int]] = WeakKeyDictionary()

ALL = (window_is_kept, order_is_kept, acknowledged_is_dropped, plans_agree, watermarks_do_not_go_back)
