"""What connects processes: who may speak, how messages look, and the loop that waits for sockets, timers and threads.

`handshake`, `listener`, `connection` and `channel` make a connection; `framing`, `coding`, `wire` and
`control` say what goes over it. `reactor` waits, `priority` and `vitals` look after the threads. Nothing here
knows what a message means for a dataflow, or that Spark is there.
"""
