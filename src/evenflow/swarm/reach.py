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

_NO_NEWCOMERS: Final = "seeds draw no source that finds partitions while it is read; tests/sim/test_newcomers.py does"
_TOO_SOON: Final = "seeds' stores keep a checkpoint waiting for less than its minute; tests/coordinator/test_journal.py does not"
_STOPPED: Final = "what is stopped in seeds has a store that answers within the time; in tests/coordinator/test_journal.py it has none"
_NOT_LAST: Final = "seeds want no last checkpoint, of which nobody then stops the run; tests/sim/test_checkpoints.py does"
_GONE: Final = "of these sources seeds have one partition, and its leader changes by death: nobody is there whom the store could answer"
UNREACHABLE: Final[Mapping[str, str]] = {
    "coordinator V2 NewcomersSeen running: want_newcomers": _NO_NEWCOMERS,
    "coordinator V2 NewcomersSeen otherwise: ignore": _NO_NEWCOMERS,
    "coordinator K6 Waited checkpoint_endless: lose_patience": _TOO_SOON,
    "coordinator K6 Waited checkpoint_over: ignore": _TOO_SOON,
    "coordinator K1 LastWithdrawn running: withdraw": _NOT_LAST,
    "coordinator K1 LastWithdrawn otherwise: ignore": _NOT_LAST,
    "coordinator E6 Waited stop_waits: stop_at_once": _STOPPED,
    "site J5 RowsStored otherwise: ignore": _GONE,
    "site J5 RowsRead otherwise: ignore": _GONE,
    "site J5 RowsUnread otherwise: ignore": _GONE,
}
"""Rows that no seed can fire, and why."""


def rows() -> list[str]:
    """Every row of the tables: whose it is, id, event, guard and effect."""
    return [f"{who} {rule.name}" for who, table in TABLES.items() for rule in table.rules]
