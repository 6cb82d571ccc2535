"""One local Spark session, the oracle: what batch Spark SQL says is right."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from evenflow.world.spark.cluster.session import QUICK_START, embedded_session, stop_session
from tests.drawn import MANY


@pytest.fixture(scope="package")
def spark() -> Iterator[Any]:
    """A session on one core in UTC. It ends with this package's tests: a process has one session, and other tests have a cluster's."""
    settings = {
        "spark.sql.shuffle.partitions": "1",
        "spark.default.parallelism": "1",
        "spark.sql.ansi.enabled": "true",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.execution.arrow.pyspark.enabled": "false",
        # To compile queries that are run once to Java takes longer than to run them: `make conformance` has them as users do.
        "spark.sql.codegen.wholeStage": str(MANY).lower(),
        "spark.sql.codegen.factoryMode": "FALLBACK" if MANY else "NO_CODEGEN",
        # Most of its work is to compile queries that are run once: the JVM's quick compiler, and one collector, have least to do.
        "spark.driver.extraJavaOptions": f"-Duser.timezone=UTC -XX:+UseSerialGC {QUICK_START}",
    }
    session = embedded_session("local[1]", "evenflow-oracle", settings)
    yield session
    stop_session(session)
