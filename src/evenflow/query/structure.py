"""What a planned layout is, as JSON: segments, steps, routes, columns, and the user's code by its digest. Two programs do the same if
theirs are equal, so a driver that goes on where another one stopped compares its own with what is written down (availability.md, K10).

A sink counts by where it writes. How patient it is does not count, nor what a callback does: that is what becomes of rows, and no part of
them. Secrets are not written down: fields that a description does not show, and passwords in addresses.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass, replace
from typing import Any, Final

from evenflow.errors import LocationError
from evenflow.plan.layout import Layout, Segment, Step
from evenflow.query.footprint import footprint
from evenflow.sinks.memory import NUMBERED
from evenflow.sinks.sink import Sink
from evenflow.sources.cut import CutSource
from evenflow.sources.database import shown
from evenflow.sources.source import Source
from evenflow.sources.then import ChainSource
from evenflow.stream.digest import digest_of_json

OF_NO_MATTER: Final = frozenset(("retries", "backoff_ms", "poll_ms", "wait", "run", "limit", "stream", "function", "options"))
"""What a source, a sink or a step that writes may have another one of: its patience, what a run binds it to, where rows are shown."""
SHOWN: Final = 60
"""Characters of a value in a message."""

Structure = Mapping[str, Any]


def structure(layout: Layout) -> Structure:
    """See the module. The same in every process of one version of Python; user code of another version has other digests."""
    said: dict[str, Any] = {
        "dataflow": layout.name,
        "segments": [_segment(segment) for segment in layout.segments],
        "arcs": [
            {
                "from": layout.segments[arc.producer].name, "to": layout.segments[arc.consumer].name, "step": arc.port.step,
                "port": arc.port.port, "route": footprint(arc.route), "columns": footprint(arc.schema), "lag_us": arc.lag_us,
            }
            for arc in layout.arcs
        ],
        "sources": {name: _end(source) for name, source in sorted(layout.sources.items())},
        "sinks": {name: _end(sink) for name, sink in sorted(layout.sinks.items())},
    }  # fmt: skip
    if _has_code(said):
        said["python"] = f"{sys.version_info[0]}.{sys.version_info[1]}"
    return said


def as_written(layout: Layout) -> Structure:
    """The layout's structure, as it is when it has been written down and read."""
    found: Structure = json.loads(json.dumps(structure(layout)))
    return found


def structure_digest(said: Structure) -> str:
    """In hexadecimal digits."""
    return digest_of_json(said)


def same_step(one: Step, other: Step) -> bool:
    """Whether two steps of a box do the same, however often their functions were made."""
    return bool(_step(one) == _step(other))


def _segment(segment: Segment) -> Structure:
    return {
        "name": segment.name, "kind": segment.kind, "partitions": segment.partitions, "in_use": segment.in_use,
        "sensitive": segment.sensitive, "source": segment.source, "sink": segment.sink, "inputs": list(segment.inputs),
        "right": list(segment.right), "outputs": list(segment.outputs), "columns": footprint(segment.schema),
        "steps": [_step(step) for step in segment.steps],
        **({"unordered": True} if segment.unordered else {}),
    }  # fmt: skip


def _step(step: Step) -> Structure:
    params = {name: footprint(value) for name, value in sorted(step.params.items()) if name not in OF_NO_MATTER or not _writes(step)}
    return {
        "box": step.box, "kind": step.kind, "params": params, "columns": footprint(step.schema), "source": footprint(step.source),
        "other": footprint(step.other),
    }  # fmt: skip


def _writes(step: Step) -> bool:
    return step.kind in ("stage", "commit")


def _end(described: Any) -> Structure:
    """A source or a sink."""
    said: dict[str, Any] = {"kind": str(getattr(described, "kind", type(described).__qualname__))}
    if not is_dataclass(described):
        return said | {"is": footprint(described)}
    for field in fields(described):
        value = getattr(described, field.name)
        if field.metadata.get("later") and value == field.default:
            continue
        if field.repr and field.name not in OF_NO_MATTER and not (field.name == "name" and getattr(described, "is_numbered", False)):
            said[field.name] = _end_field(field.name, value)
    if (position := getattr(described, "position", None)) is not None:
        said["position"] = position  # What the journal says of places in the source is of this column.
    return said


def _end_field(name: str, value: Any) -> Any:
    if isinstance(value, Source):
        return _end(value)
    return shown(value) if name == "database" and isinstance(value, str) else footprint(value)


def _has_code(said: Any) -> bool:
    if isinstance(said, Mapping):
        return "code" in said or any(_has_code(each) for each in said.values())
    return isinstance(said, list) and any(_has_code(each) for each in said)


def as_before(layout: Layout, before: Structure, sites: int = 1) -> Layout:
    """The layout with what its sources looked up when they were made as it was at the first start, and names that its sinks have by
    themselves: there a driver goes on.

    sites: with which it is planned. Raises LocationError if a source does not have the same places to look at any more.
    """
    sources = {name: _source_as_before(name, source, before["sources"].get(name, {})) for name, source in layout.sources.items()}
    segments = tuple(_as_many(segment, layout.sources, sources, sites) for segment in layout.segments)
    known = before.get("sinks", {})
    sinks = {name: sink.goes_on_as(known.get(name, {})) if isinstance(sink, Sink) else sink for name, sink in layout.sinks.items()}
    return replace(layout, segments=segments, sources=sources, sinks=sinks)


def _as_many(segment: Segment, now: Mapping[str, Any], before: Mapping[str, Any], sites: int) -> Segment:
    """An ingress segment with as many partitions as its source had: others may have come, for which there were places."""
    source, was = now.get(segment.source or ""), before.get(segment.source or "")
    if not isinstance(source, Source) or not isinstance(was, Source) or was.partitions(sites) == source.partitions(sites):
        return segment
    return replace(segment, partitions=was.partitions(sites))


