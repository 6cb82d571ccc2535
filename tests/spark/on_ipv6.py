"""A program on a cluster whose addresses are all of IPv6; run by test_ipv6.py. Prints where its sites are, and its counts, as JSON."""

from __future__ import annotations

import json
import os
import sys
from typing import Any

from pyspark.sql import SparkSession

import evenflow as ef

JAVA = "-Djava.net.preferIPv6Addresses=true"
CONF = {
    "spark.driver.host": "[::1]",
    "spark.driver.bindAddress": "::1",
    "spark.driver.extraJavaOptions": JAVA,
    "spark.executor.extraJavaOptions": JAVA,
    "spark.ui.enabled": "false",
}
ENVIRONMENT = {"SPARK_LOCAL_IP": "::1", "SPARK_LOCAL_HOSTNAME": "[::1]", "SPARK_PREFER_IPV6": "true"}
ROWS, KEYS = 20_000, 100


def main(tls: bool) -> None:
    os.environ |= {**ENVIRONMENT, "PYSPARK_PYTHON": sys.executable}
    builder = SparkSession.builder.master("local-cluster[2,2,1024]")
    for name, value in CONF.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    try:
        with ef.Engine(spark, sites=2, replicas=2, tls=tls) as engine:
            flow, sink = ef.Dataflow("v6"), ef.sinks.memory("v6")
            rows = flow.from_spark(spark.range(ROWS).selectExpr(f"id % {KEYS} key"), name="rows")
            rows.group_by("key").agg(n="count(*)", combine=False).to(sink)
            run = engine.start(flow)
            coordinator: Any = engine._coordinator
            where = [site.address[0] for site in coordinator.known()]
            run.await_termination(120.0)
        counts = {row["key"]: row["n"] for row in sink.rows().to_pylist()}
        print(json.dumps({"where": where, "keys": len(counts), "rows": sum(counts.values())}), flush=True)
    finally:
        spark.stop()


if __name__ == "__main__":
    main(sys.argv[1] == "tls")
