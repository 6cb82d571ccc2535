"""A swarm of seeded runs: each seed draws a dataflow, a topology, a load and what goes wrong; `evenflow swarm` runs more of them.

`make conformance` runs fresh seeds, EVENFLOW_SEEDS=N so many. A failing seed is in the message, and `evenflow swarm --seeds N..N+1` tells
its story.
"""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Sequence

import pytest

from evenflow.cli.app import main
from evenflow.state import folding
from evenflow.swarm.amnesia_mutations import WORD
from evenflow.swarm.draw import draw
from evenflow.swarm.durability_mutations import DURABILITY
from evenflow.swarm.generations import losses
from evenflow.swarm.mutations import MUTATIONS, Mutation, find, planted
from evenflow.swarm.reach import UNREACHABLE, rows
from evenflow.swarm.run import run_seed
from evenflow.swarm.search import Findings, plant_all, search
from evenflow.swarm.seldom_mutations import SELDOM
from evenflow.swarm.showing import able, traits
from evenflow.swarm.version_mutations import VERSIONS
from tests.drawn import one_in

pytestmark = pytest.mark.swarm
DEAR = pytest.mark.conformance

FIXED = (*range(70), *range(105, 110), 128)
"""The first ones, some that lose a checkpoint's object, which is rare, and one in which a plan leaves rows out."""
FEW = (5, 7, 11, 12, 14, 20, 24, 25, 27, 33, 34, 38, 41, 48, 52, 58, 59, 61, 64, 65, 128)
"""Of these, so few that what all of them fire is fired, most of it by two; they take a sixth of the time."""
WITH_MODES = (3, 5, 15, 25, 41, 1011, 1017)
"""Of these boxes have modes of availability; the others are run as if none had."""
FOUND = {
    700_659: "The journal's last word comes after its driver has died.",
    3_001_461: "The same, while another one stands by.",
    800_208: "The store answers nobody while the last generation reads its checkpoint.",
    3_000_039: "Rows that nobody else has look cut off at three reads, in a store that shows parts: the next driver reads them.",
    1_000_328: "What found refuge goes home to a site that has become a spare meanwhile.",
    5_003_151: "Rows that are under way when a run is drained come behind the last watermark.",
    5_002_930: "Who stands by learns of a slow store by a look that was under way when the driver died.",
    7_100_147: "Of two replicas one is silent, and links of newcomers with the other one come and go.",
    5_003_784: "A leader dies with rows that nobody else has, and the run is drained without them.",
    8_001_218: "A copy reads what is behind, beside a partition that has ended: epochs came behind the last one.",
    8_002_409: "A box that is asked of an epoch without rows is not called.",
    8_002_599: "Who has finished dies when all faults are over, and other sources go on.",
    5_001_931: "What a site says by the driver waits before a cut, until there has been a link again and it is lost.",
    11_022_799: "A sink has a row of an epoch that is cut again without it: its source keeps none, and everything was lost.",
    11_023_775: "A replica leaves while it works, and the plan of its epoch is forgotten before it has done.",
    11_027_620: "A copy catches up while its site has lost the connection with one that is further ahead than it was heard to be.",
    11_025_542: "A source that is cut by content has lost its last rows: what was given out before is not made of what is left.",
    9_142_586: "Who has done a partition's last epoch after others did it dies: what it lets in is in all the same.",
    11_040_906: "A site hears late that a copy was dropped, and keeps rows for it beyond the window.",
    11_026_843: "A site whose disk broke, and that nobody could do without then, dies no more when all faults are over.",
    11_045_383: "A site begins with an epoch while it is slow: that takes longer than the fault.",
}
"""What seeds have found, and what it was."""
FOUND_WITH_MODES = {
    9_142_568: "All that have read a source are lost, and what they had sent was beyond all that the driver had seen.",
    9_142_794: "A plan divides state, and the next one leaves out replicas of it; they are copied back to where they were.",
    9_140_941: "With upstream backup a site is lost soon after a restart: what its windows had before is in the checkpoint alone.",
    9_143_658: "A source in pairs is behind what amnesia has read as empty: plans that govern its epochs are still needed.",
    9_145_742: "A region lies about an epoch, and is gone before any other has made it.",
    9_144_937: "A change of modes takes a replica away, which finishes what came before it.",
    9_270_322: "A disk loses state that one site has alone, with amnesia.",
    9_341_379: "A run is drained while a partition of a source moves, whose former leader has rows that no epoch has.",
    9_340_865: "A region far away comes back, and each of fifteen epochs is asked of it a round trip after the last.",
    9_320_573: "A disk loses state that one site has alone, and that is in an image.",
    9_320_845: "What has begun again from its image lives where that is, and no death of it is promised to cost nothing.",
    9_340_688: "Another version is wanted while something begins again from its image.",
    9_340_731: "What begins again from its image is captured again before it has come to where its consumers were.",
    9_341_638: "A site joins behind another one that had said hello after it.",
    11_020_381: "What begins again beside others of its partitions holds less than these, and its producer is captured ahead of it.",
    11_021_980: "A region that began near the present has a copy of its source, which reads from there again.",
    11_027_253: "A consumer that has begun again lives before its producer does, whose image has what it still wants.",
    11_028_812: "A partition moves, and its old site's image is pasted once more when that of the new one is there.",
    9_141_730: "The link of a copy is lost that is made of rows upstream, and has no source.",
    11_045_197: "A disk breaks, and before it is read what producers keep for its site no longer goes back to where that would begin.",
    770_013: "A run is stopped while a site tells that it has read frames as empty: nobody counts that any more.",
    11_051_909: "A source that is cut by content has lost its end, behind an epoch that is whole, when a restart reads it again.",
    11_063_290: "A partition of a source that is cut by content moves, with amnesia, to who gives rows to a sink.",
    11_063_950: "Of two consumers at a site one says that it lacks an earlier epoch than the other did: the loss is one greater.",
    11_065_458: "A site joins while a plan that leaves rows out is proposed: it is told the one with which the generation has begun.",
    11_067_825: "A run is drained before its sites are there, and ends without having written anything; another driver has come meanwhile.",
    11_072_190: "A site dies that has promised a change to pairs, which is committed before its death is seen; another is wanted since.",
    11_072_421: "Sites come all the time, so that copies are always under way: there is no plan meanwhile, though all would fit.",
    11_070_287: "A capture that was given up comes late, and is taken for the one that was made then, of the same epoch, in another form.",
    11_068_351: "A run is drained, which closes its last windows, and hears of another driver before it has ended.",
    11_075_730: "A site that is behind loses a partition to a move before it has divided that partition's state.",
    11_081_572: "A sink's copy becomes live far behind the site that it is at, which has granted more by then.",
    11_203_339: "A run is lost when it is drained and its sources have ended; rows that they have besides are read again.",
    11_112_864: "A source that is cut by content begins anew, and is copied before it has closed an epoch.",
}
"""The same of those whose boxes have modes of availability, and of regions."""
OFTEN = frozenset({5_003_151, 8_002_409, 9_142_794, 9_144_937, 9_141_730})
"""Of these, those of which no named scenario says the same in less time, and that do not take long."""
FRESH = int(os.environ.get("EVENFLOW_SEEDS", "100"))
LOST = 60
"""Of those that are lost, so many are run with small parts."""
FIRST_FRESH = int(time.time()) % 1_000_000 * 1_000
PLANTED = (*MUTATIONS, *SELDOM, *VERSIONS, *DURABILITY)

