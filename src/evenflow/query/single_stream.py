"""The boxes on one stream besides those that every query has: what they make of their input, and which step runs them.

`check` asks JUDGES, the planner asks `stateless_step` and `keyed_step`.

    kind        params
    dedup       keys, within: bool, order, tie_break
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from evenflow.errors import QueryError
from evenflow.query.check import Outcome, StreamType, check_keys, check_order
from evenflow.query.network import Box


def _dedup(name: str, params: Mapping[str, Any], inputs: Sequence[StreamType]) -> Outcome:
    given = inputs[0]
    check_keys(name, params["keys"], given.schema, least=1)
    check_order(name, params, given)
    if not isinstance(params["within"], bool):
        raise QueryError(f"box {name!r}: within_watermark is {params['within']!r}; it must be True or False")
    if params["within"] and given.event_time is None:
        raise QueryError(
            f"box {name!r}: within_watermark needs event time; add .with_watermark('ts', '10 seconds') before, or leave it out "
            "to remember keys for ever"
        )
    return Outcome((given.schema, given.schema), given.event_time, given.watermark_delay_us)


JUDGES: Final[Mapping[str, Callable[[str, Mapping[str, Any], Sequence[StreamType]], Outcome]]] = {"dedup": _dedup}


@dataclass(frozen=True, slots=True)
class KeyedStep:
    """How a box with state per key runs. cares: its result depends on the order of a key's rows. keeps_key: it puts the key columns out
    as they were. user_code: it calls functions that the user wrote."""

    params: Mapping[str, Any]
    cares: bool
    keeps_key: bool = True
    user_code: bool = False


def keyed_step(box: Box, given: StreamType) -> KeyedStep:
    """The step of a box with state per key. given: its input."""
    return _KEYED_STEPS[box.kind](box, given)


def _dedup_step(box: Box, given: StreamType) -> KeyedStep:
    keys, time = tuple(box.params["keys"]), dedup_time(box.params, given.event_time)
    delay_us = given.watermark_delay_us or 0 if box.params["within"] else 0
    return KeyedStep({"keys": keys, "time": time, "delay_us": delay_us}, cares=set(keys) != set(given.schema.names))


def dedup_time(params: Mapping[str, Any], event_time: str | None) -> str | None:
    """The column by which a dedup box forgets keys, or None: it remembers them for ever."""
    return event_time if params["within"] or event_time in params["keys"] else None


_KEYED_STEPS: Final = {"dedup": _dedup_step}
