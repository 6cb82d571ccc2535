"""What a value is, as plain JSON that is the same in every process: how a program of today is told from that of a former driver.

A number is itself, rows are the digest of their bytes, an object is its class and its fields. A user's function is the digest of its code,
of what it closes over, and of the user's functions, classes and constants that it names; so a helper that was changed is noticed, a comment
is not. What is installed, Evenflow included, is its name alone: it is as a whole of some version. Nothing here can be turned back into
code, and nothing has an address in it.
"""

from __future__ import annotations

import json
import re
import sys
import sysconfig
from collections.abc import Mapping, Sequence
from dataclasses import Field, fields, is_dataclass
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from functools import partial
from pathlib import Path
from types import BuiltinFunctionType, CodeType, FunctionType, MethodType, ModuleType
from typing import Any, Final

import numpy as np
import pyarrow as pa

from evenflow.query.expression import Compiled
from evenflow.stream.digest import digest_of, digest_of_json

INSTALLED: Final = tuple(
    str(Path(sysconfig.get_path(name)).resolve()) for name in ("stdlib", "platstdlib", "purelib", "platlib") if sysconfig.get_path(name)
)
DEEPEST: Final = 64
"""Objects in objects. What is nested more deeply is not looked at: no program is told from another one there."""


def is_users(module: ModuleType | None) -> bool:
    """Whether a module is the user's own: executors do not have it, and its code may change from one start to the next."""
    if module is None or module.__name__.partition(".")[0] == "evenflow":
        return False
    file = getattr(module, "__file__", None)
    if module.__name__ == "__main__":
        return True
    return bool(file) and not str(Path(str(file)).resolve()).startswith(INSTALLED)


def footprint(value: Any) -> Any:
    """JSON for a value of whatever type. Equal values have equal ones; of a class that hides its state only the name is known."""
    return _Walk().value(value)


