"""Compiled kernels: hashing, routing, the paged table's probe and fold, rings and sketches. `make setup` compiles them once."""

import importlib
from typing import Final

MODULES: Final = ("columns", "hash", "digest", "table", "fold", "heap", "hot", "match", "ring", "sketch", "wide", "windows", "probe")
"""The modules that hold kernels. Kernels have stated signatures, so importing one compiles its kernels or loads them."""


def warm() -> None:
    """Compile every kernel or load it from the cache, so that no site compiles when it starts."""
    for module in MODULES:
        importlib.import_module(f"{__name__}.{module}")
