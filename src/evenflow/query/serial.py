"""A network as JSON, and back.

Schemas are written as DDL, expressions as they are, objects of Evenflow by the name of their kind (`KINDS`). A function
or a processor of the user's is written as a reference to where it can be imported from; what cannot be imported is
pickled. To import a module is to run it, and so is to read a pickle: both are read back only by who says that the file
may do that (`Consent`).
"""

from __future__ import annotations

import base64
import dataclasses
import importlib
import json
import pickle
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import pyarrow as pa

from evenflow.errors import CodeNotAllowed, EvenflowError, QosError, QueryError
from evenflow.query.aggregates import AggCall, OwnSessions, RowWindow, SessionWindow, TimeWindow
from evenflow.query.check import check_network
from evenflow.query.faults import about
from evenflow.query.given import names_of
from evenflow.query.kinds.judging import naming
from evenflow.query.network import Box, Network
from evenflow.query.saved_tables import table_from_text, table_to_text
from evenflow.query.user.aggregator import Aggregator
from evenflow.stream.schema import ddl_of, parse_ddl, parse_type, type_name

FORMAT: Final = 1
"""Version of the JSON. A file with a higher one is refused."""


def network_to_json(network: Network, *, indent: int | None = 2) -> str:
    """The network as JSON text. Raises QueryError if a function or object can be neither imported nor pickled."""
    boxes = [box_to_json(box) for box in network]
    return json.dumps({"evenflow": FORMAT, "name": network.name, "boxes": boxes}, indent=indent)


KINDS: Final[Mapping[str, str]] = {
    "BestRows": "evenflow.query.script.running",
    "Changes": "evenflow.query.script.running",
    "Finished": "evenflow.query.user.calling",
    "FoldedGroups": "evenflow.query.user.calling",
    "Formula": "evenflow.query.user.formula",
    "Gathered": "evenflow.query.spanned",
    "Join": "evenflow.query.join",
    "Latest": "evenflow.query.latest",
    "Pairs": "evenflow.query.changed_pairs",
    "Nullable": "evenflow.query.columns",
    "Nulls": "evenflow.query.columns",
    "OfGroups": "evenflow.query.user.calling",
    "OfRows": "evenflow.query.user.calling",
    "Curve": "evenflow.stream.curve",
    "Qos": "evenflow.query.qos",
    "Place": "evenflow.query.ranked",
    "Ranked": "evenflow.query.ranked",
    "Regrouped": "evenflow.query.regrouped",
    "RefreshedTable": "evenflow.query.tables",
    "Spanned": "evenflow.query.spanned",
    "Tried": "evenflow.query.user.calling",
    "UserFunction": "evenflow.query.user.function",
    "WindowTime": "evenflow.query.columns",
}
"""Classes of Evenflow, by module, whose objects any file may name: to construct one runs nothing."""


@dataclasses.dataclass(frozen=True, slots=True)
class Consent:
    """What may be run to read a file. pickles: anything. modules: the user's modules that may be imported, and what they define."""

    pickles: bool = False
    modules: tuple[str, ...] = ()

    def covers(self, module: str) -> bool:
        return self.pickles or any(module == each or module.startswith(each + ".") for each in self.modules)


def network_from_json(text: str, *, allow_pickle: bool = False, modules: Sequence[str] = ()) -> Network:
    """The network that `network_to_json` wrote, checked box by box.

    allow_pickle: run the pickles in it, and import what it names; that can run any code, so only for files from a hand you
    trust. modules: import no others than these (and those in them), and take from them only what they define themselves.
    Raises QueryError for JSON of another kind, a network that is wrong, or code that is not allowed.
    """
    consent = Consent(allow_pickle, names_of("from_json", "modules", modules))
    data = document_of(text)
    network = Network(str(data.get("name", "dataflow")), tuple(_box_from_json(box, consent) for box in data["boxes"]))
    try:
        check_network(network)
    except EvenflowError:
        raise
    except Exception as error:  # Every kind of box reads its own parameters, which may be anything in a file.
        raise QueryError(f"this dataflow cannot be read ({type(error).__name__}: {error}); correct the JSON") from error
    return network


def document_of(text: str) -> dict[str, Any]:
    """The JSON of a network as it stands there, with whatever else it says: readers leave out what they do not know, such as the place
    `at` where an editor has drawn a box. Raises QueryError for JSON of another kind."""
    try:
        data = json.loads(text)
    except RecursionError:
        raise QueryError("this JSON is nested too deeply for a dataflow; give the text that to_json() returned") from None
    except (ValueError, TypeError) as error:
        raise QueryError(f"this is not JSON: {error}; give the text that to_json() returned") from error
    if not isinstance(data, dict) or not isinstance(data.get("evenflow"), int) or not isinstance(data.get("boxes"), list):
        raise QueryError("this JSON is not a dataflow; give the text that to_json() returned")
    if data["evenflow"] > FORMAT:
        raise QueryError(f"this dataflow was saved in format {data['evenflow']}, newer than {FORMAT}; load it with a newer Evenflow")
    return data