RARE = re.compile(
    "V3|V4|PlanAborted|MembershipChanged otherwise|TransferFailed|SiteReady otherwise|CopyFailed|PlanMissing|V1 SiteLost|LoadFailed"
    "|B1|B2|B3|B4|M2|K6|Waited|J5|LastWithdrawn|P[1-6] "
    "|PartFailed|DiskLost|GiveUp|has_failed|dies_at_the_end|(WorkDone|Spilled|SpillFailed|Loaded|CopyLive|CheckpointRequested) otherwise"
)
"""They need not fire in so few seeds."""
REACH = 1_500
"""Seeds within which every row fires that some seed can fire; it is looked no further than until all have."""
FAULTS = {
    "kill", "kill_two", "kill_leader", "hang", "slow", "drop_link", "cut_pair", "isolate", "cut_control", "pause_driver", "block_sinks",
    "change_plan", "join", "doom", "delay_news",
}  # fmt: skip
HAPPENINGS = {
    "round",
    "move_done",
    "move_dropped",
    "site_joined",
    "site_emptied",
    "site_left",
    "copy_dropped",
    "recovery_waits",
    "shedding",
}
LONG = ("resume off by one", "watermarks are not merged", "a round moves what is pinned", "the run ends before its journal")
"""Bugs that many seeds have to be run for."""
OF_JOURNALS = ("what was told is durable", "a publishing step goes ahead", "plans are not journalled")
JOURNALLED = 5
"""They are looked for from this seed on: those before it take half of the time and show none of them."""


