"""Who may only look asks for what it may, and is in nobody's way."""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest

from evenflow.coordinator.requests import OPERATIONS
from evenflow.monitor.web import app
from evenflow.monitor.web.asking import AT_ONCE, KEPT, VIEWED_AT_ONCE
from tests.ui.serving import Page, serving
from tests.ui.test_guard import ACT, LOOK, ask


class Slow:
    """An engine that answers when it is let."""

    def __init__(self) -> None:
        self.let, self.begun = threading.Event(), threading.Semaphore(0)

    def run(self, take: Callable[[Any], None]) -> None:
        self.let.wait()

    def close(self) -> None:
        self.let.set()

    def ask(self, name: str, arguments: Mapping[str, Any], say: Callable[[str], None]) -> Mapping[str, Any]:
        self.begun.release()
        assert self.let.wait(60)
        return {"rows": ["what an operator sees"], "operation": name}


@pytest.fixture
def slow(monkeypatch: pytest.MonkeyPatch) -> Iterator[Page]:
    monkeypatch.setattr(app, "ANSWER_S", 0.01)
    with serving(Slow()) as served, contextlib.closing(served.live):
        yield served


def asked(page: Page, operation: str, who: Mapping[str, str], **arguments: Any) -> tuple[int, dict[str, Any]]:
    status, _, body = ask(page, f"api/v1/{operation}", method="POST", body=json.dumps(arguments).encode(), **who)
    return status, json.loads(body)


def answer(page: Page, number: int, who: Mapping[str, str]) -> tuple[int, dict[str, Any]]:
    status, _, body = ask(page, f"api/v1/requests/{number}", **who)
    return status, json.loads(body)


def test_who_may_only_look_keeps_no_operator_out(slow: Page) -> None:
    """Half of the places are an operator's, however often somebody asks who may only look."""
    found = [asked(slow, "state", LOOK, box="sessions")[0] for _ in range(AT_ONCE)]
    assert found == [202] * VIEWED_AT_ONCE + [429] * (AT_ONCE - VIEWED_AT_ONCE)
    found = [asked(slow, "drain", ACT, site=1)[0] for _ in range(AT_ONCE)]
    assert found == [202] * (AT_ONCE - VIEWED_AT_ONCE) + [429] * VIEWED_AT_ONCE
    status, told = asked(slow, "sites", LOOK)
    assert status == 429 and f"{VIEWED_AT_ONCE} requests" in told["detail"] and "may only look" in told["detail"]


@pytest.mark.parametrize("operation", ["state", "profile", "drain"])
def test_what_an_operator_asked_for_is_an_operator_s(operation: str, slow: Page) -> None:
    """Numbers can be guessed; how far a change is, the stream says to everybody."""
    needed = {"state": {"box": "sessions", "limit": 0}, "profile": {"site": 1, "seconds": 60.0}, "drain": {"site": 1}}[operation]
    number = asked(slow, operation, ACT, **needed)[1]["request"]
    assert answer(slow, number, LOOK)[0] == 403 and answer(slow, number, ACT)[0] == 202
    slow.live.close()
    while answer(slow, number, ACT)[0] == 202:
        pass
    status, told = answer(slow, number, LOOK)
    assert status == 403 and "operator" in told["detail"] and "rows" not in told
    assert answer(slow, number, ACT)[1]["rows"] == ["what an operator sees"]


def test_what_who_may_only_look_asked_for_everybody_gets(slow: Page) -> None:
    number = asked(slow, "state", LOOK, box="sessions")[1]["request"]
    slow.live.close()
    while answer(slow, number, LOOK)[0] == 202:
        pass
    assert answer(slow, number, LOOK)[0] == answer(slow, number, ACT)[0] == 200


def test_many_answers_to_who_may_only_look_push_no_operator_s_out(slow: Page) -> None:
    slow.live.close()
    asked(slow, "drain", ACT, site=1)
    for _ in range(KEPT + 2):
        asked(slow, "sites", LOOK)
    assert answer(slow, 1, ACT)[0] == 200 and answer(slow, 2, LOOK)[0] == 404


def test_who_may_only_look_waits_no_longer_than_people_do(slow: Page) -> None:
    for seconds, code in ((121, 403), (1e6, 403), (120, 202), (1, 202)):
        assert asked(slow, "state", LOOK, box="sessions", timeout_s=seconds)[0] == code
    assert asked(slow, "state", ACT, box="sessions", timeout_s=1e6)[0] == 202
    for operation in OPERATIONS:
        if operation.effect == "read":
            assert all(argument.most is not None for argument in operation.arguments if argument.kind == "number"), operation.name
