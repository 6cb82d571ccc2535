"""User code that ends its process, on real executors: who dies of it, and what the run says."""

from __future__ import annotations

import os
from typing import Any

import pytest

import evenflow as ef
from evenflow.errors import PartitionsLost, UserCodeCrashed

pytestmark = [pytest.mark.spark, pytest.mark.timeout(180)]
SITES = 4
ROWS = 3_000
"""After so many rows of its key the user code ends the process."""


class Deadly(ef.Processor):
    """Counts the rows of each key; ends the process over one of them."""

    output = "n bigint"

    def __init__(self, key: int) -> None:
        self.key = key

    def open(self, store: Any) -> None:
        store.value("n", "bigint", default=0)

    def process(self, key: tuple[Any, ...], rows: Any, state: Any) -> Any:
        state.n += rows.num_rows
        if key[0] == self.key and state.n > ROWS:
            os._exit(7)
        return [(state.n,)]


def deadly(name: str, sink: Any) -> ef.Dataflow:
    flow = ef.Dataflow(name)
    flow.source(ef.sources.generator(rate=16_000, keys=4)).key_by("key").process(Deadly(2)).name("deadly").to(sink)
    return flow


@pytest.mark.conformance
def test_the_second_site_that_dies_of_a_row_ends_the_run_with_box_and_epoch(spark: Any) -> None:
    with ef.Engine(spark, sites=SITES, replicas=2) as engine:
        run = engine.start(deadly("deadly", ef.sinks.memory("deadly-pairs")))
        with pytest.raises(UserCodeCrashed) as caught:
            run.await_termination(60)
        error = caught.value
        assert error.box == "deadly" and error.epoch > 1 and error.partitions and len(set(error.sites)) == 2
        lost = {event["site"]: event["text"] for event in run.events() if event["kind"] == "site_lost"}
        died = {site for site, text in lost.items() if f"It was running user code: box deadly, epoch {error.epoch}" in text}
        assert died == set(error.sites), f"nobody else has died of it: {lost}"


@pytest.mark.conformance
def test_without_replicas_the_error_says_what_the_site_was_running(spark: Any) -> None:
    with ef.Engine(spark, sites=2) as engine:
        run = engine.start(deadly("deadly", ef.sinks.memory("deadly-alone")))
        with pytest.raises(PartitionsLost, match="It was running user code: box deadly, epoch "):
            run.await_termination(60)
