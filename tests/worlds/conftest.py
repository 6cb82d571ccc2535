"""The cluster of tests/spark, and its engine, for these tests too."""

from tests.spark.conftest import engine, named, spark

__all__ = ["engine", "named", "spark"]
