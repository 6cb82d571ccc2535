"""Flows that several tests ask about."""

from __future__ import annotations

from evenflow.policy.shedding.linear import Linear
from evenflow.policy.shedding.network import LINEAR, Arc, FlowNetwork, Output, Source
from evenflow.stream.curve import Curve

DEFAULT = Curve(((0.0, 0.0), (0.25, 0.5), (1.0, 1.0)))


def figure_6() -> FlowNetwork:
    """Two queries over the sites A (0) and B (1)."""
    arcs = (("1", "a1"), ("2", "a2"), ("a1", "b1"), ("a2", "b2"), ("b1", "q1"), ("b2", "q2"))
    return FlowNetwork(
        {"1": Source(), "2": Source()},
        {"a1": {0: 1.0}, "a2": {0: 2.0}, "b1": {1: 3.0}, "b2": {1: 1.0}},
        tuple(Arc(f"{up}{down}", up, down) for up, down in arcs),
        {"q1": Output(per_row=True), "q2": Output(per_row=True)},
        {0: 1.0, 1: 1.0},
    )


def fork(*, loss: Curve = LINEAR, protected: bool = False, drops: str = "any", shares: tuple[float, ...] = (1.0,)) -> FlowNetwork:
    """A box that two outputs read behind boxes of their own: `cheap` weighs 1 and costs little, `dear` weighs 2 and costs much."""
    worth = (1.0,) * len(shares)
    return FlowNetwork(
        {"s": Source(shares)},
        {"first": {0: 1e-4}, "light": {1: 1e-4}, "heavy": {1: 1e-3}},
        (
            Arc("in", "s", "first"),
            Arc("to light", "first", "light"),
            Arc("to heavy", "first", "heavy", 0.5, drops),  # type: ignore[arg-type]
            Arc("light out", "light", "cheap"),
            Arc("heavy out", "heavy", "dear"),
        ),
        {"cheap": Output(1, loss, worth), "dear": Output(2, loss, worth, protected=protected)},
        {0: 1.0, 1: 1.0},
    )


def two_paths(ratio: float) -> Linear:
    """Two inputs, each through both of two sites; a row of the second is `ratio` times the work."""
    import numpy as np

    return Linear(("a", "b"), np.array([[1.0, ratio], [1.5, ratio / 2]]), np.array([1.0, 1.0]), np.array([1.0, 1.0]))
