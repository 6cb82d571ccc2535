"""Plans in advance: what every lookup keeps, how good it is, and that tables merge to what one node would make."""

from __future__ import annotations

import subprocess
import sys
from itertools import product

import numpy as np
import pytest

from evenflow.errors import PolicyError
from evenflow.policy.shedding.fill import filled
from evenflow.policy.shedding.fit import Node, axes_of, limits, merged, table
from evenflow.policy.shedding.linear import Linear, of
from evenflow.policy.shedding.regions import Solver
from tests.policy.shedding.flows import figure_6, two_paths

EPSILON = 0.1


def points(top: np.ndarray, count: int = 60) -> np.ndarray:
    return np.random.default_rng(7).uniform(0, 1, (count, len(top))) * top


def test_the_linear_functions_of_a_flow() -> None:
    found = of(figure_6())
    assert found.load.tolist() == [[1, 2], [3, 1]] and found.worth.tolist() == [1, 1] and found.limit.tolist() == [1, 1]
    assert found.best(np.array([1.0, 1.0])) == pytest.approx([0.2, 0.4])


@pytest.mark.parametrize("dimensions", [1, 2, 3])
def test_a_lookup_is_the_best_point_of_the_table_below(dimensions: int) -> None:
    rng = np.random.default_rng(dimensions)
    linear = Linear(tuple("abc"[:dimensions]), rng.uniform(0.2, 1, (3, dimensions)), np.ones(3), rng.uniform(0.5, 2, dimensions))
    fit = table(linear, axes_of(linear.most(), EPSILON))
    grid = np.array(list(product(*fit.axes)))
    fitting = grid[linear.fits(grid)]
    for point in points(2 * linear.most(), 40):
        found = fit.lookup(point)[0]
        below = fitting[(fitting <= point + 1e-12).all(axis=1)]
        assert linear.fits(found[None])[0] and (found <= point + 1e-12).all()
        assert found @ linear.worth == pytest.approx((below @ linear.worth).max())


@pytest.mark.parametrize("ratio", [1, 4])
def test_what_is_filled_fits_and_is_near_the_best(ratio: float) -> None:
    linear = two_paths(ratio)
    fit = table(linear, axes_of(linear.most(), EPSILON))
    offered = points(2 * linear.most())
    found = filled(linear, fit.lookup(offered), offered)
    assert linear.fits(found).all() and (found <= offered + 1e-12).all()
    best = np.array([linear.best(point) for point in offered]) @ linear.worth
    assert (found @ linear.worth >= (1 - EPSILON) * best - 1e-12).all()


@pytest.mark.parametrize("ratio", [1, 4])
def test_a_region_is_within_epsilon_of_the_best(ratio: float) -> None:
    linear = two_paths(ratio)
    solver = Solver(linear, 2 * linear.most())
    solver.divide_all(EPSILON)
    for point in points(solver.top, 40):
        found = solver.lookup(point)
        assert linear.fits(found[None])[0] and (found <= point + 1e-12).all()
        assert found @ linear.worth >= (1 - EPSILON) * (linear.best(point) @ linear.worth) - 1e-9


def test_who_knows_the_workload_asks_the_solver_less_often() -> None:
    linear = two_paths(2)
    top = 2 * linear.most()

    def likely(low: np.ndarray, high: np.ndarray) -> float:
        return float(np.prod(np.exp(-4 * low / top) - np.exp(-4 * high / top)) / (1 - np.exp(-4)) ** 2)

    plain, weighed = Solver(linear, top), Solver(linear, top)
    plain.divide_all(EPSILON)
    weighed.divide_likely(plain.expected(likely), likely)
    assert weighed.expected(likely) <= plain.expected(likely) + 1e-12 and weighed.asked < plain.asked


def chain(loads: list[list[float]], through: list[float]) -> Node:
    """Sites in a row: cost of each input's row at each site, and how many rows it passes on of each."""
    scale, node = np.diag(through), None
    for cost in reversed(loads):
        own = Linear(("a", "b"), np.array([cost]), np.ones(1), np.zeros(2) if node else np.ones(2))
        node = Node(own, ((node, scale),) if node else ())
    assert node is not None
    return node


def test_a_merged_chain_is_what_one_node_with_all_constraints_makes() -> None:
    loads, through = [[1.0, 2.0], [3.0, 1.0], [1.0, 1.5]], [0.5, 0.8]
    node = chain(loads, through)
    behind = np.diag(through)
    whole = Linear(
        ("a", "b"), np.array([loads[0], loads[1] @ behind, loads[2] @ behind @ behind]), np.ones(3), np.ones(2) @ behind @ behind
    )
    assert limits(node) == pytest.approx(whole.most())
    axes = axes_of(limits(node), 0.05)
    one, several = table(whole, axes), merged(node, axes)
    assert (one.fits == several.fits).all() and one.worth == pytest.approx(several.worth)
    offered = points(2 * whole.most())
    assert one.lookup(offered) @ whole.worth == pytest.approx(several.lookup(offered) @ whole.worth)


def test_children_that_take_one_input_each_and_one_that_takes_both() -> None:
    first = Node(Linear(("a",), np.array([[3.0]]), np.ones(1), np.ones(1)))
    both = Node(Linear(("ab",), np.array([[1.0]]), np.ones(1), np.ones(1)))
    root = Node(
        Linear(("a", "b"), np.array([[1.0, 1.0]]), np.ones(1), np.zeros(2)),
        ((first, np.array([[1.0, 0.0]])), (both, np.array([[0.5, 2.0]]))),
    )
    axes = axes_of(limits(root), 0.05)
    whole = Linear(("a", "b"), np.array([[1.0, 1.0], [3.0, 0.0], [0.5, 2.0]]), np.ones(3), np.array([1.5, 2.0]))
    assert limits(root) == pytest.approx(whole.most())
    one, several = table(whole, axes), merged(root, axes)
    assert (one.fits == several.fits).all() and one.worth == pytest.approx(several.worth)


def test_a_table_that_cannot_be() -> None:
    with pytest.raises(PolicyError, match="between 0 and 1"):
        axes_of(np.ones(2), 0)
    with pytest.raises(PolicyError, match="5 inputs is too large"):
        axes_of(np.ones(5), 0.5)
    with pytest.raises(PolicyError, match=r"101\^3 points"):
        axes_of(np.ones(3), 0.01)
    with pytest.raises(PolicyError, match="costs nothing"):
        axes_of(np.array([1.0, np.inf]), 0.1)


def test_a_table_is_made_and_read_without_the_solver() -> None:
    """A site and a driver that shed nothing never import it."""
    asked = (
        "import sys; import evenflow, evenflow.world.spark.driver.engine, evenflow.world.spark.executor.site_task; "
        "from tests.policy.shedding.flows import two_paths; from evenflow.policy.shedding.fit import axes_of, table; "
        "linear = two_paths(2); table(linear, axes_of(linear.most(), 0.1)).lookup([[1, 1]]); print('highspy' in sys.modules)"
    )
    found = subprocess.run([sys.executable, "-c", asked], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "False"


def test_what_costs_nothing_where_there_is_nothing_is_free() -> None:
    found = Linear(("a", "b"), np.array([[0.0, 1.0]]), np.array([0.0]), np.ones(2)).most()
    assert found.tolist() == [np.inf, 0]
