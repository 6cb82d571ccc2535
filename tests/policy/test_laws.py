"""What holds of every policy and any input: no proposal breaks a rule, equal input gives an equal proposal, and it can be written down."""

from __future__ import annotations

import pickle
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evenflow.policy.catalogue import POLICIES
from evenflow.policy.hosting import Hosting
from evenflow.policy.proposal import Memory, Parameters, Proposal
from evenflow.statistics.statistics import Statistics
from evenflow.statistics.window import SegmentWindow, SiteWindow
from tests.drawn import examples

pytestmark = pytest.mark.laws
SITES = range(5)
SEGMENTS = range(2)
PARTITIONS = range(5)
WINDOW_US = 100_000

hostings = st.builds(
    Hosting,
    replicas=st.dictionaries(
        st.tuples(st.sampled_from(SEGMENTS), st.sampled_from(PARTITIONS)),
        st.lists(st.sampled_from(SITES), min_size=1, max_size=3, unique=True).map(tuple),
    ),
    capacity=st.dictionaries(st.sampled_from(SITES), st.sampled_from((0.5, 1.0))),
    pinned=st.frozensets(st.tuples(st.sampled_from(SEGMENTS), st.sampled_from(PARTITIONS)), max_size=4),
    hosts=st.dictionaries(st.sampled_from(SITES), st.sampled_from("ab")),
    on_disk=st.frozensets(st.tuples(st.sampled_from(SITES), st.sampled_from(SEGMENTS), st.sampled_from(PARTITIONS)), max_size=4),
)


@st.composite
def rounds(draw: st.DrawFn) -> tuple[Statistics, Hosting]:
    """Mostly what the hosting says, but some sites are missing, some report what is not there, and some windows are empty."""
    hosting: Hosting = draw(hostings)
    windows = []
    for site in draw(st.lists(st.sampled_from(SITES), unique=True)):
        segments = []
        for segment in SEGMENTS:
            mine = {p for (s, p), sites in hosting.replicas.items() if s == segment and site in sites}
            mine |= set(draw(st.lists(st.sampled_from(PARTITIONS), max_size=1)))
            partitions = tuple(sorted(mine))
            count = len(partitions)
            rows = tuple(draw(st.lists(st.sampled_from((0, 1, 7, 300, 9000)), min_size=count, max_size=count)))
            state = tuple(draw(st.lists(st.sampled_from((0, 10, 10**6, 10**11)), min_size=count, max_size=count)))
            if partitions:
                segments.append(SegmentWindow(segment, "s", partitions, rows, state, draw(st.sampled_from((0, 1, 20_000, 60_000))), ()))
        length_us = draw(st.sampled_from((0, WINDOW_US, WINDOW_US)))
        busy_us = draw(st.integers(0, WINDOW_US))
        free = draw(st.sampled_from((None, 0, 10**7, -5)))
        windows.append(SiteWindow(site, 0, length_us, busy_us, free, 0, draw(st.sampled_from((0, 0, 10**7))), tuple(segments)))
    return Statistics.of(windows), hosting


def check(hosting: Hosting, proposal: Proposal) -> Hosting:
    """Carry the moves out, one after the other, and fail if one breaks a rule."""
    replicas = dict(hosting.replicas)
    seen = set()
    for move in proposal.moves:
        assert move.partitions and list(move.partitions) == sorted(set(move.partitions)) and move.reason
        assert move.target in hosting.capacity
        for partition in move.partitions:
            at = (move.segment, partition)
            sites = replicas[at]
            assert at not in hosting.pinned and at not in seen, "pinned, or twice in a round"
            assert move.source in sites and move.target not in sites, "not there, or two replicas would meet"
            others = {hosting.hosts[s] for s in sites if s != move.source and s in hosting.hosts}
            assert hosting.hosts.get(move.target) not in others or hosting.hosts.get(move.source) in others
            seen.add(at)
            replicas[at] = tuple(move.target if site == move.source else site for site in sites)
    assert proposal.next_delta_us > 0 and proposal.memory.delta_us == proposal.next_delta_us
    assert proposal.imbalance >= 1 - 1e-9 and proposal.text
    return Hosting(replicas, hosting.capacity, hosting.pinned, hosting.hosts, hosting.on_disk)


@pytest.mark.parametrize("name", POLICIES)
@settings(max_examples=examples(15, 200), deadline=None)
@given(data=st.data())
def test_no_proposal_breaks_a_rule_and_equal_input_gives_an_equal_proposal(name: str, data: Any) -> None:
    described = POLICIES[name]
    statistics, hosting = data.draw(rounds())
    memory = Memory()
    for _ in range(2):
        proposal = described.policy(statistics, hosting, described.parameters, memory)
        again = described.policy(pickle.loads(pickle.dumps(statistics)), pickle.loads(pickle.dumps(hosting)), described.parameters, memory)
        assert again == proposal
        hosting = check(hosting, proposal)
        memory = proposal.memory.moved(data.draw(st.sampled_from((0, 1000, 3_000_000))))
        statistics, _ = data.draw(rounds())  # about another hosting: all of it is stale


@pytest.mark.parametrize("name", ["evenflow", "hybrid", "utilization"])
@settings(max_examples=examples(15, 200), deadline=None)
@given(data=st.data())
def test_the_order_in_which_sites_report_does_not_matter(name: str, data: Any) -> None:
    statistics, hosting = data.draw(rounds())
    shuffled = Statistics(statistics.begin_us, statistics.end_us, tuple(data.draw(st.permutations(statistics.sites))))
    reordered = Hosting(dict(reversed(hosting.replicas.items())), hosting.capacity, hosting.pinned, hosting.hosts, hosting.on_disk)
    described = POLICIES[name]
    first = described.policy(statistics, hosting, described.parameters, Memory())
    assert described.policy(shuffled, reordered, described.parameters, Memory()).moves == first.moves


@settings(max_examples=examples(15, 200), deadline=None)
@given(data=st.data())
def test_time_is_moved_only_to_where_the_busiest_gets_no_busier(data: Any) -> None:
    statistics, hosting = data.draw(rounds())
    described = POLICIES["evenflow"]
    proposal = described.policy(statistics, hosting, described.parameters, Memory())
    if any(site.spilled_bytes or (site.free_bytes or 0) < 0 for site in statistics.sites):
        return  # memory goes first, and is moved to sites that are as busy
    before = [window.utilization for window in statistics.sites if window.end_us > window.begin_us]
    assert max((u for _, u in proposal.memory.expected), default=0) <= max(before, default=0) + 1e-9
    for parameters in (described.parameters, Parameters(th_imb=1.2, th_util=0.9)):
        for move in described.policy(statistics, hosting, parameters, Memory()).moves:
            window = {each.site: each.utilization for each in statistics.sites}
            assert window[move.source] > window[move.target]
