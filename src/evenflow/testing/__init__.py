"""Tests of dataflows, in milliseconds and without Spark: `evenflow.testing`.

    from evenflow.testing import run, simulate

    def test_bytes_by_source():
        result = run(flow, {"packets": [("a", 10, "2026-01-01 10:00:01"), ("a", 5, "2026-01-01 10:00:02")]})
        assert result.rows() == [{"src": "a", "bytes": 15}]

The dataflow is the one that production runs. What its sources would read is given by the test, what its sinks would store is kept for it,
and everything between is the real thing under a virtual clock, the protocol with its sites, exchange, replicas, journal and checkpoints
included. A source that looks around when it is described, as `sources.kafka` does, is replaced by `source(schema)` where the dataflow is
built. So a test may also cut its input into epochs, let time pass, kill sites, or lose everything, and look at what comes out.

What lives here: the description of rows that a test gives, and the simulation as a test sees it. It is built on the
simulator (`world.sim`), and knows neither Spark nor any test framework.
"""

from __future__ import annotations

from evenflow.testing.feed import source
from evenflow.testing.simulation import Simulation, run, simulate

__all__ = ["Simulation", "run", "simulate", "source"]
