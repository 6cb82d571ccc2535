"""Where a column comes from: traced from an output back to the sources, as long as boxes pass it on as it is.

A row's value can be known where rows enter only if it stands in the row there. A box that computes the column ends the trace, and the
error names both.
"""

from __future__ import annotations

from collections.abc import Mapping

from evenflow.errors import QosError
from evenflow.query.kinds import read
from evenflow.query.kinds.sink import Sink
from evenflow.query.network import Box, Network, is_aside

Stream = tuple[str, int]
"""A box and its output port."""


def passed_on(network: Network, box: Box, port: int, column: str) -> tuple[tuple[int, str], ...]:
    """(number of the input, its column) that a column of an output port is taken from as it is; none if the box computes it."""
    schemas = network.input_schemas(box)
    if is_aside(box, port):  # Rows that were put aside are those of the input; dead letters have more columns.
        return tuple((number, column) for number, schema in enumerate(schemas[:1]) if column in schema.names)
    return read(box.kind, box.params).origin(column, schemas)


def value_of(network: Network, sink: Box) -> Mapping[Stream, str]:
    """By stream, the column with the value of an output's rows, from its input up to the sources; empty if the output has no value.

    Raises QosError that names the box where the column is computed.
    """
    kind = read(sink.kind, sink.params)
    if not isinstance(kind, Sink) or kind.qos is None or kind.qos.column is None:
        return {}
    found: dict[Stream, str] = {}
    waiting = [(stream, kind.qos.column) for stream in sink.inputs]
    while waiting:
        stream, column = waiting.pop()
        if found.setdefault(stream, column) != column:
            raise QosError(
                f"box {sink.name!r}: its value is column {kind.qos.column!r}, which is both {found[stream]!r} and {column!r} of "
                f"{stream[0]!r}; give it one origin"
            ).about("qos")
        box = network.box(stream[0])
        if box.kind == "source":
            continue
        origins = passed_on(network, box, stream[1], column)
        if not origins:
            raise QosError(
                f"box {sink.name!r}: its value is column {kind.qos.column!r}, which box {box.name!r} ({box.kind}) computes as {column!r}; "
                "what is left out is chosen where rows enter, so name a column that comes from the source as it is"
            ).about("qos")
        waiting += [(box.inputs[number], of) for number, of in origins]
    return found


def check_value(network: Network, box: Box) -> None:
    """Raise QosError if an output's value is a column that some box computes."""
    if box.kind == "sink":
        value_of(network, box)


__all__ = ["Stream", "check_value", "passed_on", "value_of"]
