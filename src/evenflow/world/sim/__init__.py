"""The simulator: all sites and the driver of a run in one process, with a clock, network, CPUs and disks that are numbers.

`world` holds it together, `site` and `driver` carry out what the machines decide, `network`, `disk` and `clock` say when,
`observer` tells those who watch. It decides nothing about a dataflow, and it knows no wall clock, thread, socket or Spark.
"""
