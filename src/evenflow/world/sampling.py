"""Looks at what the threads of this process are at, about a hundred times a second, and folds what it sees into a profile.

It runs beside everything else, in a thread: nothing is traced, and no code is slower for it but by what a look takes from the interpreter,
some tens of microseconds. A thread that has not run since the last look is where it was, so only those that run are walked.
Meanwhile threads give the interpreter back sooner than usual: else a look would wait until they do so by themselves, which is where they
wait for something, and would see them wait.

What native code does is seen as the function that called it; threads that are not Python's are seen by their CPU alone.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from random import Random
from types import CodeType, FrameType
from typing import Final

from evenflow.statistics.profile import BOX, DEEPEST, ELSEWHERE, OTHERS, Profile, Stack, bounded, short

EVERY_S: Final = 0.01
"""On average. How long it really is, is drawn: what comes as regularly as the looks would be seen always, or never."""
SWITCH_S: Final = 0.0002
KINDS_MOST: Final = 5_000
"""Different stacks that are counted one by one."""
WAIT_IN: Final = frozenset({"threading", "queue", "selectors", "socket", "concurrent.futures.thread", "asyncio.base_events"})
"""Modules of the standard library in which a thread that is seen there waits."""
LINUX: Final = sys.platform == "linux"

Key = tuple[int | str, ...]
Mark = Callable[[FrameType], str]
"""A name to stand behind a frame of some code."""


@dataclass(frozen=True, slots=True)
class _Code:
    """code: kept, so that its id stays its own."""

    code: CodeType
    name: str
    waits: bool


@dataclass(slots=True)
class _Thread:
    """cpu_ns: of the thread when it was last looked at. owed_ns: what it has used and no stack has got yet."""

    name: str
    clock: int | None
    cpu_ns: int
    key: Key = ()
    waits: bool = False
    owed_ns: int = 0


class Sampling:
    """Of this process, by a thread that calls `done` with the profile at the end. marks: names behind frames of these codes. waits: codes
    in which a thread that is seen there waits. inside: only what is within a frame of this name, and from there on."""

    def __init__(
        self,
        site: int,
        seconds: float,
        done: Callable[[Profile], None],
        marks: Mapping[CodeType, Mark],
        waits: Collection[CodeType] = (),
        inside: str | None = None,
    ) -> None:
        self._site, self._seconds, self._done, self._inside = site, seconds, done, inside
        self._marks = {id(code): mark for code, mark in marks.items()}
        self._waits = {id(code) for code in waits}
        self._held = (*marks, *waits)
        self._codes: dict[int, _Code] = {}
        self._threads: dict[int, _Thread] = {}
        self._cpu_ns: dict[Key, int] = {}
        self._time_ns: dict[Key, int] = {}
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._serve, name="evenflow-profile", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End it early; then nobody is told. From any thread."""
        self._stopped.set()

    def join(self, timeout_s: float) -> None:
        self._thread.join(timeout_s)

    def _serve(self) -> None:
        interval_s = sys.getswitchinterval()
        if interval_s > SWITCH_S:
            sys.setswitchinterval(SWITCH_S)
        try:
            profile = self._sample()
        finally:
            if interval_s > SWITCH_S and abs(sys.getswitchinterval() - SWITCH_S) < 1e-7:  # Somebody else may have set it meanwhile.
                sys.setswitchinterval(interval_s)
        if not self._stopped.is_set():
            self._done(profile)

    def _sample(self) -> Profile:
        random, own = Random(), threading.get_ident()
        cpu_ns, own_ns = time.process_time_ns(), time.thread_time_ns()
        began_ns = last_ns = time.monotonic_ns()
        end_ns, samples = began_ns + int(self._seconds * 1e9), 0
        self._look(0, own)
        while last_ns < end_ns and not self._stopped.wait(EVERY_S * random.uniform(0.5, 1.5)):
            now_ns = time.monotonic_ns()
            self._look(now_ns - last_ns, own)
            last_ns, samples = now_ns, samples + 1
        cpu_ns, own_ns = time.process_time_ns() - cpu_ns, time.thread_time_ns() - own_ns
        stacks = self._stacks(cpu_ns - own_ns)
        return Profile(self._site, round((last_ns - began_ns) / 1e9, 3), samples, cpu_ns // 1000, own_ns // 1000, stacks)

    def _look(self, passed_ns: int, own: int) -> None:
        frames = sys._current_frames()
        for ident, frame in frames.items():
            if ident == own:
                continue
            thread = self._threads.get(ident)
            used_ns = None if thread is None else self._used(thread)
            if thread is None or used_ns is None:
                thread = self._threads[ident] = _introduced(ident)
                used_ns = 0
            if used_ns or not thread.key or thread.clock is None:
                thread.key, thread.waits = self._walk(frame, thread.name)
                if thread.clock is None and not thread.waits:
                    used_ns = passed_ns
            self._count(thread, used_ns, passed_ns)
        del frames
        if len(self._threads) > 2 * len(threading.enumerate()) + 64:
            self._threads = {}

    def _used(self, thread: _Thread) -> int | None:
        """CPU since the last look; 0 where the system does not say; None if the thread has ended, and another one has its place."""
        if thread.clock is None:
            return 0
        try:
            now_ns = time.clock_gettime_ns(thread.clock)
        except OSError:
            return None
        used_ns, thread.cpu_ns = now_ns - thread.cpu_ns, now_ns
        return used_ns

    def _count(self, thread: _Thread, used_ns: int, passed_ns: int) -> None:
        key = thread.key
        if key not in self._time_ns and len(self._time_ns) >= KINDS_MOST:
            key = (thread.name, OTHERS)
        self._time_ns[key] = self._time_ns.get(key, 0) + passed_ns
        thread.owed_ns += used_ns
        if not thread.waits and thread.owed_ns:
            self._cpu_ns[key] = self._cpu_ns.get(key, 0) + thread.owed_ns
            thread.owed_ns = 0

    def _walk(self, frame: FrameType, name: str) -> tuple[Key, bool]:
        """(what the thread is at, by ids of codes and names, from the outside in; whether it waits there)."""
        found: list[int | str] = []
        waits = self._code(frame).waits
        at: FrameType | None = frame
        while at is not None:
            code = id(at.f_code)
            mark = self._marks.get(code)
            if mark is not None:
                found.append(mark(at))
            if code not in self._codes:
                self._code(at)
            found.append(code)
            at = at.f_back
        if len(found) > DEEPEST:
            found = [*found[: DEEPEST // 2], "…", *found[-DEEPEST // 2 :]]
        found.append(name)
        found.reverse()
        return tuple(found), waits

    def _code(self, frame: FrameType) -> _Code:
        code = frame.f_code
        known = self._codes.get(id(code))
        if known is None:
            module = str(frame.f_globals.get("__name__", "?"))
            waits = id(code) in self._waits or module in WAIT_IN
            known = self._codes[id(code)] = _Code(code, short(f"{module}.{code.co_qualname}"), waits)
        return known

    def _stacks(self, cpu_ns: int) -> tuple[Stack, ...]:
        found: dict[tuple[str, ...], tuple[int, int]] = {}
        for thread in self._threads.values():  # What is owed at the end: it was seen to wait only, but it has worked.
            if thread.owed_ns and thread.key:
                self._cpu_ns[thread.key] = self._cpu_ns.get(thread.key, 0) + thread.owed_ns
        for key, time_ns in self._time_ns.items():
            names = tuple(self._codes[each].name if isinstance(each, int) else short(each) for each in key)
            before = found.get(names, (0, 0))
            found[names] = before[0] + self._cpu_ns.get(key, 0) // 1000, before[1] + time_ns // 1000
        if self._inside is None:
            rest_us = cpu_ns // 1000 - sum(cpu_us for cpu_us, _ in found.values())
            if LINUX and rest_us > 0:
                found[(ELSEWHERE,)] = rest_us, 0
        else:
            found = _within(found, self._inside)
        return bounded(Stack(names, *values) for names, values in found.items())


def _within(found: Mapping[tuple[str, ...], tuple[int, int]], inside: str) -> dict[tuple[str, ...], tuple[int, int]]:
    cut: dict[tuple[str, ...], tuple[int, int]] = {}
    for names, (cpu_us, time_us) in found.items():
        if inside in names:
            names = names[names.index(inside) :]
            before = cut.get(names, (0, 0))
            cut[names] = before[0] + cpu_us, before[1] + time_us
    return cut


def _introduced(ident: int) -> _Thread:
    """A thread that is seen for the first time."""
    known = next((thread for thread in threading.enumerate() if thread.ident == ident), None)
    name = f"thread {known.name}" if known is not None else "thread without a name"
    if known is None or known.native_id is None or not LINUX:
        return _Thread(name, None, 0)
    clock = (~known.native_id << 3) | 6  # As the kernel names the CPU clock of a thread: it answers for threads of this process only.
    try:
        return _Thread(name, clock, time.clock_gettime_ns(clock))
    except OSError:
        return _Thread(name, None, 0)


def box_mark(frame: FrameType) -> str:
    """Behind `Hosted._run_steps`: the box that runs."""
    return f"{BOX}{frame.f_locals['self'].box}"


__all__ = ["Sampling", "box_mark"]
