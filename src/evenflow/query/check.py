"""Whether boxes and networks are right: what each box makes of its inputs, and what is wrong with it if it makes nothing.

`outcome` is the only judge: the builder asks it for every box it draws, and a network that was loaded from JSON is asked again
box by box. What a kind of box says of its inputs is in `kinds`. Every error names the box and says what to do.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from evenflow.errors import QueryError
from evenflow.plan.layout import FROM_COLUMN, HASH_COLUMN, TO_COLUMN
from evenflow.query.kinds import GUARDED, KINDS
from evenflow.query.kinds.changes import REMEDY
from evenflow.query.kinds.kind import Outcome, StreamType
from evenflow.query.lineage import check_value
from evenflow.query.network import Box, Network, is_aside
from evenflow.query.protecting import check_asked
from evenflow.stream.change import is_changelog
from evenflow.stream.schema import ddl_of, dead_letter_schema


def stream_type(box: Box, port: int) -> StreamType:
    """Type of the stream that leaves `box` at `port`. Rows that were put aside have no watermark: late ones have missed it."""
    if not is_aside(box, port):
        return StreamType(box.schemas[port], box.event_time, box.watermark_delay_us)
    return StreamType(box.schemas[port])


def check_network(network: Network) -> None:
    """Judge every box again and compare with what it claims. Raises QueryError for the first that is wrong."""
    for box in network:
        inputs = [stream_type(network.box(up), port) for up, port in box.inputs]
        found = outcome(box.name, box.kind, box.params, inputs)
        claimed = Outcome(box.schemas, box.event_time, box.watermark_delay_us)
        if found != claimed:
            raise QueryError(
                f"box {box.name!r} claims the columns {_ports(claimed)} and gives {_ports(found)}; "
                "correct the saved schemas or build it anew"
            )
        check_value(network, box)


def outcome(name: str, kind: str, params: Mapping[str, Any], inputs: Sequence[StreamType]) -> Outcome:
    """What a box of that kind gives on those inputs. Raises QueryError or a subclass of it, naming the box."""
    asked = KINDS[kind]
    if asked.refuses_changes is not None and any(is_changelog(given.schema) for given in inputs):
        raise QueryError(f"box {name!r} ({kind}) is given a changelog, and {asked.refuses_changes}; {REMEDY}")
    try:
        found = asked.read(params).judge(name, inputs)
        _check_free(name, found)
        check_asked(name, params)
        return found if "on_error" not in params else _with_dead_letters(name, kind, params["on_error"], inputs, found)
    except KeyError as missing:
        raise QueryError(f"box {name!r} ({kind}): parameter {missing} is missing").about(str(missing.args[0])) from missing


def _check_free(name: str, found: Outcome) -> None:
    for taken in (HASH_COLUMN, FROM_COLUMN, TO_COLUMN):
        if any(taken in schema.names for schema in found.schemas):
            raise QueryError(f"box {name!r}: a column cannot be called {taken!r}, since rows travel with one of that name: rename it")


def _with_dead_letters(name: str, kind: str, policy: Any, inputs: Sequence[StreamType], found: Outcome) -> Outcome:
    """One more port, with the rows of the input on which the box raises, and why."""
    if kind not in GUARDED:
        raise QueryError(
            f"box {name!r} ({kind}) has no rows to put aside; on_error belongs to {', '.join(GUARDED)}: compute what may fail "
            "in a with_columns before"
        ).about("on_error")
    if policy != "skip":
        raise QueryError(f"box {name!r}: on_error is {policy!r}; it must be 'fail' or 'skip'").about("on_error")
    return replace(found, schemas=(*found.schemas, dead_letter_schema(inputs[0].schema)))


def _ports(found: Outcome) -> str:
    text = " / ".join(f"({ddl_of(schema)})" for schema in found.schemas) or "none"
    return f"{text} with event time {found.event_time!r}"
