"""A network while somebody draws it: every box is judged, what is wrong is said where it is wrong, and what is behind it waits.

It works on the JSON of a network (`serial`), in which boxes may be half done, and it imports and runs nothing that the JSON names: boxes
with code are locked unless who asks has consented. Answers are kept by box, parameters and input types, so a letter typed costs one box.
"""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

import pyarrow as pa

from evenflow.errors import CodeNotAllowed, EvenflowError, QueryError
from evenflow.query.aggregates import AggCall, result_type
from evenflow.query.check import outcome, stream_type
from evenflow.query.faults import about, wrong_parameter
from evenflow.query.kinds import KINDS
from evenflow.query.kinds.judging import known, naming
from evenflow.query.kinds.kind import Outcome, StreamType
from evenflow.query.network import Box, Network, is_aside, port_suffix
from evenflow.query.planner import check_plan
from evenflow.query.serial import Consent, params_of
from evenflow.query.sql.folding import DOCUMENT_STEPS, within
from evenflow.stream.change import is_changelog
from evenflow.stream.schema import ddl_of, parse_ddl, type_name

MOST_KEPT: Final = 5_000
MOST_KEPT_BYTES: Final = 64 << 20


@dataclass(frozen=True, slots=True)
class Fault:
    """What is wrong with a box. parameter, item: which, if it is one. start, end: the letters of the expression there that are wrong."""

    error: str
    type: str
    parameter: str | None = None
    item: int | None = None
    start: int | None = None
    end: int | None = None

    def to_json(self) -> dict[str, Any]:
        told = {"parameter": self.parameter, "item": self.item, "start": self.start, "end": self.end}
        return {"error": self.error, "type": self.type, **{name: value for name, value in told.items() if value is not None}}


@dataclass(frozen=True, slots=True)
class Judged:
    """A box and what is known of it. state: "right"; "wrong", and then fault says why; "waiting" for those in waits_for; "locked": it has
    code that may not be run, and is taken to give what the file claims. box: with its schemas, if it is right, or locked with a claim."""

    name: str
    kind: str
    state: str
    box: Box | None = None
    fault: Fault | None = None
    waits_for: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        told: dict[str, Any] = {"name": self.name, "kind": self.kind, "state": self.state}
        if self.box is not None:
            told["ports"] = [_port(self.box, port) for port in range(len(self.box.schemas))]
        if self.fault is not None:
            told |= self.fault.to_json()
        if self.waits_for:
            told["waits_for"] = list(self.waits_for)
        return told


@dataclass(frozen=True, slots=True)
class Checked:
    """All boxes, in the order of the file. fault: of the network as a whole, which only one whose boxes are right can have. loose: boxes
    that lead to no sink, so that it cannot be started yet."""

    name: str
    boxes: tuple[Judged, ...]
    fault: Fault | None = None
    loose: tuple[str, ...] = ()

    @property
    def right(self) -> bool:
        return self.fault is None and all(judged.state == "right" for judged in self.boxes)

    def to_json(self) -> dict[str, Any]:
        whole = {} if self.fault is None else self.fault.to_json()
        boxes = [judged.to_json() for judged in self.boxes]
        return {"name": self.name, "right": self.right, "boxes": boxes, "loose": list(self.loose), **whole}


