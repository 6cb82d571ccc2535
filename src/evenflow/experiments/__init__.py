"""The papers' experiments, in the simulator and on Spark, with what the papers saw beside what is seen here.

`papers` has one file a figure, `harness` what drives and watches a dataflow for them, `result` what was found and how it is shown;
`registry` names those that can be run. An engine knows nothing of this: it is not part of one.
"""
