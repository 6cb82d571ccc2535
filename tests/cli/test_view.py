"""What the terminal shows of a run, from the numbers that a run gives."""

from __future__ import annotations

import io
import json
import re
from dataclasses import replace
from typing import Any

import pytest
from rich.console import Console
from tests.statistics.numbers import progress, site_progress

from evenflow.cli.striking import Moments, Strike, gaps_ms, obstacle, victim
from evenflow.coordinator.hosting import Hosting, hosting
from evenflow.monitor.kill import Kill, aftermath, compared_sentence, kill_sentence
from evenflow.monitor.live import Results, View, bar, sparkline
from evenflow.monitor.picture import picture
from evenflow.monitor.roster import DEAD_SHOWN_S, Roster
from evenflow.monitor.summary import milliseconds, plain_line, report, summary_table
from evenflow.monitor.timeline import event_line, timeline
from evenflow.plan.membership import Leader, Membership
from evenflow.plan.moved_whole import MovedWhole
from evenflow.plan.plan import Copy, Plan
from evenflow.statistics.progress import (
    Behind,
    BoxProgress,
    CheckpointProgress,
    JournalProgress,
    LossProgress,
    OutputProgress,
    TableProgress,
)

SITES = tuple(
    site_progress(site, cpu_share=0.1 * site, rows_in_per_s=5_003.0, state_bytes=2**20, rss_bytes=250 * 2**20, epoch=1234)
    for site in range(4)
)
PROGRESS = progress(
    dataflow="network_sessions", epoch=1234, epochs_in_flight=3, rows_in=300_000, rows_out=2_000, rows_in_per_s=20_012.3,
    rows_out_per_s=133.1, p50_ms=6.2, p99_ms=17.9, late_rows=5, seconds=15.02, sites=SITES,
)  # fmt: skip
EVENTS: list[dict[str, Any]] = [
    {"at_s": 7.42, "kind": "site_lost", "site": 1, "text": "site 1 is lost: on executor 0 (vm, process 84): connection reset by peer"},
    {"at_s": 7.43, "kind": "take_over", "site": 1, "text": "the replicas of site 1's partitions go on without it"},
    {"at_s": 7.50, "kind": "copy_begun", "site": 4, "text": "32 partitions of sessions are copied from site 3 to site 4"},
    {"at_s": 7.51, "kind": "copy_begun", "site": 4, "text": "1 partitions of view are copied from site 3 to site 4"},
    {"at_s": 8.00, "kind": "copy_live", "site": 4, "text": "32 partitions of sessions are live at site 4"},
    {"at_s": 8.75, "kind": "copy_live", "site": 4, "text": "1 partitions of view are live at site 4"},
    {"at_s": 8.76, "kind": "redundancy", "site": -1, "text": "every partition has 2 live replicas again"},
    {"at_s": 15.0, "kind": "site_joined", "site": 5, "text": "site 5 has joined"},
]
KILL = Kill(1, "0", 7.4)
DOCUMENTED = {
    "dataflow", "run", "master", "rows_in", "rows_out", "late_rows", "failed_rows", "rows_in_per_s", "rows_out_per_s", "epoch", "p50_ms",
    "p99_ms", "sites", "replicas", "redundancy", "moved_whole", "events", "events_forgotten", "moves", "journal", "checkpoint",
    "outputs", "protected", "lost", "behind", "tables", "seconds", "interrupted", "per_site",
}  # fmt: skip


def drawn(thing: Any, width: int = 120) -> str:
    console = Console(width=width, record=True, file=io.StringIO())
    console.print(thing)
    return console.export_text()


def test_a_sparkline_scales_to_its_maximum_and_keeps_the_newest() -> None:
    assert sparkline([0, 1, 2, 4, 8], 5) == "▁▁▂▄▇"
    assert sparkline([9, 9, 1, 2], 2) == "▄▇"
    assert sparkline([5, None, 5], 4) == " ▇ ▇"
    assert sparkline([], 3) == "   " and sparkline([0, 0], 2) == "▁▁"


def test_a_bar_is_full_at_one_core_and_never_longer() -> None:
    assert bar(0.5, 10).plain.startswith("━" * 10) and "50%" in bar(0.5).plain
    assert "250%" in bar(2.5).plain and bar(None).plain == "–"


