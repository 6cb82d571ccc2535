"""What samples of this process say: who computes, who waits, within which box, and that nothing stays as it was made for it."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from queue import SimpleQueue
from types import FrameType

from evenflow.statistics.profile import BOX, OTHERS, Profile
from evenflow.world import sampling
from evenflow.world.sampling import Sampling


class Running:
    """As what runs boxes: a frame of `run` stands for the box."""

    def __init__(self, box: str) -> None:
        self.box = box

    def run(self, work: Callable[[], None]) -> None:
        work()


def box_of(frame: FrameType) -> str:
    return f"{BOX}{frame.f_locals['self'].box}"


def hot() -> None:
    end = time.thread_time() + 0.001
    while time.thread_time() < end:
        pass


def cold(pause: threading.Event) -> None:
    pause.wait(0.004)


@contextmanager
def threads(*does: Callable[[], None]) -> Iterator[None]:
    over = threading.Event()

    def go_on(do: Callable[[], None]) -> None:
        while not over.is_set():
            do()

    running = [threading.Thread(target=go_on, args=(do,), name=f"test-{place}", daemon=True) for place, do in enumerate(does)]
    for thread in running:
        thread.start()
    try:
        yield
    finally:
        over.set()
        for thread in running:
            thread.join(10)


def sampled(seconds: float, inside: str | None = None) -> Profile:
    answers: SimpleQueue[Profile] = SimpleQueue()
    Sampling(3, seconds, answers.put, {Running.run.__code__: box_of}, inside=inside)
    return answers.get(timeout=30)


def test_cpu_is_where_a_thread_computes_also_if_it_mostly_waits() -> None:
    """Method: short bursts between waits, as a site's epochs are. Who waits gives the interpreter back, and is seen there most often."""
    pause, box = threading.Event(), Running("sessions")

    def bursts() -> None:
        box.run(hot)
        cold(pause)

    before = sys.getswitchinterval()
    for seconds in (0.8, 1.6, 3.2):  # On a busy machine a few samples say little.
        with threads(bursts):
            found = sampled(seconds)
        own = [stack for stack in found.stacks if stack.frames[0] == "thread test-0"]
        cpu, waited = sum(stack.cpu_us for stack in own), sum(stack.time_us for stack in own if stack.frames[-1].startswith("threading."))
        box_cpu, _ = found.by_box()["sessions"]
        if box_cpu > 0.7 * cpu and waited > 0.4 * found.seconds * 1e6:
            break
    assert sys.getswitchinterval() == before
    assert found.site == 3 and found.samples > 20 and cpu > 0
    assert waited > 0.4 * found.seconds * 1e6
    assert box_cpu > 0.7 * cpu
    assert all(
        stack.frames[-1].endswith("test_sampling.hot") for stack in own if f"{BOX}sessions" in stack.frames and stack.cpu_us > cpu / 4
    )
    assert found.own_us < 0.1 * found.seconds * 1e6


def test_only_what_is_inside_is_kept() -> None:
    with threads(lambda: Running("a").run(hot), lambda: Running("b").run(hot)):
        found = sampled(0.3, inside=f"{BOX}b")
    assert found.stacks and {stack.frames[0] for stack in found.stacks} == {f"{BOX}b"}


def test_many_different_stacks_are_bounded(monkeypatch) -> None:  # type: ignore[no-untyped-def]
    monkeypatch.setattr(sampling, "KINDS_MOST", 3)

    def deep(left: int) -> None:
        if left:
            deep(left - 1)
        else:
            hot()

    depth = [0]

    def deeper() -> None:
        depth[0] = (depth[0] + 1) % 400
        deep(depth[0])

    with threads(deeper):
        found = sampled(0.5)
    mine = [stack for stack in found.stacks if stack.frames[0] == "thread test-0"]
    assert len(mine) <= 4 and any(stack.frames[-1] == OTHERS for stack in mine)
    assert max(len(stack.frames) for stack in found.stacks) <= 130


def test_who_stops_it_is_told_nothing() -> None:
    answers: SimpleQueue[Profile] = SimpleQueue()
    sampling = Sampling(0, 60.0, answers.put, {})
    sampling.stop()
    sampling.join(10)
    assert answers.empty() and not any(thread.name == "evenflow-profile" for thread in threading.enumerate())