def params_of(name: str, params: Mapping[str, Any], consent: Consent) -> dict[str, Any]:
    """The parameters of a saved box. Raises QueryError that says which one is wrong; CodeNotAllowed if it is code."""
    read: dict[str, Any] = {}
    for key, value in params.items():
        with about(key):
            try:
                read[key] = _decode(value, name, consent)
            except EvenflowError:
                raise
            except Exception as error:  # The file may have anything there.
                why = f"({type(error).__name__}: {error})"
                raise QueryError(f"box {name!r}: its {key!r} cannot be read {why}; correct the JSON") from error
    return read


def box_to_json(box: Box) -> dict[str, Any]:
    """A box as it is saved. Raises QueryError if something in it can be neither imported nor pickled."""
    written: dict[str, Any] = {"name": box.name, "kind": box.kind}
    if box.inputs:
        written["inputs"] = [list(arrow) for arrow in box.inputs]
    written["params"] = {key: _encode(value, box.name) for key, value in box.params.items()}
    if box.schemas:
        written["schemas"] = [ddl_of(schema) for schema in box.schemas]
    if box.event_time is not None:
        written |= {"event_time": box.event_time, "watermark_delay_us": box.watermark_delay_us}
    return written


def _box_from_json(data: Any, consent: Consent) -> Box:
    name = data.get("name") if isinstance(data, dict) else None
    if not isinstance(name, str):
        raise QueryError(f"a saved box has no name: {str(data)[:80]}; correct the JSON")
    try:
        with naming(name):
            params = params_of(name, data.get("params", {}), consent)
            schemas = tuple(parse_ddl(ddl) for ddl in data.get("schemas", ()))
        inputs = tuple((str(up), int(port)) for up, port in data.get("inputs", ()))
        return Box(name, data["kind"], inputs, params, schemas, data.get("event_time"), data.get("watermark_delay_us"))
    except EvenflowError:
        raise
    except Exception as error:
        raise QueryError(f"the saved box {name!r} cannot be read ({type(error).__name__}: {error}); correct the JSON") from error


# ---------------------------------------------------------------- values


def _encode(value: Any, box: str) -> Any:
    from evenflow.sinks.sink import Sink
    from evenflow.sources.source import Source

    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, tuple | list):
        return [_encode(item, box) for item in value]
    if isinstance(value, AggCall):
        made = {} if value.made is None else {"made": _encode(value.made, box), "others": list(value.others)}
        return {"$call": {"name": value.name, "function": value.function, "column": value.column, "type": type_name(value.type), **made}}
    if isinstance(value, TimeWindow):
        return {"$time_window": dataclasses.asdict(value)}
    if isinstance(value, OwnSessions):
        return {"$own_sessions": {"column": value.column, "ends": value.ends}}
    if isinstance(value, SessionWindow):
        return {"$session_window": dataclasses.asdict(value)}
    if isinstance(value, RowWindow):
        return {"$row_window": dataclasses.asdict(value)}
    if isinstance(value, Source | Sink):
        return _described(value, "$source" if isinstance(value, Source) else "$sink", box)
    if isinstance(value, pa.Table):
        return {"$table": table_to_text(value)}
    if isinstance(value, pa.Schema) and (ddl := _ddl(value)) is not None:
        return {"$schema": ddl}
    return _reference(value) or _object(value, box) or _pickled(value, box)


def _ddl(schema: pa.Schema) -> str | None:
    """What is read back as the same schema; None if DDL does not say all of it."""
    try:
        ddl = ddl_of(schema)
        return ddl if parse_ddl(ddl).equals(schema, check_metadata=True) else None
    except QueryError:
        return None


def _described(value: Any, tag: str, box: str) -> dict[str, Any]:
    try:
        return {tag: value.to_json()}
    except QueryError:
        return _pickled(value, box)


def _decode(value: Any, box: str, consent: Consent) -> Any:
    if isinstance(value, list):
        return tuple(_decode(item, box, consent) for item in value)
    if not isinstance(value, dict):
        return value
    if "python" in value:
        return _construct(value, box, consent)
    if "$kind" in value:
        return _of_kind(str(value["$kind"]), value["with"], box, consent)
    ((tag, content),) = value.items()
    if tag == "pickle":
        return _unpickled(content, box, consent)
    if tag == "$call":
        made = _decode(content.get("made"), box, consent)
        type_, others = parse_type(content["type"]), tuple(content.get("others", ()))
        return AggCall(content["name"], content["function"], content["column"], type_, made, others)
    if tag not in _READERS:
        raise QueryError(f"box {box!r}: a value of unknown kind {tag!r}; load it with the Evenflow that saved it")
    return _READERS[tag](content)


def _read_source(content: Mapping[str, Any]) -> Any:
    from evenflow import sources

    return sources.from_json(content)


def _read_sink(content: Mapping[str, Any]) -> Any:
    from evenflow import sinks

    return sinks.from_json(content)


_READERS: Final[Mapping[str, Callable[[Any], Any]]] = {
    "$time_window": lambda content: TimeWindow(**content),
    "$session_window": lambda content: SessionWindow(**content),
    "$own_sessions": lambda content: OwnSessions(**content),
    "$row_window": lambda content: RowWindow(**content),
    "$schema": parse_ddl,
    "$table": table_from_text,
    "$source": _read_source,
    "$sink": _read_sink,
}