@pytest.mark.parametrize(("value", "text"), [(0.5, "0.50 ms"), (6.21, "6.2 ms"), (1234.0, "1,234 ms"), (None, "–")])
def test_milliseconds_have_the_digits_that_matter(value: float | None, text: str) -> None:
    assert milliseconds(value) == text


def test_the_view_shows_rates_latency_sites_and_results() -> None:
    results = Results(keys=("app", "src"))
    results.take([{"app": "dns", "src": "10.0.0.1", "max_dur": 1.0}, {"app": "ssh", "src": "10.0.0.2", "max_dur": 2.0}])
    results.take([{"app": "dns", "src": "10.0.0.1", "max_dur": 3.5}])
    view = View("network_sessions", "local-cluster[4,2,1024]", results)
    for _ in range(3):
        view.update(PROGRESS)
    text = drawn(view)
    for wanted in ("20,012/s", "6.2 ms", "17.9 ms", "1,234", "local-cluster[4,2,1024]", "250 MiB", "00:15", "3.500", "Ctrl-C"):
        assert wanted in text, f"{wanted} is missing in\n{text}"
    assert text.index("3.500") < text.index("2.000"), "the newest result comes first"
    assert "1.000" not in text, "a newer result of a key replaces the older one"


def test_the_view_shows_boxes_where_there_is_room() -> None:
    boxes = tuple(BoxProgress("rows", f"box {n}", 12_345.6, 0.512, 0.25, 0.031) for n in range(8))
    boxes += (BoxProgress("rows", "idle", 0.0, None, None, 0.0),)
    view = View("network_sessions", "local-cluster[4,2,1024]")
    view.update(replace(PROGRESS, boxes=boxes))
    lines = drawn(view).splitlines()
    (first,) = [line for line in lines if "box 0" in line]
    for wanted in ("rows", "12,346/s", "0.51 us", "0.25", "3.1%"):
        assert wanted in first
    assert any("box 7" in line for line in lines) and not any("idle" in line for line in lines), "the busiest ones only"
    view.update(replace(PROGRESS, boxes=boxes[-1:]))
    assert [line.count("–") for line in drawn(view).splitlines() if "idle" in line] == [2]
    view.update(replace(PROGRESS, boxes=boxes), news=EVENTS)
    assert "box 0" not in drawn(view)


def test_the_view_stands_a_run_that_knows_nothing_yet() -> None:
    view = View("flow", "local[1]")
    assert "flow" in drawn(view)
    view.update(progress(sites=(site_progress(0),)))
    assert "–" in drawn(view, width=80)


def test_results_are_bounded() -> None:
    results = Results(keys=("k",), limit=3)
    results.take([{"k": i} for i in range(10)])
    assert [row["k"] for row in results.newest(9)] == [9, 8, 7]


def test_the_report_has_the_documented_keys_and_is_json() -> None:
    found = report(PROGRESS, master="m", interrupted=False)
    assert set(found) == DOCUMENTED and found["sites"] == 4 and found["rows_in"] == 300_000
    assert found["events_forgotten"] == 0 and report(PROGRESS, master="m", interrupted=False, forgotten=7)["events_forgotten"] == 7
    empty = report(progress(), master="m", interrupted=True)
    assert set(empty) == DOCUMENTED and empty["p50_ms"] is None
    json.dumps(empty, allow_nan=False)


def test_a_report_says_what_a_run_has_lost_and_how_far_it_is_behind() -> None:
    """Whoever starts `evenflow run --json` from a script has no `run.progress()` to ask."""
    whole = replace(
        PROGRESS, protected=1, lost=LossProgress(2, 5, 7, 3), behind=(Behind("orders", "shop", 12),),
        tables=(TableProgress("codes", 5, 80, 1, 3, 2.5, 0, None),),
    )  # fmt: skip
    found, told = report(whole, master="m", interrupted=False), whole.to_json()
    assert {name: found[name] for name in ("protected", "lost", "behind", "tables")} == {
        "protected": 1, "lost": {"partitions": 2, "frames": 5, "rows": 7, "unkept": 3},
        "behind": [{"source": "orders", "topic": "shop", "messages": 12}], "tables": told["tables"],
    }  # fmt: skip
    assert found["tables"][0]["table"] == "codes" and report(PROGRESS, master="m", interrupted=False)["lost"] is None


