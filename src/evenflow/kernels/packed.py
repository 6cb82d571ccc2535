"""What is compiled, as machine code alone: to load a kernel is to link it.

What Numba keeps of a function is for whoever goes on compiling: to load it, Numba makes all of its own types and implementations known
again for every function, imports the modules that its helpers come from, and reads the intermediate code, which nobody asks for here.
A pack has of every kernel its machine code, the names in it, and the data types that it makes arrays of. Kernels are called through
Numba's dispatcher as ever (docs/decisions/0173-machine-code-alone.md).
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import FunctionType
from typing import Any, Final

import numpy as np
from llvmlite import binding
from numba import _dynfunc  # type: ignore[attr-defined]
from numba.core import compiler, sigutils
from numba.core.compiler_lock import global_compiler_lock
from numba.core.runtime import _nrt_python  # type: ignore[attr-defined]

llvm: Any = binding
dynamic: Any = _dynfunc
runtime: Any = _nrt_python
compiled: Any = compiler.compile_result
parsed: Any = sigutils.normalize_signature
lock: Any = global_compiler_lock
HEAD: Final = b"evenflow kernels\n"


MADE: Final[list[tuple[Any, tuple[str, ...]]]] = []
"""Kernels that were compiled in this process, or loaded as Numba keeps them, and for which signatures."""


@dataclass(frozen=True, slots=True)
class Code:
    """One kernel for one signature. wrapper: the symbol that Python calls. environments: symbols that hold the address of an environment,
    and the data types in it, by NumPy's names; the kernel's own comes first. needs: symbols that are elsewhere. object_code:
    relocatable, for this processor."""

    wrapper: str
    environments: dict[str, list[str]]
    needs: list[str]
    object_code: bytes


Pack = Mapping[str, Code]
"""By `name_of`."""


def name_of(function: FunctionType, signature: str) -> str:
    return f"{function.__module__}.{function.__qualname__} {signature}"


def of_made() -> Pack:
    """Of what was made here."""
    codes = {name_of(kernel.py_func, signature): code_of(kernel, signature) for kernel, signatures in MADE for signature in signatures}
    return {name: code for name, code in codes.items() if code is not None}


def code_of(dispatcher: Any, signature: str) -> Code | None:
    """Of a kernel that has been compiled for this signature and kept by Numba. None if it is more than machine code and data types."""
    kept = dispatcher._cache
    found = kept._cache_file.load(kept._index_key(signature, dispatcher.targetctx.codegen()))
    if found is None:
        return None
    (_, kind, data), described, environment, _, objectmode, lifted, _, reload_init, others = found
    environments = {made.env_name: made.consts for made in (environment, *others)}
    if kind != "object" or objectmode or lifted or reload_init or not all(map(_are_types, environments.values())):
        return None
    object_code, shared = data
    types = {name: [constant.str for constant in constants] for name, constants in environments.items()}
    return Code(described.llvm_cpython_wrapper_name, types, _needs(shared), object_code)


def _are_types(constants: Iterable[Any]) -> bool:
    return all(isinstance(constant, np.dtype) and np.dtype(constant.str) == constant for constant in constants)


def _needs(intermediate: bytes) -> list[str]:
    """Symbols that the code takes from elsewhere, but for what LLVM has itself."""
    module = llvm.parse_bitcode(intermediate)
    named = (*module.functions, *module.global_variables)
    return sorted(one.name for one in named if one.is_declaration and not one.name.startswith("llvm."))


def written(pack: Pack) -> bytes:
    """The index as a line of JSON, and the code of all behind it."""
    index, at = {}, 0
    for name, code in pack.items():
        index[name] = [code.wrapper, code.environments, code.needs, at, at + len(code.object_code)]
        at += len(code.object_code)
    return HEAD + json.dumps(index).encode() + b"\n" + b"".join(code.object_code for code in pack.values())


@cache
def read(path: Path) -> Pack:
    """Empty if there is no pack, or not a whole one."""
    try:
        head, index, code = path.read_bytes().split(b"\n", 2)
    except (OSError, ValueError):
        return {}
    entries = json.loads(index) if head + b"\n" == HEAD else {}
    if len(code) != max((stop for *_, stop in entries.values()), default=0):
        return {}
    return {name: Code(wrapper, types, needs, code[start:stop]) for name, (wrapper, types, needs, start, stop) in entries.items()}


def load(dispatcher: Any, function: FunctionType, signatures: Iterable[str], pack: Pack) -> bool:
    """Have the dispatcher call the pack's code for these signatures. False, and nothing is done, if the pack does not have all of them, or
    they need what is not in this process."""
    found = [pack.get(name_of(function, signature)) for signature in signatures]
    codes = [code for code in found if code is not None]
    _know_runtime()
    if len(codes) < len(found) or not all(llvm.address_of_symbol(need) for code in codes for need in code.needs):
        return False
    with lock:
        for signature, code in zip(signatures, codes, strict=True):
            arguments, result = parsed(signature)
            entry = _linked(dispatcher.targetctx.codegen(), function, code)
            dispatcher.add_overload(compiled(signature=result(*arguments), entry_point=entry, objectmode=False))
    return True


def _linked(codegen: Any, function: FunctionType, code: Code) -> Any:
    """A function for Python."""
    engine = codegen._engine
    engine._ee.add_object_file(llvm.ObjectFileRef.from_data(code.object_code))
    engine.finalize_object()
    for name, types in code.environments.items():
        codegen.set_env(name, _environment(name, tuple(types)))
    environment = _environment(*next((name, tuple(types)) for name, types in code.environments.items()))
    pointer = engine.get_function_address(code.wrapper)
    return dynamic.make_function(sys.modules[function.__module__], function.__name__, "", pointer, environment, None)


@cache
def _environment(name: str, types: tuple[str, ...]) -> Any:
    """It stays, since code has its address. Numba's helpers have one each, whichever kernels they are compiled into."""
    environment = dynamic.Environment({"__name__": name})
    environment.consts.extend(np.dtype(kind) for kind in types)
    return environment


@cache
def _know_runtime() -> None:
    """Numba's counted memory, by the names that compiled code calls it; Numba tells LLVM of it when it compiles for the first time."""
    for name, address in runtime.c_helpers.items():
        llvm.add_symbol(name if name.startswith("_") else f"NRT_{name}", address)
