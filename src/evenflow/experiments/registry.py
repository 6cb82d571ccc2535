"""The experiments that can be run. One that cannot run yet is not here."""

from __future__ import annotations

from typing import Final

from evenflow.experiments import reliability
from evenflow.experiments.experiment import Experiment

EXPERIMENTS: Final[dict[str, Experiment]] = {experiment.name: experiment for experiment in (reliability.EXPERIMENT,)}
