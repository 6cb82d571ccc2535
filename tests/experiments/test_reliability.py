"""The lives of clusters against what can be calculated, and the verdict on them."""

from __future__ import annotations

import numpy as np
import pytest

from evenflow.experiments.harness.experiment import Setting
from evenflow.experiments.papers import reliability
from evenflow.experiments.papers.reliability import MTTF_H, SCHEMES, SITES, hours_to_loss, partners_in_cluster_pairs, partners_in_pairs


def fatal_pairs(partners: np.ndarray) -> set[frozenset[int]]:
    return {frozenset((site, int(other))) for site, others in enumerate(partners) for other in others}


@pytest.mark.parametrize("sites", SITES)
def test_the_engines_placements_have_the_fatal_pairs_of_the_law(sites: int) -> None:
    for name, partners in (
        ("pairs_mirrored", partners_in_pairs(sites, "mirrored")),
        ("pairs_chained", partners_in_pairs(sites, "chained")),
        ("cluster_pairs", partners_in_cluster_pairs(sites)),
    ):
        law = SCHEMES[name].fatal_pairs
        assert law is not None and len(fatal_pairs(partners)) == law(sites), name


def test_a_cluster_without_replicas_lasts_until_the_first_failure() -> None:
    hours = hours_to_loss(10, None, 50_000, np.random.default_rng(1))
    assert hours.mean() == pytest.approx(MTTF_H / 10, rel=0.02)


def test_a_pair_lasts_as_long_as_markov_says(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two machines with a repair so slow that the first-order law is 40% off: cycles of 1/(2a), each fatal with chance 1 - exp(-a R)."""
    repair = MTTF_H / 2
    monkeypatch.setattr(reliability, "MTTR_H", repair)
    fatal = 1 - np.exp(-0.5)
    # A cycle that is not fatal ends when the repair does; one that is ends at the second failure, somewhere inside the repair.
    inside = MTTF_H - repair * (1 - fatal) / fatal
    cycles = 1 / fatal
    exact = cycles * MTTF_H / 2 + (cycles - 1) * repair + inside
    hours = hours_to_loss(2, np.array([[1], [0]]), 50_000, np.random.default_rng(2))
    assert hours.mean() == pytest.approx(exact, rel=0.02)


@pytest.mark.conformance
def test_the_same_seed_gives_the_same_figures_and_the_law_holds() -> None:
    first, second = (reliability.measure(Setting("sim", True, lambda text: None)) for _ in range(2))
    assert first.measured == second.measured
    assert all(bound.holds(first.measured[name]) for name, bound in first.target.items())
    assert set(first.paper) <= set(first.measured)


def test_pairs_that_fell_with_the_square_would_not_hold() -> None:
    """The verdict can say no: mean times of cluster pairs in the place of pairs."""
    laws = {name: tuple(scheme.law(n) for n in SITES) for name, scheme in SCHEMES.items()}
    target = reliability.targets(quick=False)
    right = reliability.figures(SITES, laws)
    wrong = reliability.figures(SITES, {**laws, "pairs_mirrored": laws["cluster_pairs"]})
    assert all(bound.holds(right[name]) for name, bound in target.items())
    assert not target["exponent_pairs_mirrored"].holds(wrong["exponent_pairs_mirrored"])
