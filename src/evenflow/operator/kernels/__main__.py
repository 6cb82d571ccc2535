"""`python -m evenflow.operator.kernels`: compile every kernel, or find it in the cache. Part of `make setup`."""

from evenflow.operator.kernels import prepare

prepare(lambda: print("compiling the kernels, once per machine", flush=True))