class Checker:
    """Judges documents, one after the other, and remembers. consent: what may be imported; nothing by itself."""

    def __init__(self, consent: Consent | None = None) -> None:
        self._consent = consent or Consent()
        self._kept: OrderedDict[Any, tuple[Judged, int]] = OrderedDict()
        self.kept_bytes = 0

    def check(self, document: Mapping[str, Any]) -> Checked:
        """Every box of a document (`serial.document_of`). Raises nothing for what is wrong in it."""
        known: dict[str, Judged] = {}
        told: list[Judged] = []
        shapes = list(_shapes(document["boxes"]))
        by_name = {shape.name: shape for shape in reversed(shapes) if shape.fault is None}
        with within(DOCUMENT_STEPS):
            for name in _ordered(by_name):
                known[name] = self._judged(by_name[name], known)
        for shape in shapes:
            if shape.fault is not None:
                told.append(Judged(shape.name, shape.kind, "wrong", fault=shape.fault))
            elif shape.name in known:
                told.append(known[shape.name])
            else:
                told.append(self._circular(shape, by_name, known))
        whole, loose = self._whole(document, told)
        return Checked(str(document.get("name", "dataflow")), tuple(told), whole, loose)

    def fitting(self, document: Mapping[str, Any], name: str, port: int) -> dict[str, list[str]]:
        """Where an arrow from that port could lead: boxes that are there, and kinds of boxes. A box whose own parameters are wrong fits."""
        shapes = {shape.name: shape for shape in _shapes(document["boxes"]) if shape.fault is None or shape.short}
        whole = {name: shape for name, shape in shapes.items() if not shape.short}
        known: dict[str, Judged] = {}
        with within(DOCUMENT_STEPS):
            for each in _ordered(whole):
                known[each] = self._judged(whole[each], known)
        start = known[name].box if name in known else None
        if start is None or not 0 <= port < len(start.schemas):
            return {"boxes": [], "kinds": []}
        given = stream_type(start, port)
        above = _above(name, shapes)
        boxes = [to for to, shape in shapes.items() if to not in above and self._fits(shape, (name, port), known)]
        kinds = [
            kind
            for kind, what in KINDS.items()
            if what.inputs[1] != 0 and not (what.refuses_changes is not None and is_changelog(given.schema))
        ]
        return {"boxes": boxes, "kinds": kinds}

    # ------------------------------------------------ one box

    def _judged(self, shape: _Shape, known: Mapping[str, Judged]) -> Judged:
        waits = tuple(dict.fromkeys(up for up, _ in shape.inputs if known[up].box is None))
        if waits:
            return Judged(shape.name, shape.kind, "waiting", waits_for=waits)
        inputs: list[StreamType] = []
        for item, (up, port) in enumerate(shape.inputs):
            box = known[up].box
            assert box is not None
            if not 0 <= port < len(box.schemas):
                why = f"box {shape.name!r} reads output {port} of {up!r}, which has {len(box.schemas)}; correct the port"
                return Judged(shape.name, shape.kind, "wrong", fault=Fault(why, "QueryError", "inputs", item))
            inputs.append(stream_type(box, port))
        key = (shape.name, shape.kind, shape.inputs, shape.text, tuple(inputs))
        kept = self._kept.get(key)
        if kept is not None:
            self._kept.move_to_end(key)
            return kept[0]
        found = self._asked(shape, inputs)
        self._kept[key] = found, _weight(shape, found)
        self.kept_bytes += self._kept[key][1]
        while len(self._kept) > MOST_KEPT or self.kept_bytes > MOST_KEPT_BYTES:
            _, (_, weight) = self._kept.popitem(last=False)
            self.kept_bytes -= weight
        return found

    def _asked(self, shape: _Shape, inputs: Sequence[StreamType]) -> Judged:
        """What the judge says."""
        try:
            params = params_of(shape.name, _typed(shape, inputs), self._consent)
        except CodeNotAllowed as error:
            return Judged(shape.name, shape.kind, "locked", _claimed(shape), _fault(error, shape))
        except EvenflowError as error:
            return Judged(shape.name, shape.kind, "wrong", fault=_fault(error, shape))
        try:
            found = outcome(shape.name, shape.kind, params, inputs)
        except EvenflowError as error:
            return Judged(shape.name, shape.kind, "wrong", fault=_fault(error, shape))
        except Exception as error:  # Every kind of box reads its own parameters, which may be anything in a file.
            why = f"box {shape.name!r} cannot be read ({type(error).__name__}: {error}); correct its parameters"
            return Judged(shape.name, shape.kind, "wrong", fault=Fault(why, "QueryError", wrong_parameter(error)))
        return Judged(shape.name, shape.kind, "right", _box(shape, params, found))

    def _circular(self, shape: _Shape, by_name: Mapping[str, _Shape], known: Mapping[str, Judged]) -> Judged:
        """A box that can never be judged: it is on a circle, behind one, or behind a box that has no shape."""
        for item, (up, _) in enumerate(shape.inputs):
            if up in by_name and shape.name in _above(up, by_name):
                why = f"box {shape.name!r} reads what comes of its own rows, through {up!r}; a dataflow has no circle: remove one arrow"
                return Judged(shape.name, shape.kind, "wrong", fault=Fault(why, "QueryError", "inputs", item))
        waits = tuple(dict.fromkeys(up for up, _ in shape.inputs if up not in known or known[up].box is None))
        return Judged(shape.name, shape.kind, "waiting", waits_for=waits)

    def _fits(self, shape: _Shape, arrow: tuple[str, int], known: Mapping[str, Judged]) -> bool:
        least, most = KINDS[shape.kind].inputs
        inputs = (*shape.inputs, arrow)
        if (most is not None and len(inputs) > most) or any(up not in known or known[up].box is None for up, _ in inputs):
            return False
        if len(inputs) < least:
            return True
        judged = self._judged(_Shape(shape.name, shape.kind, inputs, shape.params, shape.text), known)
        return judged.fault is None or judged.fault.parameter is not None

    # ------------------------------------------------ the whole

    def _whole(self, document: Mapping[str, Any], told: Sequence[Judged]) -> tuple[Fault | None, tuple[str, ...]]:
        boxes = [judged.box for judged in told if judged.box is not None]
        if len(boxes) < len(told):
            return None, ()
        try:
            network = Network(str(document.get("name", "dataflow")), tuple(boxes))
            loose = tuple(box.name for box in network.dangling())
            if boxes and not loose and all(judged.state == "right" for judged in told):
                check_plan(network)
            return None, loose
        except EvenflowError as error:
            return Fault(str(error), type(error).__name__), ()


