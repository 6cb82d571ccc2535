"""Measurements of Evenflow and of its rivals, each as the command `evenflow bench ...` runs it.

One file a measurement, those on real executors `spark_...`; `measuring`, `failing` and `events` are shared. An engine knows nothing of
this: it is not part of one.
"""
