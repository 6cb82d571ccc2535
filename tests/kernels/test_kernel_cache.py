"""Compiled kernels: compiled once per machine, found again at once, and kept where this user can write."""

from __future__ import annotations

import os
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from numba import njit

from evenflow import kernels
from evenflow.kernels import cache, jit, packed


class Machine:
    """done: what was said and compiled, in order."""

    def __init__(self) -> None:
        self.done: list[str] = []

    def prepare(self) -> None:
        cache.prepare(self.compile, lambda: self.done.append("said"))

    def compile(self) -> bytes:
        self.done.append("compiled")
        return packed.written({})


@pytest.fixture
def at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Path]:
    """Lets compiled kernels lie in a directory of this name."""

    def place(name: str) -> Path:
        (tmp_path / name).mkdir(exist_ok=True)
        monkeypatch.setattr(cache, "_place", lambda: (tmp_path / name, None))
        return tmp_path / name

    monkeypatch.setattr(cache, "SHIPPED", tmp_path / "shipped")
    return place


def test_every_module_with_kernels_is_compiled() -> None:
    found = {path.stem for path in cache.HERE.glob("*.py") if "\n@kernel(" in path.read_text(encoding="utf-8")}
    assert set(kernels.MODULES) == found


def test_they_are_compiled_once(at: Callable[[str], Path]) -> None:
    machine = Machine()
    at("cache")
    machine.prepare()
    assert machine.done == ["said", "compiled"] and cache.complete()
    machine.prepare()
    assert machine.done == ["said", "compiled"]


def test_those_of_other_sources_are_not_kept(at: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch) -> None:
    kept = at("cache")
    (kept / "kernels-another.complete").touch()
    for sources in "before", "after":
        monkeypatch.setattr(cache, "_mark", lambda sources=sources: f"kernels-{cache._machine()}-{sources}.complete")
        Machine().prepare()
    assert {path.name for path in kept.glob("*.complete")} == {"kernels-another.complete", cache.mark().name} and cache.complete()


def test_who_fails_leaves_them_to_the_next(at: Callable[[str], Path]) -> None:
    at("cache")

    def fail() -> bytes:
        raise MemoryError

    with pytest.raises(MemoryError):
        cache.prepare(fail, lambda: None)
    machine = Machine()
    machine.prepare()
    assert machine.done == ["said", "compiled"]


def test_other_processes_wait_for_the_first(at: Callable[[str], Path]) -> None:
    at("cache")
    begun, go_on, second, said = threading.Event(), threading.Event(), Machine(), threading.Event()

    def compile_all() -> bytes:
        begun.set()
        assert go_on.wait(20)
        return packed.written({})

    def wait() -> None:
        cache.prepare(second.compile, said.set)

    threads = [threading.Thread(target=cache.prepare, args=(compile_all, lambda: None)), threading.Thread(target=wait)]
    threads[0].start()
    assert begun.wait(20)
    threads[1].start()
    assert said.wait(20)
    go_on.set()
    for thread in threads:
        thread.join(20)
    assert second.done == []


def test_those_beside_the_sources_are_taken_where_they_cannot_be_written(at: Callable[[str], Path]) -> None:
    shipped = at("shipped")
    (shipped / "fold.fold-1.py311.nbi").write_bytes(b"index")
    (shipped / "fold.fold-1.py311.1.nbc").write_bytes(b"code")
    Machine().prepare()
    mine, machine = at("mine"), Machine()
    machine.prepare()
    assert machine.done == [] and cache.complete()
    assert (mine / "fold.fold-1.py311.nbi").read_bytes() == b"index" and (mine / "fold.fold-1.py311.1.nbc").read_bytes() == b"code"


def test_those_of_another_version_are_not_taken(at: Callable[[str], Path]) -> None:
    (at("shipped") / "kernels-of-another-version.complete").touch()
    at("mine")
    machine = Machine()
    machine.prepare()
    assert machine.done == ["said", "compiled"]


def test_whoever_compiles_says_so_once_before(at: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    monkeypatch.setattr(jit, "njit", lambda **options: lambda function: said.append("compiled") or function)
    before = kernels.ON_COMPILE[:]
    at("cache")
    try:
        kernels.ON_COMPILE[:] = [lambda: said.append("said")]
        for _ in range(2):
            jit.kernel("int64(int64)")(wanted)
        assert said == ["said", "compiled", "compiled"]
        Machine().prepare()
        kernels.ON_COMPILE[:] = [lambda: said.append("said")]
        jit.kernel("int64(int64)")(wanted)
        assert said == ["said", "compiled", "compiled", "compiled"]
    finally:
        kernels.ON_COMPILE[:] = before


@pytest.mark.parametrize("writable_by_others", [False, True])
def test_a_user_who_can_write_nowhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, writable_by_others: bool) -> None:
    """Goal: Numba refuses to cache a function when it finds no place; then there is one, which nobody else writes."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(cache, "_NUMBAS", ())
    if writable_by_others:
        own = tmp_path / f"evenflow-{os.getuid()}"
        own.mkdir()
        own.chmod(0o777)
    before = cache.config.CACHE_DIR
    cache._place.cache_clear()
    try:
        directory, found = cache._place()
        assert found is not None
        with cache.placed():
            made: Any = njit(cache=True)(wanted)
        assert Path(made._cache.cache_path).parent == found and directory.parent == found
        assert found.stat().st_mode & 0o077 == 0 and found.parent.parent == tmp_path
        assert before == cache.config.CACHE_DIR
    finally:
        cache._place.cache_clear()


def wanted(x: int) -> int:
    return x


def one_more(x: int) -> int:
    return x + 1


def two_more(x: int) -> int:
    return x + 2


more: Any = one_more


def asks(x: int) -> int:
    return more(x)  # type: ignore[no-any-return]


def test_a_change_of_a_helper_in_another_file_makes_the_kernel_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Goal: nobody who takes a new version goes on with the old one's arithmetic."""
    monkeypatch.setattr(cache, "_place", lambda: (tmp_path, tmp_path))

    def made(sources: str, helper: Any) -> Any:
        monkeypatch.setattr(cache, "_sources", lambda: sources)
        monkeypatch.setitem(asks.__globals__, "more", jit.inlined(helper))
        return jit.kernel("int64(int64)")(asks)

    assert made("before", one_more)(1) == 2
    again = made("before", one_more)
    assert again(1) == 2 and sum(again.stats.cache_hits.values()) == 1
    assert made("after", two_more)(1) == 3
