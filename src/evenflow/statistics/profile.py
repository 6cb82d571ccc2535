"""Where a site's time goes: sampled stacks, folded, so that what is often seen is counted and not listed.

A stack is the names of what was called, from the outside in: the thread, the engine's functions, `box NAME` where a box's code begins, and
what that calls. Each has two values. CPU: what its thread has used since it was last looked at. Time: how long it was seen there, also
while it waited. CPU of a thread that was just seen to wait goes to what it is next seen at: it had worked in between.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

from evenflow.errors import OperationRefused
from evenflow.statistics.flame import Bar, to_svg, tree_of

Measure = Literal["cpu", "time"]

LONGEST_S: Final = 60.0
"""A site is sampled this long at most."""
STACKS_KEPT: Final = 1_000
"""Of a profile. The rest is summed up by thread."""
DEEPEST: Final = 120
LONGEST_NAME: Final = 160
BOX: Final = "box "
"""What the name of a frame begins with, where a box's code begins."""
_FOLDED: Final = str.maketrans(";\n", ", ")
"""In names, for what parts frames and stacks in folded ones."""
OTHERS: Final = "(seldom)"
ELSEWHERE: Final = "(other threads)"
"""Of native code: what the process has used and no thread of Python."""


@dataclass(frozen=True, slots=True)
class Stack:
    """frames: from the outside in."""

    frames: tuple[str, ...]
    cpu_us: int
    time_us: int

    def value(self, measure: Measure) -> int:
        return self.cpu_us if measure == "cpu" else self.time_us


@dataclass(frozen=True, slots=True)
class Profile:
    """Of one site. seconds: sampled for so long. samples: looks. cpu_us: of the process meanwhile. own_us: CPU of looking, which is in it.
    stacks: those with most CPU, then most time, first."""

    site: int
    seconds: float
    samples: int
    cpu_us: int
    own_us: int
    stacks: tuple[Stack, ...]

    def to_json(self) -> dict[str, Any]:
        """Every name once: `stacks` says which by their places in `frames`."""
        places: dict[str, int] = {}
        stacks = [
            {"frames": [places.setdefault(name, len(places)) for name in stack.frames], "cpu_us": stack.cpu_us, "time_us": stack.time_us}
            for stack in self.stacks
        ]
        return {
            "site": self.site, "seconds": self.seconds, "samples": self.samples, "cpu_us": self.cpu_us, "own_us": self.own_us,
            "boxes": [{"box": box, "cpu_us": cpu_us, "time_us": time_us} for box, (cpu_us, time_us) in self.by_box().items()],
            "frames": list(places), "stacks": stacks,
        }  # fmt: skip

    @staticmethod
    def from_json(told: Mapping[str, Any]) -> Profile:
        """Inverse of `to_json`. Raises KeyError, TypeError, ValueError or IndexError for what it did not make."""
        names = [str(name) for name in told["frames"]]
        stacks = tuple(
            Stack(tuple(names[place] for place in each["frames"]), int(each["cpu_us"]), int(each["time_us"])) for each in told["stacks"]
        )
        site, samples, cpu_us, own_us = (int(told[name]) for name in ("site", "samples", "cpu_us", "own_us"))
        return Profile(site, float(told["seconds"]), samples, cpu_us, own_us, stacks)

    def folded(self, measure: Measure = "cpu") -> str:
        """A line per stack, its frames by semicolons and its microseconds, as flame graph tools read them."""
        lines = [(";".join(name.translate(_FOLDED) for name in stack.frames), stack.value(measure)) for stack in self.stacks]
        return "".join(f"{frames} {value}\n" for frames, value in lines if value)

    def by_box(self) -> dict[str, tuple[int, int]]:
        """(CPU, time) in microseconds within each box's code, most CPU first."""
        found: dict[str, tuple[int, int]] = {}
        for stack in self.stacks:
            box = box_of(stack.frames)
            if box is not None:
                cpu_us, time_us = found.get(box, (0, 0))
                found[box] = cpu_us + stack.cpu_us, time_us + stack.time_us
        return dict(sorted(found.items(), key=lambda each: (-each[1][0], -each[1][1], each[0])))

    def by_function(self, measure: Measure = "cpu") -> dict[str, tuple[int, int]]:
        """(by itself, with what it calls) in microseconds of each frame's name, most by itself first."""
        alone, whole = Counter[str](), Counter[str]()
        for stack in self.stacks:
            alone[stack.frames[-1]] += stack.value(measure)
            for name in set(stack.frames):
                whole[name] += stack.value(measure)
        return {name: (alone[name], total) for name, total in sorted(whole.items(), key=lambda each: (-alone[each[0]], -each[1], each[0]))}

    def tree(self, measure: Measure = "cpu") -> Bar:
        """All stacks as one tree, under a bar for the site."""
        return tree_of(f"site {self.site}", [(stack.frames, stack.value(measure)) for stack in self.stacks])

    def to_svg(self, measure: Measure = "cpu") -> str:
        """The flame graph as a picture."""
        unit = "CPU" if measure == "cpu" else "time, waiting included"
        title = f"Site {self.site}: {unit}, {self.seconds:.1f} s, {self.samples:,} samples, {self.cpu_us / 1e6:.2f} s of CPU"
        return to_svg(self.tree(measure), title)

    def _repr_svg_(self) -> str:
        return self.to_svg()


def box_of(frames: Sequence[str]) -> str | None:
    """The innermost box whose code this is within."""
    return next((name.removeprefix(BOX) for name in reversed(frames) if name.startswith(BOX)), None)


def check_seconds(seconds: float) -> None:
    """Raises OperationRefused."""
    if not 0 < seconds <= LONGEST_S:
        raise OperationRefused(f"a site is sampled for more than 0 and at most {LONGEST_S:g} seconds, not for {seconds:g}")


def bounded(stacks: Iterable[Stack], most: int = STACKS_KEPT) -> tuple[Stack, ...]:
    """The `most` with most CPU, then most time; what is left by its outermost frame, so that no sum changes."""
    ranked = sorted(stacks, key=lambda stack: (-stack.cpu_us, -stack.time_us, stack.frames))
    kept, rest = ranked[:most], ranked[most:]
    left: dict[str, tuple[int, int]] = {}
    for stack in rest:
        cpu_us, time_us = left.get(stack.frames[0], (0, 0))
        left[stack.frames[0]] = cpu_us + stack.cpu_us, time_us + stack.time_us
    return (*kept, *(Stack((root, OTHERS), *sums) for root, sums in sorted(left.items())))


def short(name: str) -> str:
    """A name of bounded length."""
    return name if len(name) <= LONGEST_NAME else f"{name[: LONGEST_NAME - 1]}…"


__all__ = ["BOX", "DEEPEST", "ELSEWHERE", "OTHERS", "Measure", "Profile", "Stack", "bounded", "box_of", "check_seconds", "short"]
