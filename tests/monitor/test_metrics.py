"""What Prometheus and whoever asks for health are told, of runs in the simulator."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import shutil
import subprocess
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import promql_parser
import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from evenflow.monitor.health import readiness
from evenflow.monitor.metrics import METRICS, exposition
from evenflow.monitor.otel import begun_ns
from evenflow.monitor.reading import Reading
from evenflow.monitor.scene import Scene, SceneRun, SceneSite
from evenflow.statistics.progress import CheckpointProgress
from tests.monitor.promql import evaluate, raised, seconds_of, series_of
from tests.monitor.simulated import readings_of, scenes_of, stream

ROOT = Path(__file__).resolve().parents[2]
ALERTS = ROOT / "deploy" / "alerts.yaml"
PROMTOOL = shutil.which(os.environ.get("EVENFLOW_PROMTOOL", "promtool"))


def newest() -> tuple[Scene, Reading]:
    told = stream(4.0, kill_s=1.2)
    return scenes_of(told)[-1], readings_of(told)[-1]


def samples(scene: Scene, reading: Reading) -> dict[tuple[str, ...], float]:
    """By name and values of the labels, in the order of their names."""
    families = list(text_string_to_metric_families(exposition(scene, reading).decode()))
    assert len({family.name for family in families}) == len(families), "a family is told in one piece, as `promtool check metrics` wants it"
    assert all(family.documentation and family.type in ("counter", "gauge", "histogram", "summary") for family in families)
    found = [((s.name, *(value for _, value in sorted(s.labels.items()))), s.value) for family in families for s in family.samples]
    assert len(found) == len(dict(found)), "a series is told twice"
    return dict(found)


def test_the_client_reads_what_is_told_and_it_is_what_the_reading_says() -> None:
    scene, reading = newest()
    told, run = samples(scene, reading), reading.runs[0]
    assert told["evenflow_rows_in_total", "counts", "events"] == run.rows_in > 0
    assert told["evenflow_rows_out_total", "counts"] == run.rows_out > 0
    assert told["evenflow_box_rows_total", "kept", "counts", "in"] == run.boxes.rows_in[1]
    assert told["evenflow_epochs_total", "counts"] == run.epoch
    assert told["evenflow_takeovers_total", "counts"] == 1
    assert (told["evenflow_redundancy", "counts"], told["evenflow_replicas", "counts"]) == (2, 2)
    assert told["evenflow_sites", "counts", "live"] == 3
    assert told["evenflow_site_busy_seconds_total", "counts", "1"] == run.sites.busy_us[1] / 1e6 > 0
    assert told["evenflow_partition_skew_ratio", "counts", "counts"] >= 1
    assert told["evenflow_run_info", "counts", "run-1", "0"] == 1
    assert told["evenflow_engine_info", "simulated", "simulator"] == 1
    assert ("evenflow_site_busy_seconds_total", "counts", "0") not in told, "site 0 is dead"
    assert not [key for key in told if key[0].startswith("evenflow_delivered")], "nothing is shed, so nobody knows"


def test_of_two_runs_that_are_over_the_newest_counts() -> None:
    """As before it ended: else its counters would jump to those of a run that nobody had asked about for days."""
    scene, reading = newest()
    run, now = replace(scene.runs[0], active=False), reading.runs[0]
    runs = (run, replace(run, run="run-2"))
    readings = (replace(now, rows_out=700_000, elapsed_us=900_000_000), replace(now, run="run-2", rows_out=5, elapsed_us=1_000_000))
    over, told = replace(scene, runs=runs), replace(reading, runs=readings)
    assert samples(over, told)["evenflow_rows_out_total", "counts"] == 5
    assert begun_ns(over, told)["counts"] == 1000 * (reading.at_us - 1_000_000)
    active = replace(scene, runs=(replace(run, active=True), runs[1]))
    assert samples(active, told)["evenflow_rows_out_total", "counts"] == 700_000, "the one that is active, whatever has ended since"
    assert begun_ns(active, told)["counts"] == 1000 * (reading.at_us - 900_000_000)


def test_a_site_that_has_not_reported_has_no_samples() -> None:
    """Its CPU time would leap from nothing to all that it took to begin."""
    scene, reading = newest()
    heard = replace(reading, sites=replace(reading.sites, heard_us=tuple(5 if at != 1 else None for at in range(len(scene.sites)))))
    told = samples(scene, heard)
    for name in ("evenflow_site_cpu_seconds_total", "evenflow_site_memory_bytes"):
        assert (name, "1") not in told and (name, "2") in told


def test_latencies_are_a_histogram_that_holds_all_of_them() -> None:
    scene, reading = newest()
    told, latency = samples(scene, reading), reading.runs[0].latency
    whole = sum(count for _, count in latency)
    buckets = {float(key[2]): value for key, value in told.items() if key[0] == "evenflow_latency_seconds_bucket"}
    counts = [buckets[end] for end in sorted(buckets)]
    assert counts == sorted(counts) and counts[-1] == whole == told["evenflow_latency_seconds_count", "counts"]
    assert buckets[2**15 / 1e6] == sum(count for bucket, count in latency if 2 ** ((bucket + 1) / 8) <= 2**15)
    assert 0 < told["evenflow_latency_seconds_sum", "counts"] < whole * 0.1


def test_names_and_labels_are_those_that_stay() -> None:
    for row in METRICS:
        assert row.name.endswith("_total") == (row.kind == "counter"), row.name
        assert set(row.labels) <= {"box", "direction", "source", "site", "where", "role", "state", "segment"}, row.name
        assert row.text.endswith("."), row.name


def test_of_a_big_engine_there_are_few_series_and_they_are_made_quickly() -> None:
    scene, reading = newest()
    run, now, sites = scene.runs[0], reading.runs[0], 100
    boxes = tuple(replace(run.boxes[1], name=f"box {n}") for n in range(200))
    segments = tuple(replace(run.segments[1], segment=n, name=f"segment {n}") for n in range(26))
    wide = dict.fromkeys(now.sites.__slots__, (5,) * sites)
    big_run = replace(run, boxes=boxes, arrows=(), segments=segments, roles=("live",) * sites)
    big_now = replace(
        now,
        sites=type(now.sites)(**wide),
        boxes=type(now.boxes)(*((7,) * 200,) * 4),
        segments=type(now.segments)((9,) * 26, (9,) * 26, (1_500_000,) * 26),
    )
    places = tuple(SceneSite(n, str(n), "host", n, "live") for n in range(sites))
    big = replace(scene, sites=places, runs=(big_run,))
    told = replace(reading, runs=(big_now,), sites=type(reading.sites)((1,) * sites, (1,) * sites, (0,) * sites))
    taken_s = []
    for _ in range(5):
        began_s = time.thread_time()
        text = exposition(big, told)
        taken_s.append(time.thread_time() - began_s)
    series = [line for line in text.decode().splitlines() if not line.startswith("#")]
    assert 1_000 < len(series) <= 3_000
    assert min(taken_s) < 0.05


def test_of_two_runs_of_a_dataflow_the_active_one_counts() -> None:
    scene, reading = newest()
    over = replace(scene.runs[0], run="run-0", active=False)
    both = replace(scene, runs=(over, scene.runs[0]))
    now = replace(reading, runs=(replace(reading.runs[0], run="run-0", rows_out=1), reading.runs[0]))
    assert samples(both, now)["evenflow_rows_out_total", "counts"] == reading.runs[0].rows_out
    again = replace(both, runs=both.runs[::-1])
    assert samples(again, now)["evenflow_rows_out_total", "counts"] == reading.runs[0].rows_out


def of_runs(scene: Scene, reading: Reading, *runs: SceneRun) -> dict[tuple[str, ...], float]:
    """Samples where there are these runs, each with the numbers of the first."""
    told = replace(reading, runs=tuple(replace(reading.runs[0], run=run.run) for run in runs))
    return samples(replace(scene, runs=runs), told)


def test_what_has_failed_is_told_and_what_was_begun_again_has_not() -> None:
    scene, reading = newest()
    run = scene.runs[0]
    failed = replace(run, run="run-0", active=False, failure="a box raised")
    assert of_runs(scene, reading, run)["evenflow_run_failed", "counts"] == 0
    assert of_runs(scene, reading, failed)["evenflow_run_failed", "counts"] == 1
    assert of_runs(scene, reading, replace(failed, failure=None))["evenflow_run_failed", "counts"] == 0, "it was stopped"
    assert of_runs(scene, reading, failed, run)["evenflow_run_failed", "counts"] == 0
    assert of_runs(scene, reading, run, failed)["evenflow_run_failed", "counts"] == 1, "the newest counts"
    told = of_runs(scene, reading, replace(run, dataflow="other"), failed)
    assert (told["evenflow_run_failed", "counts"], told["evenflow_run_failed", "other"]) == (1, 0)


def test_a_run_that_is_over_has_counters_and_no_gauges() -> None:
    """Else an alert about a gauge stays for ever, of a run that somebody has stopped."""
    scene, reading = newest()
    checkpoint = CheckpointProgress(3, 7, 100, 900.0, 0.5, 2, None)
    with_it = replace(reading, runs=(replace(reading.runs[0], checkpoint=checkpoint),))
    gauges = {f"evenflow_{row.name}" for row in METRICS if row.kind == "gauge"}
    assert {key[0] for key in samples(scene, with_it)} & gauges > {"evenflow_checkpoint_age_seconds", "evenflow_redundancy"}
    told = of_runs(scene, with_it, replace(scene.runs[0], active=False))
    assert not {key[0] for key in told} & gauges
    assert told["evenflow_rows_out_total", "counts"] == reading.runs[0].rows_out > 0
    assert told["evenflow_latency_seconds_count", "counts"] > 0
    assert (told["evenflow_run_info", "counts", "run-1", "0"], told["evenflow_run_failed", "counts"]) == (0, 0)


@pytest.mark.parametrize(
    ("number", "age_s", "every_s", "told_s"),
    [
        (None, None, 10.0, 900.0),  # There is none yet: since it began.
        (None, None, None, None),  # Nobody wants any.
        (3, 12.5, 10.0, 12.5),
        (3, 12.5, None, 12.5),  # Somebody has asked for it.
        (3, None, 10.0, 900.0),  # It is from before the times that are known.
    ],
)
def test_a_checkpoint_that_never_was_is_as_old_as_the_run(
    number: int | None, age_s: float | None, every_s: float | None, told_s: float | None
) -> None:
    scene, reading = newest()
    checkpoint = CheckpointProgress(number, number, number, age_s, None, 4, None, every_s)
    now = replace(reading.runs[0], elapsed_us=900_000_000, checkpoint=checkpoint)
    told = samples(scene, replace(reading, runs=(now,)))
    assert told.get(("evenflow_checkpoint_age_seconds", "counts")) == told_s
    assert told["evenflow_checkpoint_failures", "counts"] == 4


def test_ready_is_who_was_heard_of_and_has_all_replicas() -> None:
    scene, reading = newest()
    assert readiness(scene, reading, reading.at_us + 3_000_000).ready
    old = readiness(scene, reading, reading.at_us + 3_100_000)
    assert not old.ready and old.reasons == ("the newest reading is 3.1 s old",)
    short = replace(scene, runs=(replace(scene.runs[0], redundancy=1),))
    assert readiness(short, reading, reading.at_us).reasons == ("counts: redundancy is 1 of 2",)
    over = replace(short, runs=(replace(short.runs[0], active=False),))
    assert readiness(over, reading, reading.at_us).ready
    failed = replace(scene.runs[0], run="run-0", active=False, failure="a box raised")
    other = replace(failed, dataflow="other")
    both = readiness(replace(scene, runs=(failed, scene.runs[0], other)), reading, reading.at_us)
    assert both.reasons == ("other: run-0 has failed: a box raised",), "of `counts` a newer run goes on"
    ended = replace(other, run="run-9", failure=None)
    assert readiness(replace(scene, runs=(other, scene.runs[0], ended)), reading, reading.at_us).ready
    assert not readiness(None, None, 0).ready
    assert exposition(None, None) == b""


@pytest.mark.parametrize("name", ['a"b\\c\nd', "ü"])
def test_any_name_of_a_dataflow_is_told(name: str) -> None:
    scene, reading = newest()
    odd = replace(scene, runs=(replace(scene.runs[0], dataflow=name),))
    assert samples(odd, reading)["evenflow_rows_out_total", name] == reading.runs[0].rows_out


# ---------------------------------------------------------------- what is written of them


@pytest.fixture(scope="module")
def generator() -> Any:
    spec = importlib.util.spec_from_file_location("gen_metrics", ROOT / "tools" / "gen_metrics.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_page_and_the_dashboard_are_what_the_table_makes(generator: Any) -> None:
    for path, text in generator.written().items():
        assert path.read_text(encoding="utf-8") == text, "run tools/gen_metrics.py"


def test_the_page_names_what_is_told_and_the_dashboard_asks_for_nothing_else(generator: Any) -> None:
    scene, reading = newest()
    told = {re.sub("_(bucket|count|sum|created)$", "", key[0]) for key in samples(scene, reading)}
    named = set(re.findall(r"^\| `(\w+)`", generator.page(), re.MULTILINE))
    assert {name.removeprefix("evenflow_") for name in told} <= named
    asked = asked_for(json.dumps(generator.dashboard()["panels"]))
    assert asked == named, "the dashboard shows every metric, and no other"


def asked_for(text: str) -> set[str]:
    return {re.sub("_(bucket|count|sum)$", "", name) for name in re.findall(r"evenflow_(\w+)", text)}


def parts_of(page: Path) -> set[str]:
    titles = re.findall(r"^## (.+)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {title.strip().lower().replace(" ", "-") for title in titles}


def test_alerts_are_of_metrics_that_there_are_and_say_what_to_do(generator: Any) -> None:
    """Prometheus refuses a file with a key that it does not know, so that only those may be there which it has."""
    told = yaml.safe_load(ALERTS.read_text(encoding="utf-8"))
    (group,) = told["groups"]
    assert told.keys() == {"groups"} and group.keys() == {"name", "rules"}
    labels = {name: {"dataflow", *found} for name, found in generator.labels().items()} | {"up": {"instance", "job"}}
    parts = parts_of(ROOT / "docs" / "operations.md")
    assert len(group["rules"]) > 8 and len({rule["alert"] for rule in group["rules"]}) == len(group["rules"])
    for rule in group["rules"]:
        assert rule.keys() == {"alert", "expr", "for", "labels", "annotations"}, rule["alert"]
        assert isinstance(promql_parser.parse(rule["expr"]), promql_parser.Expr)
        asked = asked_for(rule["expr"])
        assert asked <= labels.keys(), rule["alert"]
        said = rule["annotations"]["summary"]
        named = set(re.findall(r"\$labels\.(\w+)", said))
        assert named <= set.union(*(labels[name] for name in asked or {"up"})), rule["alert"]
        assert re.fullmatch(r"\d+m", rule["for"]) and rule["labels"].keys() == {"severity"}
        assert rule["labels"]["severity"] in ("critical", "warning")
        assert rule["annotations"]["runbook"].removeprefix("docs/operations.md#") in parts, rule["alert"]


def test_what_grafana_asks_is_promql(generator: Any) -> None:
    asked = [target["expr"] for panel in generator.dashboard()["panels"] for target in panel["targets"]]
    assert len(asked) > 20
    for expression in asked:
        assert isinstance(promql_parser.parse(expression), promql_parser.Expr)
    with pytest.raises(ValueError, match="unclosed left parenthesis"):
        promql_parser.parse("sum by (dataflow (evenflow_rows_in_total)")


def test_alerts_are_raised_by_their_troubles_and_by_nothing_else() -> None:
    """Method: half an hour of a run that is well, of one that is well again, and of one that has every trouble, judged every minute."""
    (group,) = yaml.safe_load(ALERTS.read_text(encoding="utf-8"))["groups"]
    rules = {rule["alert"]: rule for rule in group["rules"]}
    text = (Path(__file__).parent / "alerts_fire.yaml").read_text(encoding="utf-8")
    for case in yaml.load(text, Loader=yaml.BaseLoader)["tests"]:  # Else 0x40 is a number.
        series = series_of(case["input_series"])
        for each in case["alert_rule_test"]:
            wanted = [(alert["exp_labels"], alert["exp_annotations"]) for alert in each.get("exp_alerts", ())]
            assert raised(rules[each["alertname"]], series, seconds_of(each["eval_time"])) == wanted, (case["name"], each["alertname"])


@pytest.mark.parametrize(
    ("expression", "series", "at_s", "wanted"),
    [
        ("rate(a[5m])", {"a": "0+60x10"}, 600, [({}, 1.0)]),
        ("rate(a[5m])", {"a": "5x10"}, 600, [({}, 0.0)]),
        ("rate(a[5m])", {"a": "0+60x6 0+60x6"}, 600, [({}, 0.75)]),
        ("rate(a[5m])", {"a": "0+60x2"}, 1200, []),
        ("a > 1", {'a{x="1"}': "1x9", 'a{x="2"}': "2x9"}, 60, [({"x": "2", "__name__": "a"}, 2.0)]),
        ("a < b", {'a{x="1"}': "1x9", 'b{x="1"}': "2x9", 'a{x="2"}': "1x9"}, 60, [({"x": "1", "__name__": "a"}, 1.0)]),
        ("max by (x) (a)", {'a{x="1", y="1"}': "1x9", 'a{x="1", y="2"}': "7x9"}, 60, [({"x": "1"}, 7.0)]),
        ("histogram_quantile(0.5, a)", {'a{le="1"}': "2x9", 'a{le="3"}': "6x9", 'a{le="+Inf"}': "8x9"}, 60, [({}, 2.0)]),
        ("histogram_quantile(0.9, a)", {'a{le="1"}': "2x9", 'a{le="3"}': "6x9", 'a{le="+Inf"}': "8x9"}, 60, [({}, 3.0)]),
    ],
)  # fmt: skip
def test_what_judges_alerts_counts_as_prometheus_does(expression: str, series: Any, at_s: float, wanted: Any) -> None:
    found = evaluate(promql_parser.parse(expression), series_of([{"series": n, "values": v} for n, v in series.items()]), at_s)
    assert [(dict(labels), pytest.approx(value)) for labels, value in found] == wanted
    with pytest.raises(NotImplementedError):
        evaluate(promql_parser.parse(f"absent({expression})"), {}, at_s)


@pytest.mark.skipif(PROMTOOL is None, reason="promtool is not on PATH, and EVENFLOW_PROMTOOL does not name it")
def test_prometheus_own_tool_says_the_same_of_alerts(tmp_path: Path) -> None:
    """Method: it takes the rules through half an hour of a run that is well, and of one that has every trouble."""
    assert PROMTOOL is not None
    cases = tmp_path / "cases.yaml"
    cases.write_text((Path(__file__).parent / "alerts_fire.yaml").read_text(encoding="utf-8").replace("RULES", str(ALERTS)))
    for words in (("check", "rules", str(ALERTS)), ("test", "rules", str(cases))):
        done = subprocess.run([PROMTOOL, *words], capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, done.stdout + done.stderr


def test_every_alert_has_a_trouble_that_raises_it() -> None:
    names = {rule["alert"] for rule in yaml.safe_load(ALERTS.read_text(encoding="utf-8"))["groups"][0]["rules"]}
    well, again, ill = yaml.safe_load((Path(__file__).parent / "alerts_fire.yaml").read_text(encoding="utf-8"))["tests"]
    assert well["alert_rule_test"] == again["alert_rule_test"]
    for each in (well, ill):
        assert {test["alertname"] for test in each["alert_rule_test"]} == names
    assert all(test["exp_alerts"] for test in ill["alert_rule_test"])
