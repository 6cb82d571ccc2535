"""Operators: what a step computes of an epoch's rows, one per file, all under one law (tests/operator/test_laws.py).

`operator` says what an operator owes, `catalogue` which one a step asks for. `totals` has aggregates and their windows, `join` the joins,
`user` the boxes whose code is the user's. Nothing here knows of sites, replicas, failures, threads, clocks or Spark.
"""
