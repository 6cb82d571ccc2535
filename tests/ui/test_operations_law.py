"""One table of operations: the control port, the commands, the paths, the OpenAPI document and the buttons are all of it."""

from __future__ import annotations

import inspect
import json
import re
import urllib.error
import urllib.request
from typing import Any

import pytest
import typer
from playwright.sync_api import Browser, expect

from evenflow.cli.app import app
from evenflow.coordinator.requests import OPERATIONS, Operation, arguments_of
from evenflow.monitor.web.files import STATIC
from evenflow.query.builder import Dataflow
from evenflow.world.grouping import group
from evenflow.world.spark.driver.control_port import ASKED
from evenflow.world.spark.driver.engine import Engine
from evenflow.world.spark.driver.run import Run
from tests.ui.looking import opened, shows_numbers
from tests.ui.serving import Page, serving, sessions, simulated

NAMES = {operation.name for operation in OPERATIONS}
OTHERWISE = {"timeout_s": "timeout", "sites": "site", "partitions": "partition", "arguments": None, "modules": "module"}
"""Arguments whose option has another name: what is said several times is in the singular. Those of a file come behind it."""
OWN = {"context", "engine", "json", "svg", "folded"}


def test_the_control_port_takes_them() -> None:
    assert set(ASKED) - {"watch"} == NAMES


def test_each_has_a_command_with_its_arguments_and_defaults() -> None:
    command = typer.main.get_command(app)
    for operation in OPERATIONS:
        found = command
        for word in operation.command:
            found = found.commands[word]  # type: ignore[attr-defined]
        parameters = inspect.signature(inspect.unwrap(found.callback)).parameters
        taken = {name for name in parameters if name not in OWN}
        wanted = {}
        for argument in operation.arguments:
            plural = argument.kind in ("wholes", "texts")
            name = OTHERWISE.get(argument.name, argument.name) if plural or argument.name == "timeout_s" else argument.name
            if name is not None:
                wanted[name] = argument
        assert taken == set(wanted), operation.name
        options = {parameter.name: parameter for parameter in found.params}
        for name, argument in wanted.items():
            assert options[name].required == argument.required, (operation.name, name)
            if argument.default is not None and not argument.required:
                assert options[name].default == argument.default, (operation.name, name)


def test_each_has_a_path_and_the_document_says_so(page: Page) -> None:
    request = urllib.request.Request(f"{page.at}api/v1/openapi.json", headers={"Authorization": "Bearer look"})
    told = json.loads(urllib.request.urlopen(request).read())
    assert told["openapi"].startswith("3.")
    posts = {path.removeprefix("/api/v1/"): methods["post"] for path, methods in told["paths"].items() if "post" in methods}
    assert set(posts) == NAMES
    for operation in OPERATIONS:
        schema = posts[operation.name]["requestBody"]["content"]["application/json"]["schema"]
        assert list(schema["properties"]) == [argument.name for argument in operation.arguments]
        assert posts[operation.name]["x-effect"] == operation.effect
        assert posts[operation.name]["x-again"] is operation.again
    assert "docs" not in told["paths"]


def test_only_the_demo_has_a_kill_and_asks_for_it_by_name(browser: Browser, page: Page) -> None:
    body = json.dumps({"site": 1}).encode()
    request = urllib.request.Request(f"{page.at}api/v1/kill", body, {"Authorization": "Bearer act"})
    with pytest.raises(urllib.error.HTTPError, match="404"):
        urllib.request.urlopen(request, timeout=20)
    assert "kill" not in ASKED and "kill" not in NAMES
    with serving(simulated(sessions()), besides=("kill",)) as demo, opened(browser, demo) as watched:
        shows_numbers(watched.page)
        watched.page.locator("[data-operation=kill]").click()
        dialog = watched.page.get_by_role("dialog")
        dialog.locator("select[name=site]").select_option("1")
        go = dialog.get_by_role("button", name="Kill")
        expect(go).to_be_disabled()
        dialog.locator("input[name=again]").fill("site 1")
        go.click()
        expect(watched.page.locator(".siterow[data-key='1']")).to_have_attribute("data-role", "dead", timeout=15_000)


def test_each_has_a_button(browser: Browser, page: Page) -> None:
    with opened(browser, page) as watched:
        shows_numbers(watched.page)
        buttons = watched.page.locator("[data-operation]")
        expect(buttons).to_have_count(len(NAMES))
        assert set(buttons.evaluate_all("all => all.map(each => each.dataset.operation)")) == NAMES
        grave = watched.page.locator("[data-operation].grave").evaluate_all("all => all.map(each => each.dataset.operation)")
        assert set(grave) == {operation.name for operation in OPERATIONS if operation.again}


