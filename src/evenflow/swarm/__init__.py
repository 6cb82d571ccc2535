"""The swarm: seeded runs in the simulator, each with a dataflow, a topology, a load and faults of its own, checked at every step.

`draw` makes a case of a seed, with the files that it draws from; `checkers` say what must hold, `run` tries one case,
`search` many, `mutations` plant bugs that must be found. It runs the machines as they are, and knows no clock, thread or socket.
"""
