"""A network as a Python file that draws it: running the file gives the same network.

Each box is written as the method of a stream that draws it, where there is one. Whether that is so is not believed but tried: the line is
carried out on a drawing, and what it has drawn is compared. Where no method draws a box so, the box is added as it is.
"""

from __future__ import annotations

import builtins
import keyword
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields, replace
from types import SimpleNamespace
from typing import Any, Final

from evenflow import sinks, sources
from evenflow.errors import QueryError
from evenflow.query.aggregates import AggCall, OwnSessions, RowWindow, SessionWindow, TimeWindow
from evenflow.query.builder import Dataflow
from evenflow.query.duration import duration_text, duration_us
from evenflow.query.handle import HandledStream
from evenflow.query.kinds.lookup import Lookup
from evenflow.query.network import Box, Network
from evenflow.query.protecting import AVAILABILITY
from evenflow.query.qos import qos
from evenflow.query.serial import box_to_json
from evenflow.query.written import Written, text

EVENFLOW: Final = SimpleNamespace(Dataflow=Dataflow, qos=qos, sources=sources, sinks=sinks)
"""What the name ef has in a line that is tried."""
WIDTH: Final = 120


def to_python(network: Network) -> str:
    """A file with a function `dataflow()`, as `evenflow run` takes it. Raises QueryError for a box that has what only this process has."""
    return _Export(network).whole()