def test_each_button_has_words_and_a_place_among_its_like() -> None:
    """What the page has no words for would stand there as the command is written, behind all others."""
    text = (STATIC / "operate.js").read_text(encoding="utf-8")
    words, groups = text.split("const WORDS = {")[1].split("};")[0], text.split("const GROUPS = [")[1].split("];")[0]
    for name in NAMES:
        assert re.search(rf'(?<![\w-])"?{name}"?: "[A-Z]', words), f"operate.js has no words for {name}"
        assert f'"{name}"' in groups, f"operate.js has no group for {name}"


def test_an_operation_names_the_run_that_is_shown_and_waits_for_the_word(browser: Browser, page: Page) -> None:
    with opened(browser, page) as watched:
        shows_numbers(watched.page)
        run = watched.page.locator(".head .version").inner_text().split(" · ")[0]
        dialog = watched.page.get_by_role("dialog")
        for name in ("state", "suspend", "pin"):
            watched.page.locator(f"[data-operation={name}]").click()
            assert dialog.locator("input[name=run]").input_value() == run
            watched.page.keyboard.press("Escape")
        watched.page.locator("[data-operation='remove-sites']").click()
        go, again = dialog.get_by_role("button", name="Remove sites"), dialog.locator("input[name=again]")
        expect(go).to_be_disabled()
        again.fill("undefined")
        expect(go).to_be_disabled()
        dialog.locator("input[name=count]").fill("1")
        again.fill("1")
        expect(go).to_be_enabled()
        watched.page.keyboard.press("Escape")
        with watched.page.expect_request("**/api/v1/checkpoint") as sent:
            watched.page.locator("[data-operation=checkpoint]").click()
        assert sent.value.post_data_json == {"run": run}
        watched.said.clear()  # A simulated run makes no checkpoint on request, and the browser says so.


def test_what_takes_long_is_said_to_go_on_and_to_be_done(browser: Browser, page: Page) -> None:
    """Its dialog was closed, and nothing said any more whether it was done; what had said something said that for ever, in green."""
    with opened(browser, page) as watched:
        shows_numbers(watched.page)
        told = watched.page.evaluate(
            """async () => {
              const { Operate } = await import(new URL("static/operate.js", document.baseURI).href);
              let number = 0;
              const operate = new Operate(async () => new Response(JSON.stringify({ request: ++number }), { status: 202 }));
              const rebalance = { name: "rebalance", effect: "change" }, drain = { name: "drain", effect: "change" }, told = [];
              const say = () => told.push([...operate.toasts.children].map((each) => `${each.textContent} ${each.dataset.tone ?? ""}`));
              await operate.send(rebalance, {});
              say();
              operate.said([{ request: 1, operation: "rebalance", over: true, problem: null }]);
              operate.said([{ request: 2, operation: "drain", said: "site 2 still hosts 3 replicas" }]);
              await operate.send(drain, {});
              say();
              operate.said([{ request: 2, operation: "drain", over: true, problem: null }]);
              operate.said([{ request: 3, operation: "drain", over: true, problem: null }]);
              await operate.send(drain, {});
              operate.said([{ request: 4, operation: "drain", over: true, problem: "site 9 is not there" }]);
              say();
              operate.toasts.remove();
              return told;
            }"""
        )
        assert told == [
            ["rebalance: under way "],
            ["rebalance: done good", "drain: site 2 still hosts 3 replicas "],
            ["rebalance: done good", "drain: done good", "drain: site 9 is not there bad"],
        ]


