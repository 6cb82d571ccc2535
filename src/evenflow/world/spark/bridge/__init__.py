"""What crosses between Spark's own DataFrames and a dataflow.

Rows that Spark's tasks push, results that they read, and plans and functions of Spark that are read as ours. It knows nothing of plans,
replicas and epochs' frames.
"""