class _Export:
    """Draws the network anew, line by line."""

    def __init__(self, network: Network) -> None:
        self._network = network
        self._written = Written()
        self._flow = Dataflow(network.name)
        self._names = _variables(network)
        self._scope: dict[str, Any] = {"ef": EVENFLOW, "flow": self._flow}

    def whole(self) -> str:
        lines = [line for box in self._network for line in [self._line(box)] if line]
        imports = self._written.lines("\n".join(lines))
        head = [
            '"""A dataflow, as Evenflow has written it down."""',
            "",
            *sorted([*imports, "import evenflow as ef"], key=_import_key),
            "",
            "",
        ]
        body = [f"flow = ef.Dataflow({text(self._network.name)})", *lines, "return flow"]
        return "\n".join([*head, "def dataflow() -> ef.Dataflow:", *(f"    {line}" for line in body), ""])

    def _line(self, box: Box) -> str:
        for call in self._lines(box):
            if self._draws(call, box):
                reads = self._network.readers(box.name)
                return f"{self._names[box.name]} = {call}" if reads else call
        raise QueryError(f"box {box.name!r} ({box.kind}) cannot be written as Python: what is drawn so differs from it")

    def _draws(self, call: str, box: Box) -> bool:
        """Whether the line draws this box, and only it. What it has drawn otherwise is taken back."""
        before = len(self._flow.network)
        scope = {**self._scope, **_imported(self._written)}
        try:
            with self._flow.whole():
                found = eval(call, scope)
                drawn = self._flow.network
                if len(drawn) != before + 1 or box.name not in drawn or not _same(drawn.box(box.name), box):
                    raise _Differs
        except (_Differs, QueryError, TypeError, ValueError, AttributeError):
            return False
        self._scope[self._names[box.name]] = found
        return True

    # ------------------------------------------------ how a box may be drawn

    def _lines(self, box: Box) -> Iterator[str]:
        asked = (
            f".availability({text(box.params[AVAILABILITY])})" if box.params.get(AVAILABILITY) is not None and box.kind != "sink" else ""
        )
        yield from (call + asked for call in self._calls(box))
        yield self._added(box)

    def _calls(self, box: Box) -> Iterator[str]:
        """Lines that might draw it, the plainest first."""
        try:
            yield from _METHODS.get(box.kind, _none)(self, box)
        except (KeyError, TypeError, ValueError, AttributeError):  # Its parameters are none that a method gives.
            return

    def _added(self, box: Box) -> str:
        """The box as it is."""
        inputs = ", ".join(self._port(up, port) for up, port in box.inputs)
        inputs = f"({inputs},)" if len(box.inputs) == 1 else f"({inputs})"
        return f"flow.add({text(box.kind)}, {self._value(dict(box.params), box)}, {inputs}, {text(box.name)}, {text(box.kind)})"

    def _value(self, value: Any, box: Box) -> str:
        return self._written.value(value, box.name)

    def _port(self, name: str, port: int) -> str:
        """The stream that leaves a box at a port."""
        variable = self._names[name]
        if port == 0:
            return variable if isinstance(self._scope.get(variable), HandledStream) else f"flow.stream({text(name)})"
        return f"flow.stream({text(name)}, {port})"

    def _input(self, box: Box, number: int = 0) -> str:
        return self._port(*box.inputs[number])

    def _named(self, call: str, box: Box, stem: str) -> Iterator[str]:
        """The call, and a name where the first free one is another."""
        yield call if self._flow.free(stem) == box.name else f"{call}.name({text(box.name)})"
        yield f"{call}.name({text(box.name)})"

    def _source(self, box: Box) -> Iterator[str]:
        weights = ", weights=True" if box.params.get("weights") else ""
        yield f"flow.source({self._value(box.params['source'], box)}, name={text(box.name)}{weights})"

    def _sink(self, box: Box) -> Iterator[str]:
        asked = box.params.get("qos")
        worth = "" if asked is None else f"qos=ef.qos({', '.join(f'{key}={value!r}' for key, value in asked.arguments().items())}), "
        held = "".join(f"{key}={text(box.params[key])}, " for key in ("guarantee", AVAILABILITY) if box.params.get(key) is not None)
        held += "unordered=True, " if box.params.get("unordered") else ""
        held += "" if (every_us := box.params.get("every_us")) is None else f"every={_duration(every_us)}, "
        yield f"{self._input(box)}.to({self._value(box.params['sink'], box)}, {worth}{held}name={text(box.name)})"

    def _filter(self, box: Box) -> Iterator[str]:
        yield from self._named(f"{self._input(box)}.where({self._value(box.params['condition'], box)})", box, "filter")

    def _select(self, box: Box) -> Iterator[str]:
        columns, given = box.params["columns"], self._network.input_schemas(box)[0].names
        kept = [name for name, made in columns if name == made]
        new = [(name, made) for name, made in columns if name != made]
        up = self._input(box)
        if kept == given[: len(kept)] == [name for name, _ in columns][: len(kept)] and len(kept) == len(given) and new:
            yield from self._named(f"{up}.with_columns({self._pairs(new, box)})", box, "select")
        if new or kept:
            plain = ", ".join(self._value(name, box) for name in kept)
            both = ", ".join(part for part in (plain, self._pairs(new, box)) if part)
            yield from self._named(f"{up}.select({both})", box, "select")
        yield from self._named(f"{up}.select({self._pairs(columns, box)})", box, "select")

    def _pairs(self, pairs: Sequence[tuple[str, Any]], box: Box) -> str:
        """As keyword arguments."""
        if any(not name.isidentifier() or keyword.iskeyword(name) for name, _ in pairs):
            return "**" + self._value(dict(pairs), box)
        return ", ".join(f"{name}={self._value(made, box)}" for name, made in pairs)

    def _union(self, box: Box) -> Iterator[str]:
        others = ", ".join(self._input(box, number) for number in range(1, len(box.inputs)))
        yield from self._named(f"{self._input(box)}.union({others})", box, "union")

    def _watermark(self, box: Box) -> Iterator[str]:
        idle = box.params.get("idle_us")
        more = "" if idle is None else f", idle={_duration(idle)}"
        call = f"{self._input(box)}.with_watermark({text(box.params['column'])}, {_duration(box.params['delay_us'])}{more})"
        yield from self._named(call, box, "watermark")

    def _aggregate(self, box: Box) -> Iterator[str]:
        params = box.params
        if any(call.made is not None for call in params["calls"]):
            return
        keys = ", ".join(self._value(key, box) for key in params["keys"])
        window = _window(params["window"], params)
        more = f", mode={params['mode']!r}" if params.get("mode", "update") != "update" and params["window"] is None else ""
        call = f"{self._input(box)}.group_by({keys}){window}.agg({self._pairs([(c.name, _call(c)) for c in params['calls']], box)}{more})"
        yield from self._named(call, box, "aggregate")

    def _key_by(self, box: Box) -> Iterator[str]:
        if all(reader.kind == "process" for reader in self._network.readers(box.name)):
            yield f"{self._input(box)}.key_by({', '.join(self._value(column, box) for column in box.params['columns'])})"

    def _process(self, box: Box) -> Iterator[str]:
        (up, _), p = box.inputs[0], box.params
        more = "".join(f", {name}={self._value(p[name], box)}" for name in ("tie_break", "verify") if p[name] is not None)
        order = ", order='arrival'" if p["order"] == "arrival" and self._network.box(up).event_time is not None else ""
        yield f"{self._names[up]}.process({self._value(p['processor'], box)}{order}{more}, name={text(box.name)})"

    def _case(self, box: Box) -> Iterator[str]:
        conditions = ", ".join(self._value(condition, box) for condition in box.params["conditions"])
        yield f"{self._input(box)}.case({conditions}, name={text(box.name)})"

    def _dedup(self, box: Box) -> Iterator[str]:
        method = "drop_duplicates_within_watermark" if box.params["within"] else "drop_duplicates"
        yield from self._named(f"{self._input(box)}.{method}({self._value(list(box.params['keys']), box)})", box, "dedup")

    def _repartition(self, box: Box) -> Iterator[str]:
        count = box.params["partitions"]
        yield from self._named(f"{self._input(box)}.repartition({'' if count is None else count})", box, "repartition")

    def _unpivot(self, box: Box) -> Iterator[str]:
        p = box.params
        given = ", ".join(self._value(list(p[name]), box) for name in ("ids", "values"))
        yield from self._named(f"{self._input(box)}.unpivot({given}, {text(p['variable'])}, {text(p['value'])})", box, "unpivot")

    def _explode(self, box: Box) -> Iterator[str]:
        p = box.params
        more = f", position={text(p['position'])}" if p["position"] is not None else ""
        more += ", outer=True" if p["outer"] else ""
        yield from self._named(f"{self._input(box)}.explode({text(p['column'])}, into={self._value(p['into'], box)}{more})", box, "explode")

    def _lookup(self, box: Box) -> Iterator[str]:
        usual = {each.name: each.default for each in fields(Lookup)}
        asked = {name: value for name, value in box.params.items() if name in usual and value != usual[name]}
        function, output, on = (self._value(asked.pop(name), box) for name in ("function", "output", "on"))
        given = [f"on={on}"]
        if policy := "skip" if "on_error" in box.params else "null" if asked.pop("nulls", False) else "":
            given.append(f"on_error={policy!r}")
        for name, value in asked.items():
            given.append(f"{name.removesuffix('_us')}={_duration(value) if name.endswith('_us') else self._value(value, box)}")
        yield from self._named(f"{self._input(box)}.lookup({function}, {output}, {', '.join(given)})", box, "lookup")


