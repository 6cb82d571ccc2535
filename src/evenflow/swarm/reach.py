"""What the swarm is to reach: every row of the machines' tables, or a reason why no seed can."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from evenflow.coordinator.rules import RULES as COORDINATOR
from evenflow.exchange.rules import RuleTable
from evenflow.site.rules import RULES as SITE

TABLES: Final[Mapping[str, RuleTable[Any]]] = {"site": SITE, "coordinator": COORDINATOR}
"""By whose they are. The exchange and the ends of a site have no tables of their own: their rules act within the effects of these,
and `within` names their functions."""

_NO_LINES: Final = "seeds draw no source whose rows are kept at the checkpoint location; tests of their own do"
_NO_NEWCOMERS: Final = "seeds draw no source that finds partitions while it is read; tests/sim/test_newcomers.py does"
_NO_IMAGES: Final = "seeds draw no passive standby without a location; tests/sim/test_images.py does"
UNREACHABLE: Final[Mapping[str, str]] = (
    dict.fromkeys(("coordinator V2 NewcomersSeen running: want_newcomers", "coordinator V2 NewcomersSeen otherwise: ignore"), _NO_NEWCOMERS)
    | dict.fromkeys(
        (
            "site J5 RowsStored leads: note_rows",
            "site J5 RowsStored otherwise: ignore",
            "site J5 RowsRead leads: take_again",
            "site J5 RowsRead otherwise: ignore",
            "site J5 RowsUnread leads: give_up_rows",
            "site J5 RowsUnread otherwise: ignore",
        ),
        _NO_LINES,
    )
    | dict.fromkeys(
        [f"{who} {rule.name}" for who, table in TABLES.items() for rule in table.rules if rule.id in ("P1", "P2", "P3", "P4", "P5", "P6")],
        _NO_IMAGES,
    )
)
"""Rows that no seed can fire, and why."""


def rows() -> list[str]:
    """Every row of the tables: whose it is, id, event, guard and effect."""
    return [f"{who} {rule.name}" for who, table in TABLES.items() for rule in table.rules]
