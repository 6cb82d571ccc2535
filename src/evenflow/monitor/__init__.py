"""What people see of a run: a picture of sites and partitions, a timeline, a summary.

`live` shows it in a terminal, `summary` at the end, `timeline` and `moves` what has happened. It reads what a run tells, and
decides nothing. It knows no connection and no Spark.
"""
