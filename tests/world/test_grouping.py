"""A region is started as its group says, or refused by the name of what cannot be alike in all regions."""

from __future__ import annotations

import pickle
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest

import evenflow as ef
from evenflow.errors import OptionError, QueryError
from evenflow.policy.catalogue import POLICIES
from evenflow.query.network import Network
from evenflow.query.planner import layout
from evenflow.site.options import FlowOptions
from evenflow.world.grouping import as_region, asked, check_region, group
from evenflow.world.spark.driver.options import EngineOptions
from evenflow.world.spark.driver.program import pack

BEGIN = "2026-11-23T08:00:00Z"


def planned(sites: int = 2, *, port: int = 4001, factor: int = 2, cut: Any = "content", sink: Any = None, **cut_options: Any) -> Any:
    flow = ef.Dataflow("traffic")
    rows = flow.source(ef.sources.generator(rate=1000), cut=cut, **cut_options).select("key", v=f"value * {factor}")
    rows.group_by("key").agg(n="sum(v)").to(sink if sink is not None else ef.sinks.stream(port), name="out")
    return layout(flow.network, sites=sites)


def made(*, sites: int = 2, begin: str = BEGIN, **of: Any) -> Any:
    return as_region(planned(sites, **of), group("traffic", begin), sites)[1].group


def test_regions_that_differ_in_addresses_only_are_of_one_group() -> None:
    assert made().digest == made(port=4002).digest


@pytest.mark.parametrize("other", [{"sites": 4}, {"begin": "2026-11-23T08:00:01Z"}, {"factor": 3}, {"width_ms": 50.0}])
def test_other_programs_shapes_and_cuts_are_other_groups(other: dict[str, Any]) -> None:
    assert made(**other).digest != made().digest


def test_sources_begin_with_the_group_and_not_with_the_region() -> None:
    region, of = as_region(planned(), group("traffic", BEGIN), 2)
    (source,) = region.sources.values()
    assert source.begin_us == of.group.origin_us == source.source.begin_us == 1_795_420_800 * 1_000_000


def test_begin_is_a_moment_in_several_ways_of_writing() -> None:
    moments = [BEGIN, "2026-11-23T09:00:00+01:00", datetime(2026, 11, 23, 8, tzinfo=UTC), 1_795_420_800]
    assert len({group("traffic", moment) for moment in moments}) == 1


@pytest.mark.parametrize("begin", ["2026-11-23T08:00:00", "soon", datetime(2026, 11, 23), -1, True, 2**60, None])
def test_a_begin_without_a_zone_or_sense_is_refused(begin: Any) -> None:
    with pytest.raises(OptionError, match="zone"):
        group("traffic", begin)


PART_OF_A_GROUP: list[tuple[dict[str, Any], str]] = [
    ({"group": "g"}, "group_begin is missing"), ({"group_begin": BEGIN}, "group is missing"), ({"group_place": 1}, "group is missing"),
    ({"group_peers": ["localhost:1"]}, "group is missing"), ({"group_ca": "ca.pem"}, "group is missing"),
    ({"group": "g", "group_begin": BEGIN, "group_sites": 0}, "sites is 0"),
    ({"group": "g", "group_begin": BEGIN, "group_place": "1"}, "place is '1'"),
]  # fmt: skip


@pytest.mark.parametrize(("given", "why"), PART_OF_A_GROUP)
def test_what_is_asked_of_a_group_is_whole_or_refused(given: dict[str, Any], why: str) -> None:
    with pytest.raises(OptionError, match=why):
        asked(given)


def test_what_is_asked_of_a_group_is_the_group_that_a_program_says() -> None:
    assert asked({}) is asked({"group": None, "group_place": 0, "group_peers": []}) is None
    given = {"group": "g", "group_begin": BEGIN, "group_sites": 4, "group_place": 2, "group_peers": ["localhost:1"]}
    assert asked(given) == group("g", BEGIN, 4, 2, peers=["localhost:1"])
    with pytest.raises(OptionError, match="--group_begin is missing"):
        asked({"group": "g"}, lambda option: f"--{option}")


