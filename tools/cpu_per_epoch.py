"""What an epoch without rows costs a site: CPU in ms, on four executors of this machine. Prints a JSON object.

    .venv/bin/python tools/cpu_per_epoch.py

What `make against` runs with the interpreter of either tree, so it has to work with the modules of former ones, too: it knows both places
where they have been. `evenflow bench cost` has the same figure among others and takes minutes.
"""

from __future__ import annotations

import json
from typing import Any

from evenflow.bench import cost

WARM_S, SECONDS, EVERY_MS = 3.0, 6.0, 5.0


def places() -> tuple[Any, Any]:
    """The module of embedded sessions and that of the engine."""
    try:
        from evenflow.world.spark.cluster import session
        from evenflow.world.spark.driver import engine
    except ImportError:  # Trees in which the rooms of world.spark were not made yet.
        from evenflow.world.spark import engine, session  # type: ignore[no-redef,attr-defined]
    return session, engine


def main() -> None:
    session, engine = places()
    spark = session.embedded_session(cost.MASTER)
    try:
        with engine.Engine(spark, sites=cost.SITES, heartbeat_ms=EVERY_MS) as sites:
            empty = cost.flow_for(sites, cost.two_stages(rate=1), warm_s=WARM_S, seconds=SECONDS)
    finally:
        session.stop_session(spark)
    print(json.dumps({"cpu_ms_per_epoch_and_site": empty.cpu_ms_per_epoch_and_site, "empty_epochs_per_s": empty.epochs / empty.seconds}))


if __name__ == "__main__":
    main()
