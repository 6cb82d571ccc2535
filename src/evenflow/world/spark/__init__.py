"""Evenflow on Spark: real executors, sockets, threads and clocks. It carries out what the cores decide.

`cluster` has what is asked of Spark itself, `net` what connects processes, `executor` a site, `driver` the engine, and `bridge` what rows
cross between Spark's DataFrames and a dataflow. It knows no rule of the protocol.
"""