def test_what_outputs_have_missed_is_said() -> None:
    outputs = (OutputProgress("alerts", False, 1_200, 0.875, 12.5, 0.9), OutputProgress("bills", True, 0, 1.0))
    shed = replace(PROGRESS, outputs=outputs)
    assert "delivered 88% to alerts" in plain_line(shed) and "delivered" not in plain_line(replace(PROGRESS, outputs=outputs[1:]))
    table = drawn(summary_table(shed))
    assert "left out for alerts" in table and "1,200" in table and "87.5% was delivered" in table and "bills" not in table
    for share in (0.9996, 1.0):  # As many digits as are told.
        nearly = replace(PROGRESS, outputs=(replace(outputs[0], delivered_share=share),))
        assert "delivered 99% to alerts" in plain_line(nearly) and "99.9% was delivered" in drawn(summary_table(nearly))
    assert report(shed, master="local", interrupted=False)["outputs"][0] == {
        "output": "alerts", "protected": False, "dropped": 1_200, "delivered_share": 0.875, "age_ms": 12.5, "utility": 0.9,
    }  # fmt: skip


def test_the_plain_line_and_the_summary_say_the_same() -> None:
    line, table = plain_line(PROGRESS), drawn(summary_table(PROGRESS))
    for wanted in ("300,000", "6.2 ms", "17.9 ms"):
        assert wanted in line and wanted in table
    assert "hot keys" not in table
    found = MovedWhole(1, "track", ("src",), "a process box needs every row itself")
    assert "track" in drawn(summary_table(replace(PROGRESS, moved_whole=(found,))))
    assert "can only be moved whole: a process box" in drawn(summary_table(replace(PROGRESS, moved_whole=(found,))))
    assert report(replace(PROGRESS, moved_whole=(found,)), master="m", interrupted=False)["moved_whole"] == [found.to_json()]
    assert "late rows" in table and "late rows" not in drawn(summary_table(replace(PROGRESS, late_rows=0)))


def test_the_line_and_the_summary_say_how_the_journal_does() -> None:
    """Its age is said where it is what results wait for."""
    journal = JournalProgress("/there", 1, 41, 0.0, 1.5, 1.75, 12, 3456)
    assert plain_line(replace(PROGRESS, journal=journal)).endswith("journal 41 (1.5 ms)")
    assert plain_line(replace(PROGRESS, journal=replace(journal, age_s=3.25))).endswith("journal 41 (waits for 3.2 s)")
    assert "to /there, 1.8 ms each lately" in drawn(summary_table(replace(PROGRESS, journal=journal)))
    assert report(replace(PROGRESS, journal=journal), master="m", interrupted=False)["journal"]["durable"] == 41


def test_the_picture_places_text_behind_blanks_without_the_blanks() -> None:
    view = View("network_sessions", "local-cluster[4,2,1024]")
    view.update(PROGRESS)
    svg = picture(view, "demo")
    assert svg.startswith("<svg") and "20,012/s" in svg
    texts = re.findall(r"<text [^>]*>([^<]*)</text>", svg)
    assert [t for t in texts if t.startswith("&#160;") and t.replace("&#160;", "")] == []


def test_the_page_is_named_in_the_terminal_and_in_no_picture() -> None:
    """Its address has a token that may change things, and pictures are passed on."""
    view = View("network_sessions", "local-cluster[4,2,1024]")
    view.update(PROGRESS)
    view.page = "http://127.0.0.1:4141/#token=secret"
    assert f"{view.page} · Ctrl-C stops cleanly" in drawn(view)
    svg = picture(view.drawn(view.note), "demo")
    assert "Ctrl-C" in svg and "4141" not in svg and "secret" not in svg