def complaints(findings: Findings) -> list[str]:
    return [f"seed {verdict.seed} ({verdict.about}): {verdict.failure}" for verdict in findings.failed]


@pytest.mark.timeout(900)
@pytest.mark.parametrize("seeds", [FEW, pytest.param((*FIXED,), marks=pytest.mark.conformance)], ids=["few", "all"])
def test_fixed_seeds_pass_and_reach_what_the_swarm_is_for(seeds: Sequence[int]) -> None:
    fixed = Findings()
    for seed in seeds:
        fixed.add(run_seed(seed, modes=False))
    for seed in WITH_MODES:
        fixed.add(run_seed(seed))
    assert complaints(fixed) == []
    assert fixed.seeds == len(seeds) + len(WITH_MODES)

    report = fixed.to_json()
    assert {*report["rules_fired"], *report["rules_never_fired"], *report["rules_unreachable"]} == set(rows())
    assert [row for row in report["rules_never_fired"] if not RARE.search(row)] == []
    assert {kind for kind, count in fixed.faults.items() if count} >= FAULTS
    assert {kind for kind, count in fixed.happened.items() if count} >= HAPPENINGS, "it balances, drains and scales while things fail"


def test_what_no_seed_can_fire_is_a_row_of_the_tables_and_has_a_reason() -> None:
    assert set(UNREACHABLE) <= set(rows()) and all(UNREACHABLE.values())
    assert len(set(rows())) == len(rows()), "a row's name is its own"


@pytest.mark.conformance
@pytest.mark.timeout(3600)
def test_every_rule_fires_or_has_a_reason_not_to() -> None:
    fired = Findings()
    for seed in range(REACH):
        fired.add(run_seed(seed))
        if not fired.to_json()["rules_never_fired"]:
            break
    assert complaints(fired) == []
    assert fired.to_json()["rules_never_fired"] == []


@pytest.mark.conformance
@pytest.mark.timeout(900)
def test_no_fresh_seed_fails() -> None:
    assert complaints(search(range(FIRST_FRESH, FIRST_FRESH + FRESH))) == []


@pytest.mark.conformance
@pytest.mark.timeout(900)
def test_seeds_that_are_lost_read_their_state_partition_by_partition(monkeypatch: pytest.MonkeyPatch) -> None:
    """State that is as small as here would come in one part. Method: fresh seeds whose run is lost."""
    monkeypatch.setattr(folding, "READ_ROWS", 1)
    lost = [seed for seed in range(FIRST_FRESH, FIRST_FRESH + 10 * LOST) if losses(draw(seed))][:LOST]
    found = Findings()
    for seed in lost:
        found.add(run_seed(seed))
    assert complaints(found) == [] and found.seeds == LOST
    whole, parts = (found.fired[f"site K9 {row}"] for row in ("StateRead always: restore", "StatePartRead always: restore_part"))
    assert parts > whole > LOST


@pytest.mark.parametrize("seed", [seed if seed in OFTEN else pytest.param(seed, marks=DEAR) for seed in FOUND])
def test_what_seeds_have_found_stays_mended(seed: int) -> None:
    assert run_seed(seed, modes=False).failure is None


@pytest.mark.parametrize("seed", [seed if seed in OFTEN else pytest.param(seed, marks=DEAR) for seed in FOUND_WITH_MODES])
def test_what_seeds_with_modes_have_found_stays_mended(seed: int) -> None:
    assert run_seed(seed).failure is None


@pytest.mark.parametrize("seed", one_in(2, [3, 17]))
def test_a_seed_replays_exactly(seed: int) -> None:
    first, second, silent = run_seed(seed, tell=True), run_seed(seed, tell=True), run_seed(seed)
    assert first.story and first.story == second.story
    assert first.virtual_us == silent.virtual_us
    assert first.fired == silent.fired


