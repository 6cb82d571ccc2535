"""Boxes whose code is the user's: keyed processes with state and timers, and functions of rows.

`process` runs a processor, `store` keeps its state, `fields` is what its code sees of it, `timers` says when it is called without a row;
`calls` and `returned` take what it gives back. Nothing here knows the thread that the code runs in, or what a failure of it means.
"""
