"""One small cluster for all scenarios that run on Spark: four sites and a spare, on five executors with two slots each."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import evenflow as ef
from evenflow.world.spark.cluster.session import embedded_session, stop_session
from tests.spark.conftest import named
from tests.worlds.worlds import SITES, SPARES, OnSpark, Simulated, World

__all__ = ["named"]


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What takes long on Spark is left to `make conformance` there. The simulator is quick enough for all of it."""
    here = Path(__file__).parent
    for item in items:  # Those of all folders.
        if here in item.path.parents and item.get_closest_marker("conformance") and not item.get_closest_marker("spark"):
            item.own_markers = [mark for mark in item.own_markers if mark.name != "conformance"]


@pytest.fixture(scope="package")
def spark() -> Iterator[Any]:
    session = embedded_session(f"local-cluster[{SITES + SPARES},2,1024]", "evenflow-scenarios", sites_only=True)
    yield session
    stop_session(session)


@pytest.fixture(scope="package")
def engine(spark: Any) -> Iterator[ef.Engine]:
    with ef.Engine(spark, sites=SITES, spares=SPARES, replicas=3) as made:
        yield made


@pytest.fixture
def on_spark(engine: ef.Engine) -> Iterator[OnSpark]:
    world = OnSpark(engine)
    yield world
    world.close()


@pytest.fixture(params=["simulator", pytest.param("spark", marks=[pytest.mark.spark, pytest.mark.timeout(300)])])
def world(request: pytest.FixtureRequest) -> World:
    if request.param == "simulator":
        return Simulated()
    on_spark: OnSpark = request.getfixturevalue("on_spark")
    return on_spark


@pytest.fixture
def gate(tmp_path: Path) -> Path:
    """The file that lets a gated source end."""
    return tmp_path / "gate"