IN_PYTHON = {
    "sites": (Engine.describe,), "drain": (Engine.drain,), "add-sites": (Engine.add_sites,), "remove-sites": (Engine.remove_sites,),
    "rebalance": (Engine.rebalance, Run.rebalance), "pin": (Run.pin, Run.unpin), "repartition": (Run.repartition,),
    "availability": (Run.set_availability,),
    "refresh": (Run.refresh,), "checkpoint": (Run.checkpoint,), "savepoint": (Run.savepoint,), "suspend": (Run.suspend,),
    "stop": (Run.stop,), "start": (Engine.start,), "compare": (Run.compare,), "replace": (Run.replace,), "state": (Run.state,),
    "profile": (Engine.profile,),
}  # fmt: skip
"""What does the same in a program."""
PLAIN = {"run", "file", "arguments", "modules", "off"}
"""Arguments that a program needs not: it has the run and the dataflow themselves, and `unpin`."""
OF_GROUP = {
    "group": "name", "group_begin": "begin", "group_sites": "sites", "group_place": "place", "group_peers": "peers", "group_ca": "tls_ca",
}  # fmt: skip
"""Arguments that make the group of which a program says `start(group=...)`, as `ef.group` calls them."""
OF_DATAFLOW = {"start": Dataflow.cut}
"""Where the other arguments stand in a program: the dataflow says of itself what a request says of it."""
OF_PROGRAMS = {
    "group": "is made by `ef.group`, of what a request says one by one",
    "say": "a function of the program's, which is told how far it is: lines on standard error, or in the stream",
    "standby": "waits at a location until another driver is silent: `evenflow run --standby`, a process for nothing else",
    "watch": "a function of the program's that is told how far standing by is",
}  # fmt: skip
ONLY_PYTHON = {
    Engine.open_control: "opens the port at which others ask", Engine.open_ui: "`evenflow ui`", Engine.ui: "a frame in a notebook",
    Engine.stop: "ends the process that would answer",
    Run.await_termination: "who asks from outside looks at readings", Run.exception: "in `sites`, and in readings",
    Run.change_plan: "of tests: the same plan under another number", Run.events: "`watch`, the stream and `happened`",
    Run.events_since: "of them, what is new",
    Run.moves: "in `sites`", Run.numbers: "readings, `sites`", Run.progress: "readings, `sites`", Run.watched: "readings",
    Run.statistics: "readings; `run --statistics FILE`", Run.statistics_since: "readings; `run --statistics FILE`",
    Run.read_stream: "a stream of this program's Spark", Run.refresh_tables: "is given the contents by the program",
    Run.set_state_memory: "of experiments: budgets are an option of the engine",
    Run.shed: "a table; sums of it are in readings",
}  # fmt: skip
"""Methods that no operation has, and where people find the same."""


def public(of: type) -> set[Any]:
    return {each for name, each in inspect.getmembers(of, inspect.isfunction) if not name.startswith("_")}


def test_a_program_can_do_what_people_can_and_nothing_else() -> None:
    assert IN_PYTHON.keys() == NAMES
    named = {method for methods in IN_PYTHON.values() for method in methods}
    assert named & ONLY_PYTHON.keys() == set()
    assert {each.__qualname__ for each in public(Engine) | public(Run)} == {each.__qualname__ for each in named | ONLY_PYTHON.keys()}


@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda each: each.name)
def test_a_method_takes_what_the_operation_takes(operation: Operation) -> None:
    wanted = {argument.name: argument.default for argument in operation.arguments if argument.name not in PLAIN | OF_GROUP.keys()}
    if operation.name in OF_DATAFLOW:
        said = inspect.signature(OF_DATAFLOW[operation.name]).parameters.keys() - {"self"}
        assert said <= wanted.keys()
        wanted = {name: default for name, default in wanted.items() if name not in said}
    for method in IN_PYTHON[operation.name]:
        parameters = dict(inspect.signature(method).parameters)
        taken = parameters.keys() - {"self", "flow"} - OF_PROGRAMS.keys()
        assert taken <= wanted.keys() and (method is Run.unpin or taken == wanted.keys()), method.__qualname__
        for name in taken:
            default = parameters[name].default
            if wanted[name] is not None and default is not inspect.Parameter.empty and name != "limit":
                assert default == wanted[name], (method.__qualname__, name)


def test_a_group_takes_what_a_request_says_of_one() -> None:
    assert set(OF_GROUP.values()) == inspect.signature(group).parameters.keys()
    assert {argument.name for each in OPERATIONS for argument in each.arguments} >= OF_GROUP.keys()


def test_defaults_are_what_a_request_may_say() -> None:
    for operation in OPERATIONS:
        given = {"text": "x", "whole": 1}
        needed = {argument.name: given[argument.kind] for argument in operation.arguments if argument.required}
        found = arguments_of(operation, needed)
        assert found.keys() == {argument.name for argument in operation.arguments}
        assert arguments_of(operation, {name: value for name, value in found.items() if value is not None}) == found


def test_who_may_only_look_gets_few_rows(page: Page) -> None:
    def ask(token: str, limit: int) -> int:
        body = json.dumps({"box": "sessions", "limit": limit}).encode()
        request = urllib.request.Request(f"{page.at}api/v1/state", body, {"Authorization": f"Bearer {token}"})
        try:
            return int(urllib.request.urlopen(request, timeout=20).status)
        except urllib.error.HTTPError as error:
            return error.code

    assert ask("look", 0) == 403 and ask("look", 101) == 403 and ask("act", 0) != 403 and ask("look", 100) != 403
    for operation in OPERATIONS:
        if operation.effect == "read":
            assert all(argument.most is not None for argument in operation.arguments if argument.name == "limit")
