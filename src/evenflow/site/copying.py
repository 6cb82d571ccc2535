"""The life of a copy at its target, as an enum, and how it follows from facts (protocol C1-C4).

A plan begins a copy. Its source owes it the state as of the epoch before that plan, and has no more to do with it when that is taken. Its
target hosts a cohort for it, which becomes part of the site's own one in the end. If the copy is a move, the site that it replaces gives
its replica up when the membership says that the target is live.

Facts in, stage out. This file knows no cohort, no state and no time; `arriving.py` knows the facts, and acts on the stages.
"""

from __future__ import annotations

from enum import Enum
from typing import Final


class Stage(Enum):
    """How far a copy is at its target."""

    TO_COME = "The plan that begins it does not act here yet; its state is kept if that is faster."
    AWAITED = "Its cohort is here, is fed, and cannot run before its state comes."
    INSTALLING = "Its state is here and is being taken in, a piece at a turn."
    BEHIND = "Its cohort runs, and is further behind the others than the site may say."
    LEVEL = "The site has said that it is level; the coordinator has not declared it live."
    LIVE = "The coordinator has declared it live; it joins the site's own cohort where both have finished the same epoch."
    OVER = "It has joined the site's own cohort, has moved on, or was dropped: nothing here is of this copy any more."


LIFE: Final = tuple(Stage)
"""The stages in the order in which a copy goes through them. It may end at any; only a state that was corrupt is awaited again."""


def stage_of(*, planned: bool, housed: bool, come: bool, installed: bool, reported: bool, joining: bool) -> Stage:
    """How far a copy is at its target.

    planned: the plan that begins it is known here. housed: a cohort here is for it. come: its state is here and not all taken in.
    installed: the cohort has all of its state. reported: the site has said that the copy is level. joining: the newest membership says
    that it does not count yet.
    """
    if not housed:
        return Stage.TO_COME if joining or not planned else Stage.OVER
    assert installed or not reported, "a copy without its state cannot be level"
    assert not (installed and come), "state is taken in once"
    if not installed:
        return Stage.INSTALLING if come else Stage.AWAITED
    if not reported:
        return Stage.BEHIND
    return Stage.LEVEL if joining else Stage.LIVE


def may_follow(before: Stage, after: Stage) -> bool:
    """Whether a copy that was in one stage can be in the other some time later."""
    return LIFE.index(after) >= LIFE.index(before) or (before, after) == (Stage.INSTALLING, Stage.AWAITED)
