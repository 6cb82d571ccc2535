"""Checkpoint locations as people and programs look at them: which checkpoints are there, what they have, whether they are whole, and what
may go; and savepoints, which are one checkpoint in a folder of its own.

A location is read and written by way of its store alone. Nothing here knows an engine, a session of Spark or a running dataflow, and
nothing that lies in a location is ever executed or unpickled.
"""
