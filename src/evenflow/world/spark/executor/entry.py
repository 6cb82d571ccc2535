"""The way into a site's code: what it needs is looked at before any of it is imported, and its log goes to standard error."""

from __future__ import annotations

import gc
import logging
import sys
from typing import Any

from evenflow.world.logs import formatter
from evenflow.world.spark.executor.late_pandas import load_when_used
from evenflow.world.spark.executor.requirements import demand


def start_site(level: int, *told: Any) -> tuple[str, bool]:
    """`site_task.start_site`. level: what the driver's logger says from. Raises ClusterError that names what is missing and the Python that
    was used."""
    speak(level)
    demand()
    # A thousand modules are loaded and stay: to look for garbage among them takes a sixth of a site's start. A site that serves sees to it.
    gc.disable()
    try:
        load_when_used()
        from evenflow.world.spark.executor import site_task

        return site_task.start_site(*told)
    finally:
        gc.enable()


def speak(level: int) -> None:
    """Say from this level on what happens, on standard error, unless somebody has seen to that already."""
    logger = logging.getLogger("evenflow")
    logger.setLevel(level)
    if not logger.hasHandlers():
        handler = logging.StreamHandler(sys.stderr)
        handler.setFormatter(formatter())
        logger.addHandler(handler)
