"""How a request to start says that sources are cut: what is said goes to the dataflow, which judges it, and nothing else does."""

from __future__ import annotations

from typing import Any

import pytest

import evenflow as ef
from evenflow.errors import OptionError
from evenflow.world.spark.driver.control_port import _cut


def asked() -> ef.Dataflow:
    flow = ef.Dataflow("asked")
    flow.source(ef.sources.generator(rate=10), name="in").to(ef.sinks.discard())
    return flow


@pytest.mark.parametrize("given", [{"cut": "content", "width_ms": 0.0}, {"width_ms": 0.0}, {"mirrored": True}])
def test_a_width_of_nothing_is_said_and_refused(given: dict[str, Any]) -> None:
    with pytest.raises(OptionError):
        _cut(asked(), given)


def test_what_is_not_said_changes_nothing() -> None:
    flow = asked()
    assert _cut(flow, {"cut": None, "width_ms": None, "mirrored": False}) is flow
