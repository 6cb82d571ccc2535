"""Kernels that are loaded as machine code alone do what compiled ones do, and whatever is not whole is left to Numba."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import FunctionType
from typing import Any, cast

import numpy as np
import pytest
from numba import njit

from evenflow import kernels
from evenflow.kernels import cache, packed

SIGNATURES = "int64[::1](int64[::1], int64)", "int64[::1](Array(int64, 1, 'C', readonly=True), int64)"
EVENS = np.arange(6, dtype=np.int64)


def below(values: Any, limit: int) -> Any:
    if limit < 0:
        raise OverflowError("below nothing")
    taken = np.empty(len(values), np.int64)
    for i in range(len(values)):
        taken[i] = values[i] if values[i] < limit else limit
    return taken


kernel = cast(FunctionType, below)


@pytest.fixture(scope="module")
def pack(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """As it is read again."""
    place, before = tmp_path_factory.mktemp("numbas"), cache.config.CACHE_DIR
    cache.config.CACHE_DIR = str(place)
    try:
        made: Any = njit(cache=True, error_model="numpy")(below)
    finally:
        cache.config.CACHE_DIR = before
    codes = {}
    for signature in SIGNATURES:
        assert packed.code_of(made, signature) is None
        made.compile(signature)
        codes[packed.name_of(kernel, signature)] = packed.code_of(made, signature)
    assert None not in codes.values()
    (place / "kernels").write_bytes(packed.written(cast(packed.Pack, codes)))
    return packed.read(place / "kernels")


def loaded(pack: packed.Pack) -> Any:
    """None if it cannot be."""
    dispatcher: Any = njit(error_model="numpy")(below)
    if not packed.load(dispatcher, kernel, SIGNATURES, pack):
        assert dispatcher.signatures == []
        return None
    dispatcher.disable_compile()
    return dispatcher


def test_what_is_loaded_computes_and_makes_arrays(pack: packed.Pack) -> None:
    function = loaded(pack)
    fixed = EVENS.copy()
    fixed.flags.writeable = False
    for values in (EVENS, fixed):
        assert function(values, 3).tolist() == [0, 1, 2, 3, 3, 3] and function(values, 3).dtype == np.int64
    assert len(function.signatures) == len(SIGNATURES)


def test_its_errors_are_those_of_the_function(pack: packed.Pack) -> None:
    with pytest.raises(OverflowError, match="below nothing"):
        loaded(pack)(EVENS, -1)


def test_other_types_are_refused(pack: packed.Pack) -> None:
    with pytest.raises(TypeError, match="No matching definition"):
        loaded(pack)(EVENS.astype(np.float32), 3)


def test_a_pack_without_one_of_the_signatures_is_not_taken(pack: packed.Pack) -> None:
    assert loaded({name: code for name, code in pack.items() if "readonly" not in name}) is None


def test_code_that_needs_what_is_not_here_is_not_linked(pack: packed.Pack) -> None:
    """LLVM would end the process."""
    assert loaded({name: replace(code, needs=[*code.needs, "no_such_symbol"]) for name, code in pack.items()}) is None


@pytest.mark.parametrize("left", [0, 10, 1000, -1])
def test_a_file_that_is_not_whole_is_none(pack: packed.Pack, tmp_path: Path, left: int) -> None:
    """As a disk that was full may leave it, or a version that left only a mark."""
    path = tmp_path / "kernels"
    path.write_bytes(packed.written(pack)[:left])
    assert packed.read(path) == {} and packed.read(tmp_path / "none") == {}


def test_all_kernels_are_loaded_so_and_nothing_else_is() -> None:
    """Goal: a process that starts links machine code, and does not make Numba's implementations known. In a process of its own."""
    kernels.prepare(lambda: None)
    lines = (
        "import sys",
        "from evenflow import kernels",
        "from evenflow.kernels import packed",
        "kernels.warm()",
        "assert packed.MADE == [], packed.MADE",
        "there = {'numba.np.arrayobj', 'numba.np.linalg', 'cffi'} & sys.modules.keys()",
        "assert not there, there",
    )
    done = subprocess.run([sys.executable, "-c", "\n".join(lines)], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
