"""Evenflow on Spark: real executors, sockets, threads and clocks. It carries out what the cores decide.

`cluster` has what is asked of Spark itself, `net` what connects processes, `executor` a site, `driver` the engine, `bridge` what rows
cross between Spark's DataFrames and a dataflow, and `regions` how several engines run one. It knows no rule of the protocol.
"""
