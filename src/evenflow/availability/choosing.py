"""The modes of a dataflow's segments, from what its boxes ask for and what it has otherwise; and which combinations there cannot be."""

from __future__ import annotations

from evenflow.availability.mode import MODES, Mode, Modes, check_built, mode_named, shortened
from evenflow.errors import AvailabilityError
from evenflow.plan.layout import Layout


def modes_of(layout: Layout, availability: str = Mode.PAIRS, sites: int | None = None) -> Modes:
    """By segment. availability: of all whose boxes do not say. sites: how many host from the start, if that is known.

    Raises AvailabilityError for a mode that there is not, that is not built, or for which there are too few sites.
    """
    where = f"dataflow {layout.name!r}"
    otherwise = check_built(mode_named(availability, where), where)
    chosen = [check_built(layout.modes.get(s.id, otherwise), f"{where}, segment {s.name!r}") for s in layout.segments]
    check_sites(chosen, sites, where)
    return shortened(chosen)


def check_sites(modes: list[Mode], sites: int | None, where: str) -> None:
    """Raise AvailabilityError where a backup would be on the site that it is for."""
    needs = next((mode for mode in modes if MODES[mode].backup), None)
    if needs is not None and sites is not None and sites < 2:
        raise AvailabilityError(f"{where}: availability {str(needs)!r} needs two sites at least, and there is {sites}: use more sites")
