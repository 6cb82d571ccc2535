"""Queries of Structured Streaming as dataflows: Spark's analysed plan to boxes."""
