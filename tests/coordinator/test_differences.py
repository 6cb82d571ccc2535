"""Every box is compared: a person sees what goes on as it is, what has other code and keeps its state, and why something cannot be."""

from __future__ import annotations

import json
from typing import Any

import pytest

import evenflow as ef
from evenflow.coordinator.differences import compared, differences
from evenflow.coordinator.versions import checked_version, columns_of, in_version, number_of, version_of
from evenflow.errors import OperationRefused, VersionChanged
from evenflow.plan.layout import Layout
from evenflow.plan.placement import first_plan
from evenflow.query.draw import to_svg
from tests.coordinator.test_versions import REFUSED, RUNNING, Counter, build, planned

BOXES = ["packets", "watermark", "tcp", "kept", "windows", "counter", "out", "w"]


def told(flow: ef.Dataflow, running: Layout = RUNNING) -> dict[str, tuple[str, bool, str]]:
    found = differences(running, planned(flow, columns=columns_of(running)))
    assert len({each.box for each in found}) == len(found)
    return {each.box: (each.change, each.keeps_state, each.why) for each in found}


def test_all_boxes_are_listed_and_what_is_the_same_is_the_same() -> None:
    processor = Counter()
    found = told(build(processor=processor), planned(build(processor=processor)))
    assert sorted(found) == sorted(BOXES) and {change for change, _, _ in found.values()} == {"same"}
    assert {box for box, (_, keeps, _) in found.items() if keeps} == {"watermark", "windows", "counter"}


def test_other_code_is_told_and_whether_state_stays() -> None:
    found = told(build("proto = 17", processor=Counter()))
    assert found["tcp"] == ("other", False, "") and found["counter"] == ("other", True, "")
    assert found["windows"][0] == "same" and found["packets"][0] == "same"


def test_what_is_new_and_gone_is_told_and_the_others_are_compared_all_the_same() -> None:
    found = told(build("proto = 17", more=lambda stream: stream.where("length > 1", name="long"), name="other"))
    assert {box: change for box, (change, _, _) in found.items() if change in ("new", "gone")} == {
        "kept": "gone", "long": "new", "other": "new",
    }  # fmt: skip
    assert found["tcp"][0] == "other" and found["out"][0] == "same"


def test_each_reason_is_told_at_its_box() -> None:
    found = told(build(processor=Counter("m"), count="sum(length)", sink=ef.sinks.discard()))
    assert found["counter"] == ("refused", True, "the processor of box 'counter' declares another store")
    assert found["windows"][0] == "refused" and "'windows'" in found["windows"][2]
    assert found["out"][0] in ("refused", "gone") and found["tcp"][0] == "same"


@pytest.mark.parametrize("flow", [case[1] for case in REFUSED], ids=[case[0] for case in REFUSED])
def test_a_version_is_made_exactly_where_every_box_can_go_on(flow: ef.Dataflow) -> None:
    wanted = planned(flow, columns=columns_of(RUNNING))
    found = differences(RUNNING, wanted)
    whys = [each.why for each in found if not each.possible]
    assert whys and not compared(found, 0)["possible"]
    with pytest.raises(OperationRefused) as refused:
        version_of(RUNNING, first_plan(RUNNING, 4), wanted, 1)
    assert all(why in str(refused.value) for why in whys)


def test_what_was_compared_with_must_still_run() -> None:
    plan, wanted = first_plan(RUNNING, 4), planned(build("proto = 17"), columns=columns_of(RUNNING))
    assert compared(differences(in_version(RUNNING, plan), wanted), number_of(plan))["version"] == 0
    version = checked_version(RUNNING, plan, wanted, 1, 0)
    faster = plan.with_settings(version=version)
    with pytest.raises(VersionChanged, match="version 1 runs by now, and version 0 was compared with"):
        checked_version(RUNNING, faster, wanted, 2, 0)
    assert checked_version(RUNNING, faster, planned(build("proto = 1"), columns=columns_of(RUNNING)), 2, 1).number == 2


def test_it_is_json_and_a_picture() -> None:
    flow = build("proto = 17", processor=Counter("m"))
    whole = compared(differences(RUNNING, planned(flow, columns=columns_of(RUNNING))), 0)
    assert json.loads(json.dumps(whole)) == whole and set(whole["changed"]) == {"tcp", "counter"}
    svg = to_svg(flow.network, marks={each["box"]: (each["change"], each["why"]) for each in whole["boxes"]})
    assert svg.count(">other code<") == 2 and svg.count(">refused<") == 1 and 'opacity="0.45"' in svg
    assert "declares another store</title>" in svg
    assert 'opacity="0.45"' not in to_svg(flow.network)


class Elsewhere(Counter):
    """Its `open` reads what only executors have."""

    here = True

    def open(self, store: Any) -> None:
        if not self.here:
            raise FileNotFoundError("/models/of/executors")
        super().open(store)


def test_code_that_opens_only_where_it_runs_is_compared_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    processor = Elsewhere()
    running, same = planned(build(processor=processor)), planned(build("proto = 17", processor=processor), columns=columns_of(RUNNING))
    other = planned(build(processor=Elsewhere("m")), columns=columns_of(RUNNING))
    monkeypatch.setattr(Elsewhere, "here", False)
    found = {each.box: each for each in differences(running, same)}
    assert (found["counter"].change, found["counter"].keeps_state, found["tcp"].change) == ("same", True, "other")
    refused = {each.box: each for each in differences(running, other)}["counter"]
    assert refused.change == "refused" and "FileNotFoundError: /models/of/executors" in refused.why
