"""Runs that lose what begins again from a base (availability.md, B1 to B4): images at other sites, or what producers have kept.

Most runs with modes are over before a base has moved: what is lost in them begins again from the first epoch, which has none of the ways in
which a base can be wrong. These have more rows, which come in small epochs and in order of their time, so that windows close; images are
made every few milliseconds; and sites die (`based_deaths`).
"""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import Any, Final

from evenflow.availability.mode import Mode
from evenflow.swarm.cases import Case
from evenflow.swarm.faults import BRIEF_US, DEATHS, Mix
from evenflow.swarm.mode_cases import is_moded, moded
from evenflow.world.sim.model import CostModel, DetectionModel, LinkModel

BASED: Final = 0.1
"""So many of the seeds without modes."""
IMAGES: Final = 0.6
"""So many of these have passive standby without a checkpoint location; the others have upstream backup."""
CALM: Final = 0.7
"""So many of these have nothing that goes on beside deaths: else a base is hardly ever there, since plans make it anew."""
ALIKE: Final = 0.7
"""So often all branches have images: then a site has producers and their consumers alone."""
ROWS: Final = 800
"""Most that a partition of the source has."""


def is_based(seed: int) -> bool:
    """It is one of these."""
    return not is_moded(seed) and Random(f"bases of seed {seed}").random() < BASED


def has_images(seed: int) -> bool:
    """If it is one of these, what a site has is in images at others."""
    return Random(f"images of seed {seed}").random() < IMAGES


def is_calm(seed: int) -> bool:
    """If it is one of these, sites die, and nothing else goes on."""
    return Random(f"calm of seed {seed}").random() < CALM


def based(seed: int) -> Case:
    """Branches of one source, as `moded` has them."""
    mode = Mode.PASSIVE if has_images(seed) else Mode.UPSTREAM
    return moded(Random(f"rows of seed {seed}"), ROWS, (mode,), "1 microsecond", ALIKE)


def lasting(random: Random, world: dict[str, Any]) -> dict[str, Any]:
    """Arguments of SimWorld with which bases move. world: those that are drawn."""
    options = replace(
        world["options"],
        linger_ms=0.5,
        epoch_rows=random.choice([10, 20, 50]),
        heartbeat_ms=random.choice([5.0, 20.0]),
        capture_max_ms=random.choice([3.0, 10.0, 30.0]),
        image_memory_bytes=random.choice([None, None, None, 20_000]),
    )
    link = LinkModel((10, random.choice([50, 500, 2_000])), 0, 500, 1_000.0, (0, random.choice([100, 5_000])))
    given = {
        "options": options,
        "read_rows": random.choice([5, 10, 20] if has_images(world["seed"]) else [3, 5]),
        "read_every_us": random.choice([(500, 2_000), (1_000, 4_000)]),
        "link": link,
        "cost": CostModel(),
        "detection": DetectionModel(patience=world["detection"].patience, removed_us=(500, 5_000)),
    }
    return given | ({"policy": "none"} if "policy" in world and is_calm(world["seed"]) else {})


def deaths(random: Random, mix: Mix, seed: int) -> Mix:
    """What goes wrong beside the deaths of `based_deaths`."""
    kinds = {} if is_calm(seed) else {kind: often for kind, often in mix.kinds.items() if kind not in DEATHS}
    until_us = random.choice([100_000, 250_000] if has_images(seed) else [250_000, 500_000])
    return replace(mix, kinds=kinds, until_us=until_us, longest_us=min(mix.longest_us, BRIEF_US))
