"""Whether a site has the same Evenflow as its driver, and the same libraries: its hello says so, before anything else is believed."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any, Final

from evenflow.world.spark.executor.requirements import numbers, versions

LOOKED_AT: Final = ("python", "pyarrow", "numpy", "numba")
"""What differs here may make other bytes, or another result of the same floats, in replicas."""

log = logging.getLogger("evenflow")


class Versions:
    """What the driver has, and what it has complained of already."""

    def __init__(self, own: Mapping[str, str] | None = None) -> None:
        self._own = versions() if own is None else own
        self._said: set[tuple[str, str, str]] = set()

    def refusal(self, hello: Mapping[str, Any]) -> str | None:
        """Why a site with this hello cannot be taken in, None if it can. What is only doubtful is logged, once for each host."""
        told = hello.get("versions")
        if not isinstance(told, dict):
            return None  # Made by a test.
        where, other = f"executor {hello.get('executor')} ({hello.get('host')})", str(told.get("evenflow"))
        if other != self._own["evenflow"]:
            return (
                f"{where} has Evenflow {other} installed, and the driver {self._own['evenflow']}: install the same there, or none at all, "
                "and it gets the driver's"
            )
        for name in LOOKED_AT:
            theirs, ours = str(told.get(name)), self._own[name]
            if numbers(theirs)[:2] != numbers(ours)[:2] and (str(hello.get("host")), name, theirs) not in self._said:
                self._said.add((str(hello.get("host")), name, theirs))
                log.warning("%s has %s %s, and the driver %s: install the same everywhere", where, name, theirs, ours)
        return None
