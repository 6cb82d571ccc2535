"""What of an event a machine's story keeps: its numbers and names, never its rows or state.

An error that no rule allows must tell which peer, epoch and copy the last events were about. Keeping the events themselves would keep
their rows and their state in memory, so for each class of event the paths to what is small are found once, when a table is made. In a run
one `attrgetter` per event takes them out, and nothing becomes text before somebody wants to read it.
"""

from __future__ import annotations

import dataclasses
import typing
from collections.abc import Callable, Iterable
from enum import Enum
from operator import attrgetter
from typing import Any, Final, Literal

from evenflow.exchange.section import Mark

SMALL: Final = (int, float, str)
FACT: Final = "fact.__class__.__name__"
DEEPER: Final = (
    "plan.number", "plan.effective", "membership.number", "outcome.key", "outcome.tick.epoch", "section.marks", "pause", FACT
)  # fmt: skip
"""Small as well, and told of events that have the first of these names for something that is not small itself."""
LONGEST: Final = 60
"""Characters of one value."""


def paths(event: type, of: type | None = None) -> tuple[str, ...]:
    """What is told of events of a class, as dotted names. of: the class of what they carry; None if it is any."""
    if not dataclasses.is_dataclass(event):
        return ()
    hints = typing.get_type_hints(event)
    small = [name for name, hint in hints.items() if _is_small(hint)]
    deeper = [path for path in DEEPER if path.split(".")[0] in hints.keys() - small]
    if of is not None and (carrier := _carrier(hints, of)):
        deeper = [path for path in deeper if path != FACT] + [f"{carrier}.{path}" for path in paths(of)]
    return (*small, *deeper)


def getter(told: tuple[str, ...]) -> Callable[[Any], Any] | None:
    """Takes the values of these paths out of an event; None if there are none."""
    return attrgetter(*told) if told else None


def text(told: tuple[str, ...], values: Any) -> str:
    """What `getter` has taken out, for people: `peer 2, epoch 7`."""
    if len(told) == 1:
        values = (values,)
    return ", ".join(_said(path, value) for path, value in zip(told, values or (), strict=True))


def _is_small(hint: Any) -> bool:
    hint = getattr(hint, "__supertype__", hint)
    return hint in SMALL or typing.get_origin(hint) is Literal or (isinstance(hint, type) and issubclass(hint, (*SMALL, Enum)))


def _carrier(hints: dict[str, Any], of: type) -> str | None:
    return next((name for name, hint in hints.items() if hint is of or of in typing.get_args(hint)), None)


def _said(path: str, value: Any) -> str:
    if path.endswith("section.marks"):
        return _epochs(value)
    said = value.name if isinstance(value, Enum) else str(value)
    name = "fact" if path == FACT else path.removeprefix("fact.").replace(".", " ")
    return f"{name} {' '.join(said.split())[:LONGEST]}"


def _epochs(marks: Iterable[Mark]) -> str:
    epochs = sorted({mark.epoch for mark in marks})
    return f"epochs {epochs[0]} to {epochs[-1]}" if epochs else "no epoch"
