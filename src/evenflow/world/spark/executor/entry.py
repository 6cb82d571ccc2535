"""The way into a site's code: what it needs is looked at before any of it is imported."""

from __future__ import annotations

from typing import Any

from evenflow.world.spark.executor.requirements import demand


def start_site(*told: Any) -> tuple[str, bool]:
    """`site_task.start_site`. Raises ClusterError that names what is missing and the Python that was used."""
    demand()
    from evenflow.world.spark.executor import site_task

    return site_task.start_site(*told)
