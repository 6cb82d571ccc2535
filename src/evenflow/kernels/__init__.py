"""Compiled kernels: hashing, routing, the paged table's probe and fold, rings and sketches. `make setup` compiles them once.

`hash` says which partition a key belongs to, `table` and `fold` are the loops over a paged table, `columns` brings values into
one form, `route` sorts rows for an exchange, `digest` compares replicas, the others serve single operators; `jit` compiles, `cache`
keeps what is compiled and `packed` loads it. They know arrays and nothing else.
"""

import importlib
from collections.abc import Callable
from typing import Final

MODULES: Final = (
    "columns", "counting", "hash", "digest", "table", "fold", "heap", "hot", "links", "match", "moments", "ring", "route", "sketch", "wide",
    "windows", "probe",
)  # fmt: skip
"""The modules that hold kernels. Kernels have stated signatures, so importing one compiles its kernels or loads them."""

ON_COMPILE: Final[list[Callable[[], None]]] = []
"""Called once in a process, before it may compile kernels: when not all of them are compiled on this machine."""


def warm() -> None:
    """Compile every kernel or load it from the cache, so that no site compiles when it starts."""
    for module in MODULES:
        importlib.import_module(f"{__name__}.{module}")


def prepare(say: Callable[[], None]) -> None:
    """See to it that every kernel is compiled on this machine, without loading it. say: is called first if they have to be compiled."""
    from evenflow.kernels import cache

    cache.prepare(_compiled, say)


def _compiled() -> bytes:
    from evenflow.kernels import packed

    warm()
    return packed.written(packed.of_made())
