"""Files and objects in directories and object stores, with atomic writes and patience: what sinks, the journal and checkpoints share.

It knows no epochs, rows, plans or runs: who writes what, under which name, and what it means that a name is taken, is the business of
those who use it.
"""