# ---------------------------------------------------------------- Python objects


def _reference(value: Any) -> dict[str, Any] | None:
    """{"python": "module:name"} if importing that gives this very object in any process."""
    module, name = getattr(value, "__module__", None), getattr(value, "__qualname__", None)
    if not isinstance(module, str) or not isinstance(name, str) or module == "__main__" or "<" in name:
        return None
    found: Any = sys.modules.get(module)
    for part in name.split("."):
        found = getattr(found, part, None)
    return {"python": f"{module}:{name}"} if found is value else None


def _object(value: Any, box: str) -> dict[str, Any] | None:
    """An instance of an importable class that its dataclass fields, or nothing at all, describe whole."""
    reference = _reference(type(value))
    if reference is None or not _describable(type(value)):
        return None
    name = type(value).__name__
    if KINDS.get(name) == type(value).__module__:
        reference = {"$kind": name}
    if dataclasses.is_dataclass(value):
        fields = {f.name: getattr(value, f.name) for f in dataclasses.fields(value) if f.init}
        if set(getattr(value, "__dict__", {})) - {f.name for f in dataclasses.fields(value)}:
            return None
        return {**reference, "with": {key: _encode(item, box) for key, item in fields.items()}}
    _, arguments, *state = value.__reduce_ex__(2)
    return {**reference, "with": {}} if arguments == (type(value),) and not any(state) else None


def _describable(found: Any) -> bool:
    """Whether a file may name this class to have it constructed. Not any callable: reading a file must not run what it likes."""
    from evenflow.processor import BatchProcessor, Processor

    return isinstance(found, type) and (dataclasses.is_dataclass(found) or issubclass(found, Processor | BatchProcessor | Aggregator))


def _construct(data: Mapping[str, Any], box: str, consent: Consent) -> Any:
    module, _, name = str(data["python"]).partition(":")
    if module.startswith("evenflow.") and name in KINDS:
        return _of_kind(name, data["with"], box, consent)  # As it was written once.
    if not consent.covers(module):
        raise CodeNotAllowed(
            f"box {box!r} names {data['python']}, and to import {module or 'it'} is to run it; load with modules=[{module!r}] "
            "if you trust that module, or with allow_pickle=True if you trust the file"
        )
    try:
        found: Any = importlib.import_module(module)
        for part in name.split("."):
            found = getattr(found, part)
    except (ImportError, AttributeError, ValueError) as error:
        raise QueryError(
            f"box {box!r} needs {data['python']}, which cannot be imported: {error}; put its module on the Python path"
        ) from error
    if not consent.pickles and _reference(found) != {"python": data["python"]}:
        raise QueryError(f"box {box!r}: {name} is not defined in {module}, where {data['python']} has it from; build it in Python")
    if "with" not in data:
        return found
    if not _describable(found):
        raise QueryError(
            f"box {box!r}: {data['python']} is neither a dataclass nor a processor, so a file may not construct it; build it in Python"
        )
    return found(**{key: _decode(value, box, consent) for key, value in data["with"].items()})


def _of_kind(kind: str, fields: Mapping[str, Any], box: str, consent: Consent) -> Any:
    if kind not in KINDS:
        raise QueryError(f"box {box!r}: an object of unknown kind {kind!r}; load it with the Evenflow that saved it")
    made: Any = getattr(importlib.import_module(KINDS[kind]), kind)
    given = {key: _decode(value, box, consent) for key, value in fields.items()}
    try:
        return made(**given)
    except QosError as error:
        raise QosError(f"box {box!r}: {error}").of(error) from None
    except (TypeError, ValueError) as error:
        if isinstance(error, QueryError):
            raise
        raise QueryError(f"box {box!r}: its {kind} cannot be made as it is saved: {error}") from error


def _pickled(value: Any, box: str) -> dict[str, Any]:
    try:
        return {"pickle": base64.b64encode(_dumps(value)).decode()}
    except Exception as error:  # Anything can go wrong inside a user's __reduce__.
        raise QueryError(
            f"box {box!r}: {value!r} cannot be saved ({type(error).__name__}: {error}); "
            "put it at the top level of a module, or make it picklable"
        ) from error


def _dumps(value: Any) -> bytes:
    """By value, for lambdas and classes of the main program, where a cloudpickle is installed or loaded; by plain pickle otherwise."""
    try:
        import cloudpickle as by_value
    except ImportError:
        by_value = sys.modules.get("pyspark.cloudpickle", pickle)
    dumped: bytes = by_value.dumps(value)
    return dumped


def _unpickled(content: str, box: str, consent: Consent) -> Any:
    if not consent.pickles:
        raise CodeNotAllowed(
            f"box {box!r} holds a pickled Python object, which can run any code when it is read; "
            "load with allow_pickle=True if you trust the file, or put the function into a module and save again"
        )
    try:
        return pickle.loads(base64.b64decode(content))
    except Exception as error:
        raise QueryError(f"box {box!r}: its pickled Python object cannot be read here: {type(error).__name__}: {error}") from error