def test_copies_are_one_line_that_grows_and_a_death_is_short() -> None:
    assert [(e.at_s, e.kind) for e in timeline(EVENTS)] == [
        (7.42, "site_lost"), (7.43, "take_over"), (7.50, "copies"), (8.76, "redundancy"), (15.0, "site_joined"),
    ]  # fmt: skip
    assert timeline(EVENTS)[0].text == "site 1 is lost: connection reset by peer"
    assert timeline(EVENTS)[2].text == "catch-up: 33 partitions copied to site 4, in 1.25 s"
    assert timeline(EVENTS[:5])[2].text == "catch-up: 32 partitions copied to site 4, 1 more under way"
    again = timeline([*EVENTS, {**EVENTS[0], "at_s": 20.0, "site": 2}, {**EVENTS[2], "at_s": 20.1}])
    assert again[-1].text == "catch-up: 0 partitions copied to site 4, 32 more under way", "another death has copies of its own"
    assert event_line(EVENTS[-1]) == " 15.00 s  site_joined: site 5 has joined"


def test_who_hosts_what_counts_live_replicas_and_coming_ones() -> None:
    copy, dropped = Copy(1, 0, (0,), 0, 2), Copy(2, 0, (1,), 0, 2)
    plan = Plan(1, 10, (((0, 2), (0, 2)), ((0, 1), (0, 1))), (copy, dropped))
    found = hosting(plan, Membership(3, (0, 1, 2, 3), (copy,), (2,), ((Leader(0, 0),), ())))
    assert found == {0: Hosting(4), 1: Hosting(2), 2: Hosting(0, 1), 3: Hosting()}
    assert [site.role for site in found.values()] == ["live", "live", "joining", "spare"]


def test_a_dead_site_stays_in_the_list_for_a_while_and_then_goes() -> None:
    roster, everybody = Roster(), {site: Hosting(10) for site in range(4)}
    roster.update(replace(PROGRESS, seconds=7.4), everybody, [])
    left = tuple(site for site in SITES if site.site != 1)
    newcomer = site_progress(5, executor="9")
    roster.update(replace(PROGRESS, seconds=8.0, sites=(*left, newcomer)), {**everybody, 3: Hosting(10, 4)}, EVENTS)
    assert [(row.told.site, row.role) for row in roster.rows] == [(0, "live"), (1, "dead"), (2, "live"), (3, "joining"), (5, "starting")]
    roster.update(replace(PROGRESS, seconds=7.5 + DEAD_SHOWN_S, sites=left), everybody, EVENTS)
    assert [row.told.site for row in roster.rows] == [0, 2, 3]


def test_the_view_shows_the_death_the_spare_and_what_happened() -> None:
    view = View("network_sessions", "local-cluster[5,2,1024]", Results())
    hosted = {0: Hosting(259), 1: Hosting(258), 2: Hosting(259), 3: Hosting(258)}
    view.update(replace(PROGRESS, replicas=2, redundancy=2), hosted)
    before = drawn(view)
    assert "redundancy 2 of 2" in before and "what happened" not in before and "live" in before
    left = (*(site for site in SITES if site.site != 1), replace(SITES[0], site=4, executor="4"))
    view.said = "Executor 0 (site 1) was killed 1.2 s ago"
    view.update(replace(PROGRESS, sites=left, replicas=2, redundancy=1), {4: Hosting(100, 32)}, EVENTS[:5])
    text = drawn(view)
    for wanted in ("redundancy 1 of 2", "dead", "joining", "100 (+32)", "killed 1.2 s ago", "7.42 s", "32 partitions copied to site 4"):
        assert wanted in text, f"{wanted} is missing in\n{text}"
    svg = picture(view, "demo")
    assert "line-through" in svg, "the dead site is crossed out"


def test_the_aftermath_of_a_kill_is_in_its_numbers_and_in_a_sentence() -> None:
    after = aftermath(KILL, EVENTS, 84.0, 41.0)
    assert (after.take_over_ms, after.redundancy_s, len(after.events)) == (30.0, 1.36, 8)
    assert kill_sentence(after) == (
        "Killed executor 0 (site 1) at 7.4 s: longest gap at the sink 84.0 ms (usually 41.0 ms), full redundancy after 1.4 s."
    )
    assert set(after.to_json()) == {"site", "executor", "at_s", "gap_ms", "usual_gap_ms", "take_over_ms", "redundancy_s", "events"}
    json.dumps(after.to_json(), allow_nan=False)


