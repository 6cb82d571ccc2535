"""Every kind of box has a form, whose fields are what its judge takes; what a form gives by itself is right."""

from __future__ import annotations

import dataclasses
import inspect
import json
from pathlib import Path

import pytest

from evenflow import sinks, sources
from evenflow.query.forms import FORMS, LEFT_OUT, REQUIRED, SINKS, SOURCES, forms
from evenflow.query.kinds import GUARDED, KINDS
from evenflow.query.protecting import AVAILABILITY, LEADING

DOCS = Path(__file__).resolve().parents[2] / "docs"


def test_there_is_one_form_for_each_kind() -> None:
    assert list(FORMS) == [*FORMS] and FORMS.keys() == KINDS.keys()
    assert SOURCES.keys() == sources.KINDS.keys() - {*LEFT_OUT} and SINKS.keys() == sinks.KINDS.keys() - {*LEFT_OUT}


@pytest.mark.parametrize("kind", KINDS)
def test_its_fields_are_what_the_judge_takes(kind: str) -> None:
    taken = {f.name: f for f in dataclasses.fields(KINDS[kind])}
    form = FORMS[kind]
    shared = [*(["on_error"] if kind in GUARDED else []), *([] if kind in LEADING else [AVAILABILITY])]
    assert [field.name for field in form.fields if field.name not in taken] == shared
    assert {field.name for field in form.fields} >= taken.keys()
    for field in form.fields:
        if field.name in taken and taken[field.name].default is not dataclasses.MISSING:
            assert field.default == taken[field.name].default
        assert field.doc.endswith(".") and (field.type != "choice" or field.default is REQUIRED or field.default in field.choices)
    assert form.inputs == KINDS[kind].inputs and form.colours == KINDS[kind].colours


@pytest.mark.parametrize("form", [*FORMS.values(), *SOURCES.values(), *SINKS.values()], ids=lambda form: form.title)
def test_it_leads_to_a_page(form: object) -> None:
    page = getattr(form, "page")  # noqa: B009
    assert (DOCS / page).is_file()


@pytest.mark.parametrize(("found", "module"), [(SOURCES, sources), (SINKS, sinks)])
def test_sources_and_sinks_have_the_arguments_of_their_functions(found: dict[str, object], module: object) -> None:
    for kind, form in found.items():
        parameters = inspect.signature(getattr(module, kind)).parameters
        assert [field.name for field in form.fields] == list(parameters)  # type: ignore[attr-defined]
        for field in form.fields:  # type: ignore[attr-defined]
            default = parameters[field.name].default
            assert field.default is REQUIRED if default is inspect.Parameter.empty else field.default == default


def test_they_are_json() -> None:
    told = json.loads(json.dumps(forms()))
    assert {form["name"] for form in told["kinds"]} == set(KINDS)
    assert next(form for form in told["kinds"] if form["name"] == "filter")["fields"][0]["required"]
    assert "on_error" in [field["name"] for field in next(form for form in told["kinds"] if form["name"] == "select")["fields"]]
