"""One small cluster for all tests here: four executors with two slots each, as the embedded default."""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import pytest

import evenflow as ef
from evenflow.world.spark.cluster.session import embedded_session, stop_session

if TYPE_CHECKING:
    from playwright.sync_api import Browser

SITES = 4


@pytest.fixture(scope="package")
def spark() -> Iterator[Any]:
    session = embedded_session(f"local-cluster[{SITES},2,1024]", "evenflow-tests", {"spark.task.maxFailures": "4"}, sites_only=True)
    yield session
    stop_session(session)


@pytest.fixture(scope="package")
def engine(spark: Any) -> Iterator[ef.Engine]:
    with ef.Engine(spark, sites=SITES) as made:
        yield made


@pytest.fixture
def named() -> Callable[[str], str]:
    """Names that no other test uses."""
    return lambda stem: f"{stem}-{uuid.uuid4().hex[:8]}"


@pytest.fixture
def browser() -> Iterator[Browser]:
    from playwright.sync_api import sync_playwright

    from tests.ui.serving import browser_path

    path, needed = browser_path()
    with sync_playwright() as playwright:
        found = playwright.chromium.launch(executable_path=path, env={**os.environ, **needed}, args=["--no-sandbox", "--headless=shell"])
        yield found
        found.close()