class _Differs(Exception):
    pass


def _none(export: _Export, box: Box) -> Iterator[str]:
    return iter(())


_METHODS: Final[Mapping[str, Any]] = {
    "source": _Export._source, "sink": _Export._sink, "filter": _Export._filter, "select": _Export._select, "union": _Export._union,
    "watermark": _Export._watermark, "aggregate": _Export._aggregate, "dedup": _Export._dedup, "repartition": _Export._repartition,
    "unpivot": _Export._unpivot, "explode": _Export._explode, "key_by": _Export._key_by, "process": _Export._process,
    "case": _Export._case, "lookup": _Export._lookup,
}  # fmt: skip


def _same(drawn: Box, box: Box) -> bool:
    """Whether two boxes are one. Objects that cannot be compared are, if they are written alike, or saved alike."""
    if replace(drawn, params={}) != replace(box, params={}):
        return False
    if _plain(drawn.params) == _plain(box.params):
        return True
    written = Written()
    mine, theirs = (written.value(_plain(each.params), box.name) for each in (drawn, box))
    return mine == theirs or box_to_json(drawn) == box_to_json(box)


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _plain(each) for key, each in value.items()}
    return tuple(map(_plain, value)) if isinstance(value, list | tuple) else value


def _call(call: AggCall) -> str:
    return call.text


def _duration(span_us: int) -> str:
    exact = f"{span_us} microseconds"
    try:
        return text(shown if duration_us(shown := duration_text(span_us)) == span_us else exact)
    except QueryError:
        return text(exact)


def _window(window: Any, params: Mapping[str, Any]) -> str:
    match window:
        case TimeWindow():
            slide = "" if window.slide_us == window.size_us else f", slide={_duration(window.slide_us)}"
            return f".window({_duration(window.size_us)}{slide}{_mode(window)})"
        case OwnSessions():
            return f".session(ends={text(window.ends)})"
        case SessionWindow():
            return f".session({_duration(window.gap_us)}{_mode(window)})"
        case RowWindow():
            slide = "" if window.slide == 1 else f", slide={window.slide}"
            order = ", order='arrival'" if params["order"] == "arrival" else ""
            return f".rows({window.history}{slide}{order})"
    return ""


def _mode(window: TimeWindow | SessionWindow) -> str:
    mode = "" if window.mode == "append" else f", mode={window.mode!r}"
    return mode if not window.lateness_us else f"{mode}, allowed_lateness={_duration(window.lateness_us)}"


def _variables(network: Network) -> dict[str, str]:
    """A name of a variable for each box, unlike any other and unlike what the text uses."""
    taken, found = {"ef", "flow", "dataflow", *dir(builtins)}, {}
    for box in network:
        stem = re.sub(r"\W+", "_", box.name.lower(), flags=re.ASCII).strip("_") or "stream"
        stem = f"_{stem}" if stem[0].isdigit() or keyword.iskeyword(stem) else stem
        name, number = stem, 1
        while name in taken:
            name, number = (f"{stem}_{number}" if number > 1 else f"{stem}_"), number + 1
        taken.add(name)
        found[box.name] = name
    return found


def _imported(written: Written) -> dict[str, Any]:
    scope: dict[str, Any] = {}
    for line in written.lines():
        exec(line, scope)
    return scope


def _import_key(line: str) -> tuple[int, str]:
    """Libraries first, then Evenflow, then what is the user's."""
    module = line.split()[1]
    return (0 if module in ("base64", "pyarrow") else 1 if module.split(".")[0] == "evenflow" else 2, line)


__all__ = ["to_python"]
