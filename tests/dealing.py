"""How tests are dealt out to workers: those that share what is dear in one worker, one after the other; the others to whoever is free.

xdist's `loadgroup` tells the one who deals by a suffix of a test's id, and no longer can where pytest has ids of parts: then every worker
starts every cluster, without a word. Here it is told by where a test is.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import pytest
from xdist.scheduler import LoadScopeScheduling

SHARED: Final = frozenset({"spark", "engine", "world"})
"""Fixtures that stand for a folder's session."""
FOLDERS: Final = ("tests/spark", "tests/worlds", "tests/oracle", "tests/ui")
"""Who has something dear for all of its tests: a cluster, a session, a browser. The dearest come first."""
CALM: Final = frozenset(
    f"tests/spark/test_{name}.py"
    for name in (
        "classes", "deploying", "doctor", "heeded", "ingest", "oracle_on_spark", "page", "parquet_sink", "refresh", "repartition",
        "spark_sink", "state_frame", "state_of_a_run", "stopped_queries", "stream_sink",
    )
)  # fmt: skip
"""Files there that kill no executor. They have a cluster of their own, so that another worker can take them: all of the folder took twice
as long as anything else."""
ON_A_CALM_CLUSTER: Final = "tests/spark, where nobody is killed"
UNITS: Final = (FOLDERS[0], ON_A_CALM_CLUSTER, *FOLDERS[1:])
CLUSTERS_OF_THEIR_OWN: Final = tuple(f"tests/spark/test_{name}.py" for name in ("interrupt", "restart", "standby", "streamed"))
"""Files there whose tests start what they need in processes that they kill."""
DEAR: Final = (
    "tests/spark/test_streamed.py", "tests/spark/test_restart.py", "tests/cli/test_demo.py",
    "tests/sim/test_swarm.py", "tests/operator/test_laws.py", "tests/world/test_standby.py", "tests/world/test_keeping.py",
    "tests/world/test_in_place.py", "tests/world/test_collecting.py", "tests/sim/test_restoring.py", "tests/testing/test_preview.py",
)  # fmt: skip
"""Files that take long: they are begun early, so that nobody waits for them at the end."""


def unit_of(nodeid: str, *, spark: bool) -> str:
    """What a worker is given as a whole: a folder or a file. spark: of tests on Spark, of which few folders share something."""
    path = nodeid.partition("::")[0]
    folder = path.rpartition("/")[0]
    if spark and path in CALM:
        return ON_A_CALM_CLUSTER
    shares = folder in FOLDERS and path not in CLUSTERS_OF_THEIR_OWN
    return folder if shares and (spark or folder not in ("tests/spark", "tests/worlds")) else path


def in_order(items: Sequence[pytest.Item]) -> list[pytest.Item]:
    """Tests as they are dealt out: what is dear first, then of every folder in equal measure, so that those that compute run beside those
    that wait. By name, those that wait would be the last, and the cores idle."""
    units = [unit_of(item.nodeid, spark=is_spark(item)) for item in items]
    folders: dict[str, list[str]] = {}
    for unit in dict.fromkeys(units):
        folders.setdefault(unit.rpartition("/")[0], []).append(unit)
    places = {unit: (number + 0.5) / len(alike) for alike in folders.values() for number, unit in enumerate(alike)}
    places |= {unit: number - len(UNITS) - len(DEAR) for number, unit in enumerate((*UNITS, *DEAR))}
    return [item for _, item in sorted(zip(units, items, strict=True), key=lambda pair: places[pair[0]])]


def is_spark(item: pytest.Item) -> bool:
    return item.get_closest_marker("spark") is not None


def misplaced(items: Sequence[pytest.Item]) -> list[str]:
    """Tests on Spark that share a session and are dealt out by themselves, or the other way round. Conformance is not dealt out."""
    dealt = [item for item in items if is_spark(item) and item.get_closest_marker("conformance") is None]
    return [
        item.nodeid
        for item in dealt
        if bool(SHARED & set(getattr(item, "fixturenames", ()))) != (unit_of(item.nodeid, spark=True) in UNITS)
    ]


class Dealer(LoadScopeScheduling):  # type: ignore[misc]
    """Deals out units in the order in which their first tests are collected. More than one unit at a time nobody gets."""

    def __init__(self, config: pytest.Config, log: Any = None) -> None:
        super().__init__(config, log)
        config.option.loadscopereorder = False
        self._spark = "not spark" not in (config.option.markexpr or "")

    def _split_scope(self, nodeid: str) -> str:
        return unit_of(nodeid, spark=self._spark)
