"""What a site needs to know of a dataflow, packed in the driver: layout, plan, options, and the user's code that is in them."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from types import ModuleType
from typing import Any, Final

from evenflow.errors import QueryError
from evenflow.plan.layout import Layout
from evenflow.plan.plan import Version
from evenflow.query.footprint import is_users
from evenflow.query.user.binding import code_of
from evenflow.site.options import FlowOptions
from evenflow.world.spark.net.framing import MESSAGE_BYTES_MAX

PROGRAM_BYTES_MAX: Final = MESSAGE_BYTES_MAX - (64 << 20)
"""It goes to each site in one message, together with plan, membership, and what a restart begins with."""

_LOCK: Final = threading.Lock()
_PACKING: Final[dict[str, int]] = {}
"""By name, modules that are pickled by value since somebody here packs, and how many do: cloudpickle has one list for all threads, and who
is through must not take a module off it in the middle of another one's packing."""


@dataclass(frozen=True, slots=True)
class Ending:
    """All that a site knows of a sink: where it lives, and whether it wants marks. What it holds (files, functions, locks) stays in the
    driver."""

    where: str
    marked: bool


def pack(layout: Layout, options: FlowOptions) -> bytes:
    """The program for `StartPart`, which `pickle.loads` reads.

    Classes and functions of the user's own modules (not installed ones) go along by value, as those of a script do: executors do not have
    them. Raises whatever pickling raises for an object that cannot be sent, and QueryError if it is too much for a message.
    """
    return _pickled(
        (replace(layout, sinks={name: Ending(sink.where, sink.marked) for name, sink in layout.sinks.items()}), options), layout
    )


def pack_version(version: Version, layout: Layout) -> Version:
    """The version with its packed form, which plans carry to the sites. layout: that it was made of. Raises as `pack` does."""
    return replace(version, packed=_pickled(version, layout))


def _pickled(value: Any, layout: Layout) -> bytes:
    from pyspark import cloudpickle

    pickling: Any = cloudpickle
    with _by_value(dict.fromkeys(user_modules(layout)), pickling):
        packed: bytes = pickling.dumps(value)
    if len(packed) > PROGRAM_BYTES_MAX:
        raise QueryError(
            f"dataflow {layout.name!r} has {len(packed) >> 20} MB with its code and the tables that are joined to it, and a site takes "
            f"{PROGRAM_BYTES_MAX >> 20} MB: read a table of this size as a source, and join the two streams"
        )
    return packed


@contextmanager
def _by_value(modules: Iterable[ModuleType], pickling: Any) -> Iterator[None]:
    """Their code is pickled by value meanwhile. What others have said so of stays as it is."""
    ours = []
    try:
        with _LOCK:
            for module in modules:
                name = module.__name__
                if name not in _PACKING:
                    if name in pickling.list_registry_pickle_by_value():
                        continue
                    pickling.register_pickle_by_value(module)
                _PACKING[name] = _PACKING.get(name, 0) + 1
                ours.append(module)
        yield
    finally:
        with _LOCK:
            for module in ours:
                name = module.__name__
                _PACKING[name] -= 1
                if not _PACKING[name]:
                    del _PACKING[name]
                    if name in pickling.list_registry_pickle_by_value():
                        pickling.unregister_pickle_by_value(module)


def user_modules(layout: Layout) -> Iterator[ModuleType]:
    """Modules of the user that boxes and sources of the dataflow come from."""
    for source in layout.sources.values():
        yield from _modules_of(source)
    for segment in layout.segments:
        for step in segment.steps:
            for value in step.params.values():
                yield from _modules_of(value)


def _modules_of(value: Any) -> Iterator[ModuleType]:
    if isinstance(value, tuple):
        for item in value:
            yield from _modules_of(item)
        return
    for code in code_of(value):
        yield from _modules_of(code)
    name = value.__module__ if callable(value) and hasattr(value, "__module__") else type(value).__module__
    module = sys.modules.get(name)
    if module is not None and name != "__main__" and is_users(module):
        yield module
