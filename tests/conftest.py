"""What every test may ask for: the real traces where they are, and a Java runtime before anything starts Spark."""

from __future__ import annotations

import gc
import os
import signal
import sys
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from _pytest import unraisableexception
from hypothesis import settings

from tests.dealing import Dealer, in_order, misplaced
from tests.drawn import MANY, examples, for_conformance

if TYPE_CHECKING:
    from tests.restarting import Start

DATA = Path(os.environ.get("EVENFLOW_DATA", Path(__file__).resolve().parents[2] / "shared" / "data"))


def pytest_configure(config: pytest.Config) -> None:
    # How long an example takes says how busy the machine is. `make test` says the same twice of one tree; `make conformance` looks for
    # what nobody has seen.
    settings.register_profile("evenflow", deadline=None, derandomize=not MANY, max_examples=examples(40, 100))
    settings.load_profile("evenflow")
    # pyproject.toml ignores what cannot be raised: at its end no worker looks five times for more of it.
    if iterations := getattr(unraisableexception, "gc_collect_iterations_key", None):
        config.stash[iterations] = 0
    # Executors must run the same Python as the tests.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    # A shell that starts the tests in the background ignores Ctrl-C for them and for their children, and some are about Ctrl-C.
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """All that is made meanwhile stays: to look for garbage in it took a third of the time."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()


@pytest.hookimpl(trylast=True)
def pytest_collection_finish() -> None:
    """Nor is there any in it while tests run."""
    gc.freeze()


@pytest.hookimpl(tryfirst=True)  # Before it is looked which marks are wanted.
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What takes long comes first. Raises UsageError if a test would start a cluster of its folder in every worker."""
    for item in for_conformance(items):
        item.add_marker(pytest.mark.conformance)
    wrong = misplaced(items)
    if wrong:
        raise pytest.UsageError(f"tests/dealing.py does not say that these share a session, or says so of others: {', '.join(wrong)}")
    items[:] = in_order(items)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """`--dist loadgroup`: as `tests.dealing` says."""
    return Dealer(config, log) if config.getvalue("dist") == "loadgroup" else None


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
