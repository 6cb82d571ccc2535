"""What people see of a run.

`scene` is what changes seldom, `reading` the numbers of a moment, `watching` makes both of what a world knows, `dataflow` the part of a
scene that a query determines, `history` keeps ten minutes of them. `live` shows a run in a terminal, `summary` at the end, `timeline`
what has happened; `metrics` and `otel` are for those who collect numbers, `web` is the page. It reads what a run tells, and decides
nothing. It knows no connection of an engine and no Spark.
"""