class _Walk:
    """open: objects that are being described, so that what holds itself comes to an end."""

    def __init__(self) -> None:
        self._open: set[int] = set()

    def value(self, value: Any) -> Any:
        if value is None or isinstance(value, bool | str) or type(value) is int:
            return value
        if id(value) in self._open or len(self._open) >= DEEPEST:
            return {"again": type(value).__qualname__}
        self._open.add(id(value))
        try:
            return self._plain(value)
        finally:
            self._open.discard(id(value))

    def _plain(self, value: Any) -> Any:
        match value:
            case float():
                return {"float": repr(value)}
            case bytes() | bytearray():
                return {"bytes": digest_of(bytes(value))}
            case Enum():
                return {"enum": f"{type(value).__qualname__}.{value.name}"}
            case datetime() | date() | time() | timedelta() | Decimal() | complex() | int():
                return {type(value).__name__: str(value)}
            case tuple() | list():
                return [self.value(item) for item in value]
            case set() | frozenset():
                return {"set": sorted((self.value(item) for item in value), key=_text)}
            case Mapping():
                return self._mapping(value)
            case pa.Schema():
                return {"schema": [[f.name, str(f.type), f.nullable] for f in value]}
            case pa.DataType():
                return {"type": str(value)}
            case pa.Table() | pa.RecordBatch():
                return {"rows": value.num_rows, "digest": digest_of(_bytes_of(value))}
            case np.ndarray() | np.generic():
                return {"array": str(value.dtype), "digest": digest_of(np.ascontiguousarray(value).tobytes())}
            case Compiled():
                return {"expression": value.text, "type": str(value.type), "calls": self._mapping(dict(value.functions))}
            case _:
                return self._object(value)

    def _mapping(self, value: Mapping[Any, Any]) -> Any:
        if all(isinstance(key, str) for key in value):
            return {"with": {key: self.value(value[key]) for key in sorted(value)}}
        return {"pairs": sorted(([self.value(key), self.value(each)] for key, each in value.items()), key=_text)}

    # ------------------------------------------------ code

    def _object(self, value: Any) -> Any:
        match value:
            case ModuleType():
                return {"module": value.__name__}
            case FunctionType():
                return self._function(value)
            case MethodType():
                return {"method": self.value(value.__func__), "of": self.value(value.__self__)}
            case partial():
                return {"partial": self.value(value.func), "given": self.value(value.args), "named": self.value(value.keywords)}
            case BuiltinFunctionType():
                return {"function": f"{value.__module__}.{value.__qualname__}"}
            case type():
                return self._class(value)
            case re.Pattern():
                return {"pattern": self.value(value.pattern), "flags": value.flags}
            case _:
                return {"object": self.value(type(value)), **self._state(value)}

    def _function(self, value: FunctionType) -> Any:
        named = f"{value.__module__}.{value.__qualname__}"
        if not is_users(sys.modules.get(value.__module__)) and value.__module__ in sys.modules:
            return {"function": named}
        content = [
            self._code(value.__code__, value.__globals__),
            self.value(value.__defaults__),
            self.value(value.__kwdefaults__),
            [self._cell(cell) for cell in value.__closure__ or ()],
        ]
        return {"function": value.__qualname__, "code": digest_of_json(content)}

    def _cell(self, cell: Any) -> Any:
        try:
            return self.value(cell.cell_contents)
        except ValueError:  # It is empty still.
            return None

    def _code(self, code: CodeType, known: Mapping[str, Any]) -> Any:
        """known: the module's names. Of these, what the code names is part of it."""
        consts = [self._code(const, known) if isinstance(const, CodeType) else self.value(const) for const in code.co_consts]
        if _documented(code):
            consts[0] = None
        uses = {name: self.value(known[name]) for name in sorted(set(code.co_names)) if name in known}
        return [code.co_code.hex(), consts, list(code.co_names), list(code.co_varnames), list(code.co_freevars), uses]

    def _class(self, value: type) -> Any:
        named = f"{value.__module__}.{value.__qualname__}"
        if not is_users(sys.modules.get(value.__module__)) and value.__module__ in sys.modules:
            return {"class": named}
        members = {name: self._member(made) for name, made in sorted(vars(value).items()) if name not in _OF_ANY_CLASS}
        bases = [self.value(base) for base in value.__mro__[1:] if base is not object]
        return {"class": value.__qualname__, "code": digest_of_json([members, bases])}

    def _member(self, made: Any) -> Any:
        if isinstance(made, staticmethod | classmethod):
            return self.value(made.__func__)
        if isinstance(made, property):
            return [self.value(each) for each in (made.fget, made.fset, made.fdel)]
        return self.value(made)

    def _state(self, value: Any) -> Mapping[str, Any]:
        module = type(value).__module__
        if module.partition(".")[0] != "evenflow" and module in sys.modules and not is_users(sys.modules[module]):
            return {}  # What a library keeps in its objects is its own business: addresses, counters, what is cached.
        if is_dataclass(value):
            # What a class does not show of itself is secret, or lives in this process only.
            held = {f.name: getattr(value, f.name, None) for f in fields(value) if f.repr and not _as_without(value, f)}
        else:
            held = dict(getattr(value, "__dict__", {}))
            for of in type(value).__mro__:
                names: Sequence[str] = getattr(of, "__slots__", ())
                for name in (names,) if isinstance(names, str) else names:
                    if hasattr(value, name) and not name.startswith("__"):
                        held.setdefault(name, getattr(value, name))
        return {"state": {name: self.value(held[name]) for name in sorted(held)}} if held else {}


def _as_without(value: Any, field: Field[Any]) -> bool:
    """Whether a field that came in a later version says what was so before there was one."""
    return bool(field.metadata.get("later")) and getattr(value, field.name, None) == field.default


_OF_ANY_CLASS: Final = frozenset(
    ("__module__", "__qualname__", "__doc__", "__dict__", "__weakref__", "__annotations__", "__firstlineno__", "__static_attributes__",
     "__abstractmethods__", "_abc_impl", "__dataclass_fields__", "__dataclass_params__", "__match_args__", "__annotate__",
     "__annotate_func__", "__annotations_cache__", "__slots__", "__parameters__", "__orig_bases__")
)  # fmt: skip
"""What Python notes about every class: no part of what the user wrote, or shown by what else there is."""


_OF_FUNCTION: Final = 0x3
_DOCUMENTED: Final = 0x4000000


def _documented(code: CodeType) -> bool:
    """Whether its first constant is its docstring. Before 3.13 that place is kept for it in every function, without saying so."""
    first = code.co_consts[0] if code.co_consts else None
    flag = code.co_flags & (_DOCUMENTED if sys.version_info >= (3, 13) else _OF_FUNCTION)
    return isinstance(first, str) and bool(flag)


def _text(said: Any) -> str:
    return json.dumps(said, sort_keys=True)


def _bytes_of(rows: pa.Table | pa.RecordBatch) -> bytes:
    """The same for the same rows, however they are cut into batches."""
    table = pa.Table.from_batches([rows]) if isinstance(rows, pa.RecordBatch) else rows
    whole = table.replace_schema_metadata(None).combine_chunks()
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, whole.schema) as writer:
        writer.write_table(whole)
    content: bytes = sink.getvalue().to_pybytes()
    return content