def _source_as_before(name: str, source: Any, known: Mapping[str, Any]) -> Any:
    """known: what was said of it then."""
    if known.get("kind") != getattr(source, "kind", None):
        return source
    if isinstance(source, ChainSource):
        parts = {part: _source_as_before(name, getattr(source, part), known.get(part, {})) for part in ("first", "second")}
        return replace(source, **parts)
    if isinstance(source, CutSource):
        source = replace(source, source=_source_as_before(name, source.source, known.get("source", {})))
    looked_up = {field: _tuples(known[field]) for field in getattr(source, "looked_up", ()) if field in known}
    for field, was in looked_up.items():
        is_ = getattr(source, field)
        if isinstance(was, tuple) and was and is_ and not source.goes_on(field, was, is_):
            raise LocationError(
                f"source {name!r} has the partitions {_listed(is_)} now, and had {_listed(was)} when it was begun; what came into "
                "new ones would not be read. Start this dataflow at a location of its own"
            )
    return replace(source, **looked_up) if looked_up else source


def _tuples(said: Any) -> Any:
    return tuple(_tuples(each) for each in said) if isinstance(said, list) else said


def _listed(places: Any) -> str:
    named = any(isinstance(place, str) for place, _ in places)
    return ", ".join(f"{place} {number}" if named else str(place) for place, number in places)


# ---------------------------------------------------------------- the first difference


def first_difference(before: Structure, now: Structure) -> str | None:
    """What a person needs to find it: the box, the field, what it was and what it is. None if there is none."""
    before = {**before, "sinks": {name: _without_number(said) for name, said in before["sinks"].items()}}
    for find in (_python, _boxes, _streams, _ends):
        for found in find(before, now):
            return found
    return None if before == now else "it is laid out in another way"


def _without_number(said: Structure) -> Structure:
    """Of a sink, without a name that earlier versions wrote down though it said nothing."""
    numbered = said.get("kind") == "memory" and NUMBERED.fullmatch(str(said.get("name", ""))) is not None
    return {field: value for field, value in said.items() if field != "name"} if numbered else said


def _python(before: Structure, now: Structure) -> Iterator[str]:
    was, is_ = before.get("python"), now.get("python")
    if was is not None and is_ is not None and was != is_:
        yield f"it has functions of Python {was}, and this is Python {is_}: their code cannot be compared"


def _named(said: Structure) -> dict[tuple[str, str, int], tuple[Structure, Structure]]:
    """(segment, box, which step of that box there) -> (segment, step)."""
    found: dict[tuple[str, str, int], tuple[Structure, Structure]] = {}
    for segment in said["segments"]:
        count: dict[str, int] = {}
        for step in segment["steps"]:
            number = count[step["box"]] = count.get(step["box"], -1) + 1
            found[segment["name"], step["box"], number] = segment, step
    return found


def _boxes(before: Structure, now: Structure) -> Iterator[str]:
    were, are = _named(before), _named(now)
    gone, new = ([box for _, box, _ in one if all(box != other for _, other, _ in two)] for one, two in ((were, are), (are, were)))
    if gone:
        yield f"box {gone[0]!r} is gone" + (f", and box {new[0]!r} is new" if new else "")
    elif new:
        yield f"box {new[0]!r} is new"
    for key, (_, was) in were.items():
        if key not in are:
            yield f"box {key[1]!r} runs somewhere else than in segment {key[0]!r}"
            continue
        is_ = are[key][1]
        for field in ("kind", "params", "columns", "source", "other"):
            yield from differences(f"box {key[1]!r}: {field}" if field != "params" else f"box {key[1]!r}", was[field], is_[field])


def _streams(before: Structure, now: Structure) -> Iterator[str]:
    for part, what in (("segments", "segment"), ("arcs", "stream")):
        for was, is_ in zip(before[part], now[part]):
            name = was["name"] if part == "segments" else f"{was['from']} to {was['to']}"
            yield from differences(f"{what} {name!r}", was, is_)
        if len(before[part]) != len(now[part]):
            yield f"it has {len(now[part])} {what}s, and had {len(before[part])}"


def _ends(before: Structure, now: Structure) -> Iterator[str]:
    for part in ("sources", "sinks"):
        for name in sorted({*before[part], *now[part]}):
            yield from differences(f"{part[:-1]} {name!r}", before[part].get(name), now[part].get(name))


def differences(where: str, was: Any, is_: Any) -> Iterator[str]:
    """The innermost difference of two values at a place."""
    if was == is_:
        return
    if isinstance(was, dict) and isinstance(is_, dict) and set(was) & set(is_):
        if was.get("code") != is_.get("code"):
            yield f"{where}: the code of {is_.get('function') or is_.get('class')} is another one"
            return
        for field in sorted({*was, *is_}):
            inner = where if field in _TAGS else f"{where}, {field}"
            yield from differences(inner, was.get(field), is_.get(field))
        return
    if isinstance(was, list) and isinstance(is_, list) and len(was) == len(is_):
        for one, other in zip(was, is_):
            yield from differences(where, one, other)
        return
    yield f"{where}: was {_short(was)}, is {_short(is_)}"


_TAGS: Final = frozenset(("with", "state", "object", "expression", "calls", "schema", "type", "float", "digest", "function", "class"))
"""Words of `footprint`, which say nothing to a person."""


def _short(said: Any) -> str:
    if said is None:
        return "nothing"
    text = str(said)
    return text if len(text) <= SHOWN else text[:SHOWN] + "..."
