"""The table of rates that fit, FIT (BO 4.2): made in advance by everyone for what is behind it, looked up when there is too much.

A table has the points of a grid, `spread` apart in each dimension, that every site behind it can do, and what they are worth. A point
that cannot be done is mapped to the best one of the table below it. For that a running maximum goes along each axis once, which leaves at
every point of the grid which one that is; so a lookup is a search in each dimension, and nothing needs a tree.

Nodes merge their tables upstream. First the largest rates that fit go up (`limits`), so that all agree on one grid; then each node's
table has what its children's have and it can do itself. What a chain merges is then the table that one node with all constraints would
make.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from evenflow.errors import PolicyError
from evenflow.policy.shedding.linear import Linear
from evenflow.stream.arrays import Bools, Floats, Int32s

POINTS_MAX: Final = 2**16
DIMENSIONS_MAX: Final = 4
"""Beyond either a table is no help: the flow problem is solved instead."""


@dataclass(frozen=True, slots=True)
class Fit:
    """axes: per input, the rates of the grid, ascending from 0. fits: which points can be done, shape of the grid. worth: of each.

    best: flat index of the best point that fits and is nowhere above; the origin always is.
    """

    axes: tuple[Floats, ...]
    fits: Bools
    worth: Floats
    best: Int32s

    def lookup(self, points: Any) -> Floats:
        """The best points of the table below these, shape (n, d). Cost: d searches a point."""
        given = np.atleast_2d(np.asarray(points, np.float64))
        cell = tuple(np.searchsorted(axis, given[:, i] * (1 + 1e-12), "right") - 1 for i, axis in enumerate(self.axes))
        found = np.unravel_index(self.best[cell], self.fits.shape)
        return np.stack([axis[place] for axis, place in zip(self.axes, found)], axis=1)

    def __len__(self) -> int:
        return int(self.fits.sum())


def is_small(dimensions: int, epsilon: float) -> bool:
    """Whether a grid of so many inputs is small enough for a table."""
    return dimensions <= DIMENSIONS_MAX and (_steps(epsilon) + 1) ** dimensions <= POINTS_MAX


def _steps(epsilon: float) -> int:
    return int(np.ceil(1 / epsilon - 1e-9))


def axes_of(most: Floats, epsilon: float) -> tuple[Floats, ...]:
    """The grid for inputs of which `most` fit alone: points epsilon * m_i apart. Raises PolicyError if that is no grid, or too large a
    one."""
    if not 0 < epsilon < 1:
        raise PolicyError(f"shedding: epsilon is {epsilon!r}; it must be between 0 and 1, such as 0.05")
    if len(most) > DIMENSIONS_MAX:
        raise PolicyError(
            f"shedding: a table of {len(most)} inputs is too large (at most {DIMENSIONS_MAX}); solve the flow problem instead"
        )
    if not np.isfinite(most).all():
        raise PolicyError("shedding: an input that costs nothing has no place in a table; leave it out, it is never in the way")
    steps = _steps(epsilon)
    if not is_small(len(most), epsilon):
        raise PolicyError(f"shedding: a table of {steps + 1}^{len(most)} points is too large (at most {POINTS_MAX}); give a larger epsilon")
    return tuple(np.minimum(np.arange(steps + 1) * (epsilon * m), m) for m in most)


def table(linear: Linear, axes: Sequence[Floats]) -> Fit:
    """What this node alone can do, of the points of a grid."""
    load: Any = np.zeros((*(len(axis) for axis in axes), len(linear.limit)))
    worth: Any = np.zeros(tuple(len(axis) for axis in axes))
    for i, axis in enumerate(axes):
        along = [1] * len(axes)
        along[i] = len(axis)
        load = load + axis.reshape(*along, 1) * linear.load[:, i]
        worth = worth + axis.reshape(along) * linear.worth[i]
    return indexed(tuple(axes), (load <= linear.limit * (1 + 1e-12)).all(axis=-1), worth)


def indexed(axes: tuple[Floats, ...], fits: Bools, worth: Floats) -> Fit:
    """The table of these points, and for every point the best one below. Cost: d passes over the grid."""
    best = np.arange(fits.size, dtype=np.int32).reshape(fits.shape)
    score = np.where(fits, worth, -np.inf)
    for axis in range(fits.ndim):
        score, best = _running(score, best, axis)
    return Fit(axes, fits, worth, best)


def _running(score: Floats, best: Int32s, axis: int) -> tuple[Floats, Int32s]:
    """The largest so far along an axis, and where it was."""
    highest = np.maximum.accumulate(score, axis=axis)
    fresh = np.ones(score.shape, np.bool_)
    after = tuple(slice(1, None) if i == axis else slice(None) for i in range(score.ndim))
    before = tuple(slice(None, -1) if i == axis else slice(None) for i in range(score.ndim))
    fresh[after] = score[after] > highest[before]
    along = np.arange(score.shape[axis]).reshape([-1 if i == axis else 1 for i in range(score.ndim)])
    place = np.maximum.accumulate(np.where(fresh, along, 0), axis=axis)
    return highest, np.take_along_axis(best, place, axis=axis)


# ------------------------------------------------ from node to node


@dataclass(frozen=True, slots=True)
class Node:
    """A site, or several that feed one another, with its own constraints over its inputs. children: nodes that it feeds, and through
    what: shape (child's inputs, this one's inputs), rows into the child per row into this node."""

    own: Linear
    children: tuple[tuple[Node, Floats], ...] = ()


def limits(node: Node) -> Floats:
    """The largest rate of each of a node's inputs alone that it and all behind it can do."""
    most = node.own.most()
    for child, through in node.children:
        with np.errstate(divide="ignore", invalid="ignore"):
            allowed = np.where(through > 0, limits(child)[:, None] / through, np.inf).min(axis=0)
        most = np.minimum(most, allowed)
    return most


