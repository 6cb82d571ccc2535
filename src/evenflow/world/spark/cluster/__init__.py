"""What is asked of Spark itself: a session, executors for sites, Evenflow's code on them, and their end.

`session` starts and ends a session of ours, `placement` gets every site an executor, `ship` brings the code. Nothing here knows a dataflow.
"""
