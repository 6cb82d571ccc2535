"""What every test may ask for: the real traces where they are, and a Java runtime before anything starts Spark."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings

from tests.drawn import MANY

if TYPE_CHECKING:
    from tests.restarting import Start

DATA = Path(os.environ.get("EVENFLOW_DATA", Path(__file__).resolve().parents[2] / "shared" / "data"))

SHARE_A_CLUSTER = {"spark", "engine", "world"}
"""Fixtures that stand for a package's session."""


def pytest_configure(config: pytest.Config) -> None:
    # How long an example takes says how busy the machine is. `make test` says the same twice of one tree; `make conformance` looks for
    # what nobody has seen.
    settings.register_profile("evenflow", deadline=None, derandomize=not MANY)
    settings.load_profile("evenflow")
    # Executors must run the same Python as the tests.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    # A shell that starts the tests in the background ignores Ctrl-C for them and for their children, and some are about Ctrl-C.
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """With `--dist loadgroup` tests that share a cluster run in one worker, one after the other; the others go to whoever is free."""
    for item in items:
        if SHARE_A_CLUSTER & set(getattr(item, "fixturenames", ())):
            item.add_marker(pytest.mark.xdist_group(item.path.parent.name))


def shared_data(name: str) -> Path:
    """Path of a real trace, or skip the test: the traces are not part of the project (EVENFLOW_DATA names another place)."""
    path = DATA / name
    if not path.exists():
        pytest.skip(f"{name} is not in {DATA}; set EVENFLOW_DATA to the directory that has it")
    return path


@pytest.fixture(scope="session")
def packets() -> Path:
    """99,143 packet headers of real captures, Parquet, sorted by `ts`."""
    return shared_data("packets.parquet")


@pytest.fixture(scope="session")
def http_requests() -> Path:
    """30,969 requests of one day to a public web server, tab separated, sorted by time."""
    return shared_data("http_requests.tsv")


@pytest.fixture(scope="session")
def java_home() -> str:
    """Home of the Java runtime that Spark will use."""
    from evenflow.world.java import java_home as find

    return find()


@pytest.fixture
def start() -> Iterator[Start]:
    """Starts drivers in processes of their own, which can be killed with all that is theirs."""
    from tests.restarting import drivers

    with drivers() as begin:
        yield begin