@pytest.mark.parametrize(("name", "sites"), [("a b", None), ("", None), ("x", 0), ("x", True), ("x", "4")])
def test_names_and_numbers_of_sites_are_checked(name: str, sites: Any) -> None:
    with pytest.raises(OptionError):
        group(name, BEGIN, sites)


def test_sources_with_a_leader_are_refused() -> None:
    with pytest.raises(QueryError, match="cut='content'"):
        made(cut="leader")


@pytest.mark.parametrize("sink", [ef.sinks.parquet("/nowhere"), ef.sinks.spark(), ef.sinks.delta("/nowhere")])
def test_a_sink_that_cannot_compare_is_refused(sink: Any) -> None:
    with pytest.raises(QueryError, match="cannot compare"):
        made(sink=sink)


def test_two_sinks_on_one_table_are_refused_as_without_a_group() -> None:
    """A table has one chain of a group: each would take the other's epochs for its own."""

    def to(second: str) -> Any:
        flow = ef.Dataflow("traffic")
        rows = flow.source(ef.sources.generator(rate=1000), cut="content")
        rows.where("key > 3").to(ef.sinks.table("shop.db", "out"), name="high")
        rows.where("key < 2").to(ef.sinks.table("shop.db", second), name="low")
        return layout(flow.network, sites=2)

    as_region(to("other"), group("traffic", BEGIN), 2)
    with pytest.raises(QueryError, match="sinks 'high' and 'low' would both write into table 'out' of shop.db; .*give each its own place"):
        as_region(to("out"), group("traffic", BEGIN), 2)


def drawn(*, dealt: bool = False, table: bool = False) -> Network:
    flow = ef.Dataflow("traffic")
    rows = flow.source(ef.sources.generator(rate=1000), name="in")
    rows = rows.repartition() if dealt else rows
    if table:
        names = flow.table(lambda: pa.table({"key": [1], "name": ["one"]}), "names", key="key", refresh="1 minute")
        rows = rows.join(names, on="key")
    rows.to(ef.sinks.memory("out"), name="out")
    return flow.network


PLAIN: dict[str, Any] = {"url": None, "shedding": "off", "balance": "none"}


@pytest.mark.parametrize(
    ("other", "why"),
    [({"network": drawn(table=True)}, "table"), ({"shedding": "on"}, "leave out"),
     ({"network": drawn(dealt=True), "balance": "utilization"}, "dealt"), ({"network": drawn(dealt=True), "balance": "evenflow"}, "dealt")],
)  # fmt: skip
def test_what_a_region_would_decide_by_itself_is_refused(other: dict[str, Any], why: str) -> None:
    for network in (drawn(), drawn(dealt=True)):
        check_region(group("traffic", BEGIN), network, **PLAIN)
    check_region(group("traffic", BEGIN), drawn(), **{**PLAIN, "balance": "evenflow"})
    with pytest.raises(OptionError, match=why):
        check_region(group("traffic", BEGIN), **{"network": drawn(), **PLAIN, **other})


def test_the_refused_policies_are_ones_that_an_engine_can_have() -> None:
    assert {"utilization", "evenflow"} <= POLICIES.keys() and "river" not in POLICIES


def test_sites_know_which_sinks_want_marks() -> None:
    """A site has no sink: what it asks of one must have come along."""
    for sink, marked in ((ef.sinks.stream(4001), True), (ef.sinks.memory(), False)):
        sent, _ = pickle.loads(pack(planned(sink=sink), FlowOptions()))
        assert (sent.sinks["out"].where, sent.sinks["out"].marked) == ("driver", marked)


@pytest.mark.parametrize("way", ["hedge", "race"])
def test_ways_of_feeding_that_are_not_there_are_refused_with_what_masks_stalls(way: str) -> None:
    with pytest.raises(OptionError, match=f"feeding='{way}' is not there.*replicas=3"):
        EngineOptions(feeding=way)
    assert EngineOptions(feeding="own") == EngineOptions()
