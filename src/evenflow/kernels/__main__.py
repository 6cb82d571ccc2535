"""`python -m evenflow.kernels`: compile every kernel, or find it in the cache. Part of `make setup`."""

from evenflow.kernels import prepare

prepare(lambda: print("compiling the kernels, once per machine", flush=True))
