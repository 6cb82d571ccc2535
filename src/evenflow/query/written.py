"""Values as Python that makes them again: text, and what has to be imported for it.

Plain values are written as they are; schemas and types as DDL; objects that their fields describe by their class; functions and classes by
the module that has them; tables and batches as bytes of Arrow.
"""

from __future__ import annotations

import base64
import copyreg
import dataclasses
import re
import sys
from typing import Any, Final

import pyarrow as pa

from evenflow.errors import QueryError
from evenflow.query.ends import arguments_of
from evenflow.sinks.sink import Sink
from evenflow.sources.source import Source
from evenflow.stream.ipc import batch_to_bytes
from evenflow.stream.schema import ddl_of, parse_ddl, parse_type, type_name

INSIDE: Final = ("function", "func")
"""Where a decorator keeps the function that it stands for now."""


class Written:
    """Writes values. imports: (module, name) of what the text needs, in order of first need."""

    def __init__(self) -> None:
        self.imports: dict[tuple[str, str], None] = {}

    def value(self, value: Any, box: str) -> str:
        """A Python expression. Raises QueryError, naming the box, for what only lives in this process."""
        if isinstance(value, str):
            return text(value)
        if value is None or isinstance(value, bool | int | bytes):
            return repr(value)
        if isinstance(value, float):
            return repr(value) if value - value == 0 else f"float({str(value)!r})"
        if isinstance(value, list | tuple):
            inside = ", ".join(self.value(each, box) for each in value)
            return f"[{inside}]" if isinstance(value, list) else f"({inside}{',' if len(value) == 1 else ''})"
        if isinstance(value, dict):
            return "{" + ", ".join(f"{self.value(k, box)}: {self.value(v, box)}" for k, v in value.items()) + "}"
        if isinstance(value, Source | Sink):
            return self._end(value, box)
        if isinstance(value, pa.DataType | pa.Schema | pa.Table | pa.RecordBatch):
            return self._arrow(value)
        return self._reference(value) or self._object(value, box)

    def _end(self, made: Source | Sink, box: str) -> str:
        arguments = arguments_of(made)
        if arguments is None:
            return self._object(made, box)
        given = ", ".join(f"{name}={self.value(value, box)}" for name, value in arguments.items())
        return f"ef.{'sources' if isinstance(made, Source) else 'sinks'}.{made.kind}({given})"

    def _arrow(self, value: Any) -> str:
        if isinstance(value, pa.DataType):
            try:
                name = type_name(value)
                if parse_type(name) == value:
                    return f"{self._name('evenflow.stream.schema', 'parse_type')}({text(name)})"
            except QueryError:
                pass
            return f"{self._arrow(pa.schema([pa.field('x', value)]))}.field('x').type"
        if isinstance(value, pa.Schema):
            try:
                ddl = ddl_of(value)
                if parse_ddl(ddl) == value:
                    return f"{self._name('evenflow.stream.schema', 'parse_ddl')}({text(ddl)})"
            except QueryError:
                pass
            return f"{self._arrow(pa.RecordBatch.from_pylist([], schema=value))}.schema"
        decode = self._name("base64", "b64decode")
        if isinstance(value, pa.RecordBatch):
            coded = base64.b64encode(batch_to_bytes(value)).decode()
            return f"{self._name('evenflow.stream.ipc', 'batch_from_bytes')}({decode}({text(coded)}))"
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, value.schema) as writer:
            writer.write_table(value)
        coded = base64.b64encode(sink.getvalue().to_pybytes()).decode()
        return f"{self._name('pyarrow', 'ipc')}.open_stream({decode}({text(coded)})).read_all()"

    def _reference(self, value: Any) -> str | None:
        """The name of a function or a class that can be imported, and is this very object."""
        module, name = getattr(value, "__module__", None), getattr(value, "__qualname__", None)
        if not isinstance(module, str) or not isinstance(name, str) or module == "__main__" or "<" in name:
            return None
        found: Any = sys.modules.get(module)
        for part in name.split("."):
            found = getattr(found, part, None)
        inside = next((each for each in INSIDE if getattr(found, each, None) is value), None)
        if found is not value and inside is None:
            return None
        first, *rest = name.split(".")
        return ".".join([self._name(module, first), *rest, *([] if found is value or inside is None else [inside])])

    def _object(self, value: Any, box: str) -> str:
        made = self._reference(type(value))
        if made is not None and dataclasses.is_dataclass(value):
            fields = [f for f in dataclasses.fields(value) if f.init]
            more = set(getattr(value, "__dict__", {})) - {f.name for f in dataclasses.fields(value)}
            if not more:
                return f"{made}({', '.join(f'{f.name}={self.value(getattr(value, f.name), box)}' for f in fields)})"
        reduced = _reduced(value)
        if made is not None and isinstance(reduced, tuple) and not any(reduced[2:]):
            maker, arguments = reduced[:2]
            if arguments == (type(value),):
                return f"{made}()"
            if (called := self._reference(maker)) is not None and maker is not copyreg.__newobj__:  # type: ignore[attr-defined]
                return f"{called}({', '.join(self.value(each, box) for each in arguments)})"
        raise QueryError(
            f"box {box!r}: {value!r:.120} is only in this process and cannot be written as Python; put it at the top level of a module"
        )

    def _name(self, module: str, name: str) -> str:
        """What it is called in the text: its name, or one of its own if another module has one of that name."""
        self.imports.setdefault((module, name))
        same = [known for known, other in self.imports if other == name]
        return name if same.index(module) == 0 else f"{name}_{same.index(module) + 1}"

    def lines(self, body: str | None = None) -> list[str]:
        """The imports, sorted. body: of which they are; None: all."""
        by_module: dict[str, list[str]] = {}
        for module, name in self.imports:
            called = self._name(module, name)
            if body is not None and re.search(rf"\b{called}\b", body) is None:
                continue
            by_module.setdefault(module, []).append(name if called == name else f"{name} as {called}")
        return sorted(f"from {module} import {', '.join(sorted(names))}" for module, names in by_module.items())


def _reduced(value: Any) -> Any:
    try:
        return value.__reduce_ex__(2)
    except Exception:  # Anything can go wrong inside a user's __reduce__.
        return None


def text(given: str) -> str:
    """A text in double quotes, where that needs no more of them."""
    shown = repr(given)
    return f'"{shown[1:-1]}"' if shown[0] == "'" and '"' not in shown and "\\'" not in shown else shown


__all__ = ["Written", "text"]
