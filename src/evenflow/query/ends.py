"""The functions that make sources and sinks, by kind, and the arguments with which one would make a given one again.

Some functions look around when they are called, at a broker, a table, or files; what they have made is not made again here.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any, Final, Literal

import pyarrow as pa

from evenflow import sinks, sources
from evenflow.errors import EvenflowError, QueryError
from evenflow.query.faults import about
from evenflow.sinks.sink import Sink
from evenflow.sources.source import Source
from evenflow.stream.schema import ddl_of, parse_ddl

End = Literal["source", "sink"]

LOOKS_AROUND: Final = ("delta", "iceberg", "kafka", "replay", "spark")
"""Sources whose functions ask somebody, or take what is only in this process."""
RENAMED: Final[Mapping[str, str]] = {"s": "exponent", "partitions": "count", "schema": "columns", "ended": "ends"}
"""What an argument is called where it is kept, if it is another name."""


def described(end: End, kind: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """What a saved network has for a source or a sink that is made with these arguments, plain values. Raises QueryError, and what the
    function raises."""
    kinds, module = (sources.KINDS, sources) if end == "source" else (sinks.KINDS, sinks)
    if kind not in kinds:
        raise QueryError(f"{end} of unknown kind {kind!r:.80}; known are {', '.join(kinds)}").about(end)
    function = getattr(module, kind)
    signature = inspect.signature(function)
    try:
        signature.bind(**arguments)
    except TypeError as error:
        raise QueryError(f"{end} {kind}: {error}; its arguments are {', '.join(signature.parameters)}").about(end) from error
    with about(end):
        try:
            made: Source | Sink = function(**arguments)
            return {f"${end}": made.to_json()}
        except EvenflowError:
            raise
        except Exception as error:  # A value of a kind that the function did not expect.
            raise QueryError(f"{end} {kind} cannot be made ({type(error).__name__}: {error}); correct its arguments") from error


def arguments_of(made: Source | Sink) -> dict[str, Any] | None:
    """The arguments with which its function would make it again, without those that have their defaults; None if nobody knows."""
    module = sources if isinstance(made, Source) else sinks
    if (isinstance(made, Source) and made.kind in LOOKS_AROUND) or made.kind not in module.KINDS:
        return None
    function = getattr(module, made.kind)
    given: dict[str, Any] = {}
    for name, parameter in inspect.signature(function).parameters.items():
        kept = name if hasattr(made, name) and not callable(getattr(made, name)) else RENAMED.get(name, name)
        if name == "batches":
            value: Any = [list(batches) for batches in made.per_partition]  # type: ignore[union-attr]
            if not any(value):
                given |= {"batches": [], "partitions": len(value)}
                continue
        elif name in given or not hasattr(made, kept):
            continue
        else:
            value = getattr(made, RENAMED[name] if name == "schema" and hasattr(made, RENAMED[name]) else kept)
        if name == "options":
            value = dict(value) or None
        if isinstance(value, pa.Schema):
            value = _as_ddl(value)
        if parameter.default is inspect.Parameter.empty or value != parameter.default:
            given[name] = value
    if given.get("partitions") == 1 and "batches" in given and not given["batches"]:
        del given["partitions"]
    try:
        return given if function(**given) == made else None
    except (EvenflowError, TypeError, ValueError):
        return None


def _as_ddl(schema: pa.Schema) -> Any:
    try:
        text = ddl_of(schema)
        return text if parse_ddl(text) == schema else schema
    except QueryError:
        return schema


__all__ = ["End", "arguments_of", "described"]