def test_a_seed_says_what_it_stands_for() -> None:
    assert str(draw(3)) == str(draw(3))
    assert len({str(draw(seed)) for seed in range(20)}) > 15


@pytest.mark.parametrize(
    "name",
    [
        *(pytest.param(name, marks=pytest.mark.conformance) for name in LONG),
        "a plan applied on receipt", "the driver takes every copy", "a site leaves before it is empty",
        *OF_JOURNALS,
    ],
)  # fmt: skip
def test_planted_bugs_are_found(name: str) -> None:
    """The whole list is `evenflow swarm --mutations`; these take little time."""
    mutation = next(mutation for mutation in MUTATIONS if mutation.name == name)
    assert find(mutation, range(JOURNALLED if name in OF_JOURNALS else 0, 60)) is not None


@pytest.mark.conformance
def test_bugs_of_modes_are_looked_for_by_seeds_that_can_show_them_and_no_others() -> None:
    """Known without a run: a third has modes, and each mode is in some of these."""
    seeds = range(300)
    choosy = [mutation for mutation in MUTATIONS if mutation.needs is not None]
    assert choosy and all(list(able(mutation, seeds)) == [*seeds] for mutation in MUTATIONS if mutation.needs is None)
    for mutation in choosy:
        chosen = [*able(mutation, seeds)]
        assert 4 < len(chosen) < 60, mutation.name
        assert all(traits(seed).modes and traits(seed).deadly for seed in chosen)
        assert all(traits(seed).modes == {*draw(seed).world["layout"].modes.values()} for seed in chosen[:2])


@pytest.mark.parametrize(
    "name",
    [
        "stable of the newest image", "D of now", "frames go when they are received",
        *(pytest.param(name, marks=DEAR) for name in ("old image dropped", "an image begins again an epoch late")),
    ],
)  # fmt: skip
def test_bugs_of_modes_are_found(name: str) -> None:
    """By one of a few seeds that can show them, a second each."""
    mutation = next(mutation for mutation in MUTATIONS if mutation.name == name)
    assert find(mutation, range(9_300_000, 9_300_150)) is not None


def test_a_bug_that_ends_its_process_is_found() -> None:
    """Compiled code writes wherever a bug says: one such process is not the end of the search."""
    ends = Mutation("ends its process", "exchange.retention:Retention.settled", "return min(", "return __import__('os')._exit(7) or min(")
    found = list(plant_all(range(2), 2, (ends, WORD)))
    assert found[0] == (ends, (0, "its process ended with exit code 7"))
    assert [mutation.name for mutation, _ in found] == [ends.name, WORD.name]


def test_each_planted_bug_has_a_name_of_its_own() -> None:
    assert len({mutation.name for mutation in PLANTED}) == len(PLANTED)


def test_every_bug_can_be_planted_and_is_gone_afterwards() -> None:
    """Their words are where they are said to be; and what runs after all of them runs as before."""
    before = run_seed(1, tell=True)
    for mutation in (*PLANTED, WORD):
        with planted(mutation):
            pass
    after = run_seed(1, tell=True)
    assert after.story == before.story
    assert after.fired == before.fired


def test_the_command_reports(capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["swarm", "--seeds", "2..5", "--json"])
    assert ended.value.code == 0
    report = json.loads(capfd.readouterr().out)
    assert report["seeds"] == 3 and report["failed"] == []
    assert {*report["rules_fired"], *report["rules_never_fired"], *report["rules_unreachable"]} == set(rows())


@pytest.mark.conformance
def test_the_command_tells_the_story_of_a_failing_seed(capfd: pytest.CaptureFixture[str]) -> None:
    mutation = next(mutation for mutation in MUTATIONS if mutation.name == "a plan applied on receipt")
    found = find(mutation, range(20))
    assert found is not None
    seed = found[0]
    with planted(mutation), pytest.raises(SystemExit) as ended:
        main(["swarm", "--seeds", f"{seed}..{seed + 1}"])
    assert ended.value.code == 1
    said = capfd.readouterr().out
    assert f"seed {seed}: AssertionError" in said and "PlanCommitted" in said


def test_a_range_that_is_none_is_refused(capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["swarm", "--seeds", "7"])
    assert ended.value.code == 2