def filled(document: Mapping[str, Any], checked: Checked) -> dict[str, Any]:
    """The document with the schemas that its boxes have been found to give, as `serial` writes them; all else in it stays."""
    told = zip(document["boxes"], checked.boxes, strict=True)
    boxes = [_filled(data, judged.box if judged.state == "right" else None) if isinstance(data, dict) else data for data, judged in told]
    return {**document, "boxes": boxes}


def _filled(data: Mapping[str, Any], box: Box | None) -> dict[str, Any]:
    if box is None:
        return dict(data)
    kept = {key: value for key, value in data.items() if key not in ("schemas", "event_time", "watermark_delay_us")}
    if box.kind == "aggregate":
        kept["params"] = {**kept["params"], "calls": _with_types(kept["params"]["calls"], box.params["calls"])}
    if box.schemas:
        kept["schemas"] = [ddl_of(schema) for schema in box.schemas]
    if box.event_time is not None:
        kept |= {"event_time": box.event_time, "watermark_delay_us": box.watermark_delay_us}
    return kept


def _with_types(calls: Sequence[Any], made: Sequence[AggCall]) -> list[Any]:
    """Totals with their types, where a document says none."""
    return [{"$call": {**told["$call"], "type": type_name(call.type)}} for told, call in zip(calls, made, strict=True)]


def _typed(shape: _Shape, inputs: Sequence[StreamType]) -> Mapping[str, Any]:
    """The parameters, in which totals that do not say their types have them."""
    calls = shape.params.get("calls")
    if shape.kind != "aggregate" or not isinstance(calls, list):
        return shape.params
    return {**shape.params, "calls": [_call(shape.name, item, told, inputs[0].schema) for item, told in enumerate(calls)]}


def _call(box: str, item: int, told: Any, schema: pa.Schema) -> Any:
    match told:
        case {"$call": {"function": str(function), "column": column, **rest}} if not rest.get("type") and rest.get("made") is None:
            with about("calls", item), naming(box):
                kind = None if column is None else known(box, str(column), schema).type
                found = type_name(result_type(function, kind))
            return {"$call": {"name": f"{function}_{column or 'all'}", **told["$call"], "type": found}}
    return told


# ---------------------------------------------------------------- shapes


@dataclass(frozen=True, slots=True)
class _Shape:
    """What a document says of a box, as far as it can be understood. text: its parameters, to compare. claims: what it claims to give.
    short: nothing is wrong with it but that it has too few inputs."""

    name: str
    kind: str
    inputs: tuple[tuple[str, int], ...] = ()
    params: Mapping[str, Any] = field(default_factory=dict)
    text: str = ""
    claims: tuple[Any, Any, Any] = ((), None, None)
    fault: Fault | None = None
    short: bool = False


def _weight(shape: _Shape, judged: Judged) -> int:
    """Bytes that are kept of a box, roughly: its parameters as text and as they were read, and its columns."""
    box = judged.box
    tables = 0 if box is None else sum(value.nbytes for value in box.params.values() if isinstance(value, pa.Table))
    columns = 0 if box is None else sum(len(schema) for schema in box.schemas)
    return 2_000 + 4 * len(shape.text) + tables + 300 * columns


def _shapes(boxes: Sequence[Any]) -> Iterator[_Shape]:
    names = {data["name"] for data in boxes if isinstance(data, dict) and isinstance(data.get("name"), str)}
    seen: set[str] = set()
    for data in boxes:
        yield _shape(data, names, seen)


