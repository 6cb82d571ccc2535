"""What may be computed already when an expression is built: constants of constants, as long as that is little work.

Whoever only checks an expression must not work for it, so large values are left for the run. So is a function whose work or result can be
far larger than its arguments: its work is estimated first, from the values that are known.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Final

import pyarrow as pa

LARGEST: Final = 1 << 16
"""Bytes of an argument or a result."""
MOST_STEPS: Final = 4_096
"""Of a function in `STEPS`: letters, elements or comparisons."""
DOCUMENT_STEPS: Final = 1_000_000
"""For a whole document that is checked, in all."""

_left: ContextVar[list[int] | None] = ContextVar("steps left to fold constants", default=None)


@contextmanager
def within(steps: int) -> Iterator[None]:
    """All that is folded in the block may take so many steps."""
    before = _left.set([steps])
    try:
        yield
    finally:
        _left.reset(before)


def size_of(value: pa.Scalar) -> int:
    """Bytes of a constant, roughly."""
    if not value.is_valid:
        return 1
    if pa.types.is_nested(value.type):
        return max(1, int(pa.repeat(value, 1).nbytes))
    if isinstance(value, pa.StringScalar | pa.BinaryScalar):
        buffer = value.as_buffer()
        return 1 if buffer is None else 1 + int(buffer.size)
    return 8


def affordable(args: Sequence[pa.Scalar], work: int = 0) -> bool:
    """Whether something of these arguments may be computed now. What may be is taken from what is left."""
    sizes = [size_of(value) for value in args]
    if max(sizes, default=0) > LARGEST:
        return False
    left = _left.get()
    if left is None:
        return True
    cost = 8 + sum(sizes) + work
    if cost > left[0]:
        return False
    left[0] -= cost
    return True


def estimated(name: str, args: Sequence[pa.Scalar | None]) -> float:
    """Steps of a call whose arguments are known; None: one that is not. 0 for a function whose work is that of its arguments."""
    steps = STEPS.get(name)
    if steps is None or any(value is None for value in args):
        return 0
    try:
        return steps(*(value.as_py() for value in args if value is not None))
    except Exception:  # Arguments may be anything; building the call says what is wrong with them.
        return 0


def _number(value: Any) -> float:
    return 0 if value is None else float(value)


def _length(value: Any) -> int:
    return 0 if value is None else len(value)


def _sequence(start: Any, stop: Any, step: Any = None) -> float:
    if start is None or stop is None:
        return 0
    return abs(_number(stop) - _number(start)) / max(1.0, abs(_number(step if step is not None else 1)))


def _replaced(text: Any, old: Any, new: Any = "") -> float:
    return _length(text) * max(1, _length(new))


def _levenshtein(a: Any, b: Any, most: Any = None) -> float:
    return (1 + _length(a)) * (1 + _length(b))


def _never(*_: Any) -> float:
    """Python's expressions may look for ever, and a form may ask for any width."""
    return math.inf


STEPS: Final[Mapping[str, Callable[..., float]]] = {
    "sequence": _sequence,
    "array_repeat": lambda value, count: _number(count) * (_length(value) if isinstance(value, str | bytes | list) else 1),
    "array_insert": lambda a, place, value: abs(_number(place)) + _length(a),
    "array_join": lambda a, mark, instead="": _length(a) * max(1, _length(mark), _length(instead)),
    "repeat": lambda text, count: _length(text) * _number(count),
    "space": lambda count: _number(count),
    "lpad": lambda text, width, fill="": _number(width),
    "rpad": lambda text, width, fill="": _number(width),
    "levenshtein": _levenshtein,
    "replace": _replaced,
    "translate": lambda text, old, new: _length(text) + _length(old),
    "format_number": lambda value, digits: abs(_number(digits)),
    "round": lambda value, digits=0: abs(_number(digits)),
    "bround": lambda value, digits=0: abs(_number(digits)),
    "concat_ws": lambda mark, *args: sum(map(_length, args)) * max(1, _length(mark)),
    **dict.fromkeys(
        ("format_string", "printf", "regexp_count", "regexp_instr", "regexp_substr", "regexp_extract_all", "regexp_replace", "str_to_map",
         "split", "rlike", "regexp", "regexp_like", "regexp_extract"), _never,
    ),
}  # fmt: skip
