"""Which sources can be late: only of those rows may be left out, since of others nobody knows since when a row has waited.

`query.units` says what outputs can do without. This file says where nothing comes of that, for whoever asked for it to know.
"""

from __future__ import annotations

from collections.abc import Mapping

from evenflow.plan.layout import Shed
from evenflow.query.network import Network
from evenflow.query.units import sheds


def shed_when_late(network: Network) -> Mapping[str, Shed]:
    """By source, what may be left out of it row by row, where its readers can say since when a row was due."""
    return {name: shed for name, shed in sheds(network).items() if tells_due(network, name)}


def never_late(network: Network) -> tuple[str, ...]:
    """Sources whose outputs can do without rows, and that are never shed all the same."""
    return tuple(name for name in sheds(network) if not tells_due(network, name))


def never_late_text(network: Network) -> str:
    """One line, or nothing."""
    names = never_late(network)
    if not names:
        return ""
    what = f"source {names[0]!r}" if len(names) == 1 else f"sources {', '.join(map(repr, names))}"
    return f"nothing is ever left out of {what}: nobody can say since when a row of {'it' if len(names) == 1 else 'them'} was due\n"


def tells_due(network: Network, name: str) -> bool:
    """Whether a source can say since when a row of it was due."""
    return bool(network.box(name).params["source"].tells_due)
