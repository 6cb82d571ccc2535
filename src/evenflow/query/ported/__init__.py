"""Queries of Structured Streaming as dataflows: Spark's analysed plan to boxes.

It reads a plan as JSON, and draws with the builder and the clauses of `query.script`. It knows no session of Spark: the plan is
brought by `world.spark.bridge`.
"""
