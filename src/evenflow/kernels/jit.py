"""How kernels are compiled: ahead of time for stated signatures, cached on disk, with the GIL held.

The GIL is held on purpose. A site owns one core, so nothing is gained by running beside a kernel; a release would let a busy
thread of user code keep the GIL for a switch interval (5 ms) afterwards; and a held GIL makes each kernel call atomic, which is
what lets another thread read a snapshot without a lock (docs/decisions/0004-pages.md).

Numba's disk cache notices a change of the file that a kernel is written in, but not of the files it takes helpers from. So here any
change of this room makes all of its kernels anew (`cache.by_all_sources`).
"""

from __future__ import annotations

from collections.abc import Callable
from types import FunctionType
from typing import Any, TypeVar, cast

from llvmlite import ir
from numba import njit, types
from numba.core import cgutils
from numba.extending import intrinsic

from evenflow.kernels import ON_COMPILE, packed
from evenflow.kernels.cache import by_all_sources, complete, mark, placed

F = TypeVar("F", bound=Callable[..., Any])

Word = Any
"""A 64-bit scalar inside a kernel: int64, uint64 or float64, as the kernel's signature says. mypy has no word for it."""


def kernel(*signatures: str) -> Callable[[F], F]:
    """Compile a function for these signatures when its module is imported, or load it: from the pack, if all are compiled, or from Numba's
    cache."""

    def compile_now(function: F) -> F:
        whole = complete()
        if ON_COMPILE and not whole:
            while ON_COMPILE:
                ON_COMPILE.pop()()
        compiled: Any = njit(error_model="numpy")(function)
        if compiled is function:  # NUMBA_DISABLE_JIT
            return function
        if not whole or not packed.load(compiled, cast(FunctionType, function), signatures, packed.read(mark())):
            with placed():
                compiled.enable_caching()
            by_all_sources(compiled)
            for signature in signatures:
                compiled.compile(signature)
            packed.MADE.append((compiled, signatures))
        compiled.disable_compile()
        return cast(F, compiled)

    return compile_now


def inlined(function: F) -> F:
    """A helper that is compiled into the kernels that call it."""
    compile_for: Any = njit(error_model="numpy")
    return cast(F, compile_for(function))


def _load_word(typing_context: Any, data: Any, offset: Any) -> Any:
    """load_word(bytes: uint8[::1], offset) -> uint64: the eight bytes from `offset` on, little-endian, at any alignment."""
    signature = types.uint64(data, offset)

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        array = context.make_array(signature.args[0])(context, builder, arguments[0])
        address = builder.gep(array.data, [arguments[1]])
        word = builder.load(builder.bitcast(address, ir.IntType(64).as_pointer()))
        word.align = 1
        return word

    return signature, generate


load_word: Any = intrinsic(_load_word)


def _prefetch(typing_context: Any, array: Any, index: Any) -> Any:
    """prefetch(array, flat index): ask for the cache line of an element that will be read and written soon."""
    signature = types.void(array, index)

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        view = context.make_array(signature.args[0])(context, builder, arguments[0])
        pointer = builder.bitcast(builder.gep(view.data, [arguments[1]]), ir.IntType(8).as_pointer())
        word = ir.IntType(32)
        insert: Any = cgutils.get_or_insert_function
        callee = insert(builder.module, ir.FunctionType(ir.VoidType(), [pointer.type, word, word, word]), "llvm.prefetch.p0i8")
        builder.call(callee, [pointer, ir.Constant(word, 1), ir.Constant(word, 3), ir.Constant(word, 1)])
        return context.get_dummy_value()

    return signature, generate


prefetch: Any = intrinsic(_prefetch)
