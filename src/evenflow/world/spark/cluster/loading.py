"""`python -m evenflow.world.spark.cluster.loading`: loads what a driver, an executor and its Python worker load until they are at
work, for whoever listens (`classes`)."""

from __future__ import annotations

from evenflow.world.spark.cluster.session import embedded_session, stop_session


def load() -> None:
    spark = embedded_session("local-cluster[1,2,1024]", "classes", sites_only=True)
    try:
        spark.sparkContext.parallelize(range(8), 2).map(lambda n: (n % 3, 1)).reduceByKey(max).collect()
        spark.range(100).selectExpr("id % 3 AS k").groupBy("k").count().collect()
    finally:
        stop_session(spark)


if __name__ == "__main__":
    load()