def merged(node: Node, axes: Sequence[Floats]) -> Fit:
    """The table of a node and of all behind it, over a grid of its inputs.

    A child whose inputs are the node's, one by one and scaled, has its table over the same grid, scaled; for one that mixes several of
    them its own constraints are asked at each point, which are all that its table says.
    """
    found = table(node.own, axes)
    fits, worth = found.fits, found.worth
    for child, through in node.children:
        below, mine = _below(child, through, axes)
        fits = fits & below
        worth = worth + mine
    return indexed(tuple(axes), fits, worth)


def _below(child: Node, through: Floats, axes: Sequence[Floats]) -> tuple[Bools, Floats]:
    """Which points of the parent's grid a child can do, and what they are worth there."""
    shape = tuple(len(axis) for axis in axes)
    used = [np.flatnonzero(row) for row in through]
    if all(len(each) == 1 for each in used) and len({int(each[0]) for each in used}) == len(used):
        order = [int(each[0]) for each in used]
        its = merged(child, [axes[i] * through[row, i] for row, i in enumerate(order)])
        # The table's axes are the child's inputs; the grid's are the parent's.
        back = sorted(range(len(order)), key=order.__getitem__)
        wide = [len(axes[i]) if i in order else 1 for i in range(len(axes))]
        fits, worth = (np.transpose(each, back).reshape(wide) for each in (its.fits, its.worth))
        return np.broadcast_to(fits, shape), np.broadcast_to(worth, shape)
    grid = np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1).reshape(-1, len(axes)) @ through.T
    fits, worth = child.own.fits(grid), grid @ child.own.worth
    for grandchild, further in child.children:
        fit, worthy = _at(grandchild, grid @ further.T)
        fits, worth = fits & fit, worth + worthy
    return fits.reshape(shape), worth.reshape(shape)


def _at(node: Node, points: Floats) -> tuple[Bools, Floats]:
    fits, worth = node.own.fits(points), points @ node.own.worth
    for child, through in node.children:
        fit, worthy = _at(child, points @ through.T)
        fits, worth = fits & fit, worth + worthy
    return fits, worth


__all__ = ["Fit", "Node", "axes_of", "indexed", "is_small", "limits", "merged", "table"]