def _shape(data: Any, names: set[str], seen: set[str]) -> _Shape:
    name = data.get("name") if isinstance(data, dict) else None
    if not isinstance(name, str) or not name:
        return _Shape(str(name or ""), "", fault=Fault(f"a box has no name: {str(data)[:80]}; give it one", "QueryError", "name"))
    kind, params, given = data.get("kind"), data.get("params", {}), data.get("inputs", [])
    wrong = _Shape(name, kind if isinstance(kind, str) else "")

    def fault(why: str, parameter: str, item: int | None = None) -> _Shape:
        return _Shape(wrong.name, wrong.kind, fault=Fault(f"box {name!r} {why}", "QueryError", parameter, item))

    if name in seen:
        return fault("is not the only one of that name; give one of them another name", "name")
    seen.add(name)
    if not isinstance(kind, str) or kind not in KINDS:
        return fault(f"is of kind {str(kind)[:80]!r}, which is unknown; it must be one of {', '.join(KINDS)}", "kind")
    if not isinstance(params, dict):
        return fault("has parameters that are no object; correct the JSON", "params")
    if not isinstance(given, list):
        return fault("has inputs that are no list; correct the JSON", "inputs")
    inputs: list[tuple[str, int]] = []
    for item, arrow in enumerate(given):
        match arrow:
            case [str(up), int(port)] if not isinstance(port, bool):
                if up not in names:
                    return fault(f"reads from {up!r}, which does not exist; add that box or correct the name", "inputs", item)
                inputs.append((up, port))
            case _:
                return fault(f"has an input that is no pair of a box and its port: {str(arrow)[:80]}", "inputs", item)
    claims = (data.get("schemas", ()), data.get("event_time"), data.get("watermark_delay_us"))
    found = _Shape(name, kind, tuple(inputs), params, json.dumps(params, sort_keys=True), claims)
    least, most = KINDS[kind].inputs
    if len(inputs) < least or (most is not None and len(inputs) > most):
        wanted = f"{least}" if least == most else f"at least {least}"
        wrong = fault(f"({kind}) has {len(inputs)} inputs; it must have {wanted}", "inputs")
        return replace(found, fault=wrong.fault, short=len(inputs) < least)
    return found


def _ordered(shapes: Mapping[str, _Shape]) -> list[str]:
    """Names so that each comes after its inputs; without those on a circle, behind one, or behind a box that has no shape."""
    placed: dict[str, None] = {}
    readers: dict[str, list[str]] = {}
    missing = {name: len({up for up, _ in shape.inputs}) for name, shape in shapes.items()}
    for name, shape in shapes.items():
        for up in {up: None for up, _ in shape.inputs}:
            readers.setdefault(up, []).append(name)
    ready = [name for name, count in missing.items() if count == 0]
    for name in ready:
        placed[name] = None
        for reader in readers.get(name, ()):
            missing[reader] -= 1
            if missing[reader] == 0:
                ready.append(reader)
    return list(placed)


def _above(name: str, shapes: Mapping[str, _Shape]) -> set[str]:
    """The box and all that leads to it."""
    found, waiting = {name}, [name]
    while waiting:
        shape = shapes.get(waiting.pop())
        for up, _ in () if shape is None else shape.inputs:
            if up not in found:
                found.add(up)
                waiting.append(up)
    return found


# ---------------------------------------------------------------- pieces


def _box(shape: _Shape, params: Mapping[str, Any], found: Outcome) -> Box:
    return Box(shape.name, shape.kind, shape.inputs, params, found.schemas, found.event_time, found.watermark_delay_us)


def _claimed(shape: _Shape) -> Box | None:
    """A box that is locked, with the columns that the file claims. None if it claims none that can be read."""
    try:
        claimed, time, delay_us = shape.claims
        schemas = tuple(parse_ddl(ddl) for ddl in claimed)
        if time is not None and not (isinstance(delay_us, int) and time in schemas[0].names):
            return None
    except (QueryError, TypeError, AttributeError, IndexError):
        return None
    params = {key: value for key, value in shape.params.items() if not isinstance(value, dict | list)}
    return Box(shape.name, shape.kind, shape.inputs, params, schemas, time, delay_us) if schemas or shape.kind == "sink" else None


def _fault(error: EvenflowError, shape: _Shape) -> Fault:
    told, kind = str(error), type(error).__name__
    if not isinstance(error, QueryError):
        return Fault(told, kind)
    start, end = error.span or (None, None)
    if error.expression and error.expression != _expression(shape.params.get(error.parameter or ""), error.item):
        start = end = None  # It was read out of another text, which was made of this one.
    return Fault(told, kind, error.parameter, error.item, start, end)


def _expression(value: Any, item: int | None) -> Any:
    """The text at a place of a parameter: a text, one of a list, or the second of a pair in a list."""
    if item is not None and isinstance(value, list) and item < len(value):
        value = value[item]
    return value[-1] if isinstance(value, list) and value else value


def _port(box: Box, port: int) -> dict[str, Any]:
    schema = box.schemas[port]
    carries = stream_type(box, port)
    told: dict[str, Any] = {"name": port_suffix(box, port).removeprefix("."), "ddl": ddl_of(schema), "columns": schema.names}
    if carries.event_time is not None:
        told |= {"event_time": carries.event_time, "delay_us": carries.watermark_delay_us}
    if is_aside(box, port):
        told["aside"] = True
    if is_changelog(schema):
        told["changelog"] = True
    return told


__all__ = ["Checked", "Checker", "Fault", "Judged", "filled"]
