"""Measurements of Evenflow and of its rivals, each as the command `evenflow bench ...` runs it.

One file a measurement, by the name of its command. Its rivals are `spark_...`, the same under Structured Streaming, and `flink`; what is
killed lives in `region`, `regional`, `restarting`, `restoring` and `tabling`. `events`, `rows`, `drifting` and `scheduled` make rows,
`measuring`, `delivered`, `gaps` and `tally` look at what came out, `failing` and `killing` make things fail, and `background`, `bare` and
`standalone` start what runs beside. An engine knows nothing of this: it is not part of one.
"""
