"""The driver's end: the engine that a user holds, the thread that talks to all sites, and runs as the driver sees them.

`engine` and `run` are the user's handles, `driver_loop` the loop, `run_loop` one run in it, `outlet` a sink in the driver, `taking` and
`appending` what a run leaves for the next driver, `operations` what a person asks for, `control_port` and `control_client` the same from
another process. It knows no rule of the protocol: those are in `evenflow.coordinator`.
"""