def test_what_did_not_happen_after_a_kill_is_not_claimed() -> None:
    unnoticed = aftermath(KILL, [{**EVENTS[-2], "at_s": 7.0}], None, None)
    assert (unnoticed.take_over_ms, unnoticed.redundancy_s, unnoticed.events) == (None, None, ())
    assert "nothing came" in kill_sentence(unnoticed) and "not back by the end" in kill_sentence(unnoticed)
    other = aftermath(KILL, [{**EVENTS[1], "site": 3}, EVENTS[-2]], 84.0, None)
    assert (other.take_over_ms, other.redundancy_s) == (None, None), "the take-over from another site is not this kill's"
    assert "not compared" in compared_sentence(None)
    assert compared_sentence({"rows": 435, "lost": 0, "repeated": 1, "wrong": 0}).startswith("Rows lost 0, repeated 1, wrong 0, of 435")


def test_gaps_are_those_around_the_kill_and_the_usual_ones_before_it() -> None:
    moments = [at / 100 for at in range(1000) if not 700 < at < 708]
    assert gaps_ms(moments, 7.005, 9.0, 1.0) == (80.0, 10.0)
    assert gaps_ms([], 7.0, 9.0, 1.0) == (None, None)
    assert gaps_ms(moments, 1.0, 2.0, 1.0) == (10.0, None), "before anything was usual"


def test_who_is_killed_and_when_nobody_is() -> None:
    sites = [site_progress(site, state_bytes=state_bytes) for site, state_bytes in ((0, 5), (1, 9), (4, 99), (5, 0))]
    chosen = victim(sites, {0: Hosting(10), 1: Hosting(10), 4: Hosting(0)})
    assert chosen is not None and chosen.site == 1, "it has most; a spare's death would show nothing"
    assert victim(sites, {}) is None
    assert obstacle("local-cluster[5,2,1024]", 2) is None
    assert "spark://host:7077" in (obstacle("spark://host:7077", 2) or "")
    assert "--replicas 1" in (obstacle("local-cluster[5,2,1024]", 1) or "")


def test_a_kill_is_announced_waits_for_redundancy_and_is_not_made_up() -> None:
    said: list[str] = []
    strike = Strike("local-cluster[5,2,1024]", 10.0, 2, Moments(), said.append)
    strike.step(None, progress(redundancy=2), {}, 3.0)
    assert strike.said is None
    for running_s in (7.5, 8.5):
        strike.step(None, progress(redundancy=2), {}, running_s)
    assert len(said) == 1 and "kill -9" in said[0] and strike.said is not None and strike.said.startswith("In 2 s")
    strike.step(None, progress(redundancy=1), {}, 10.5)
    assert strike.said == "The kill waits: redundancy is 1 of 2." and strike.kill is None
    strike.finish()
    assert strike.said == "Nobody was killed: the run was over before it came to that."


def test_a_process_of_somebody_else_is_not_killed() -> None:
    said: list[str] = []
    strike = Strike("local-cluster[5,2,1024]", 1.0, 2, Moments(), said.append)
    strike.step(None, progress(redundancy=2, sites=(site_progress(0, executor="0", pid=1),)), {0: Hosting(5)}, 1.5)
    assert strike.kill is None and strike.skipped is not None and "will not be killed" in said[0]
    strike.finish()
    assert strike.said == said[0]


def test_the_line_the_view_and_the_summary_say_how_checkpoints_go() -> None:
    made = CheckpointProgress(12, 340, 3 << 20, 4.2, 0.75, 0, None)
    assert plain_line(replace(PROGRESS, checkpoint=made)).endswith("checkpoint 12 (4 s ago)")
    assert plain_line(replace(PROGRESS, checkpoint=replace(made, failures=2))).endswith("checkpoint 12 (4 s ago), 2 dropped since")
    assert "epoch 340, 3.0 MiB, made in 0.8 s" in drawn(summary_table(replace(PROGRESS, checkpoint=made)))
    assert report(replace(PROGRESS, checkpoint=made), master="m", interrupted=False)["checkpoint"]["age_s"] == 4.2
    view = View("flow", "local")
    view.update(replace(PROGRESS, checkpoint=made))
    assert "checkpoint 12 (4 s ago)" in drawn(view)
    view.update(replace(PROGRESS, checkpoint=CheckpointProgress(None, None, None, None, None, 1, 2)))
    assert "no checkpoint yet, 1 dropped since" in drawn(view)
