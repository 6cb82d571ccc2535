"""What one site does for one dataflow: it takes frames in order, processes partitions, keeps their state, sends, and lets go.

`part` is the machine, by the table in `rules`; `ingress`, `leading` and `log` say which rows form an epoch, `housing` which
partitions are here and where copies stand, `cohort` processes, `acknowledging` and `releasing` say what is done with,
`peers` which other sites live. It knows no clock, socket, thread or disk, and not who decides plans: facts come in as
`events`, and what is to be done goes out as actions.
"""
