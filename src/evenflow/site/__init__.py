"""What one site does for one dataflow: it takes frames in order, processes partitions, keeps their state, sends, and lets go.

`machine` is what a part does, by the table in `rules` and with the `effects` of events; `fittings` and `ground` are what it stands on.
`ingress`, `leading` and `log` say which rows form an epoch, `housing` which partitions are here, and `cohort` processes them.
`copying` says how far a copy is, `arriving` and `departing` carry it out, `audience` says to whom this site speaks.
`acknowledging` and `releasing` say what is done with, `peers` which other sites live.
It knows no clock, socket, thread or disk, and not who decides plans: `events` come in, what is to be done goes out as actions, and
the coordinator is told `facts`.
"""
