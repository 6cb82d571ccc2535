"""Engines and runs as notebooks show them: the picture of the dataflow, what `progress` says, and where the page is. It is still: a cell's
output is kept in a file and shown again without Evenflow. Everything that comes from outside is escaped, and nothing of it is a script."""

from __future__ import annotations

import base64
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from html import escape
from typing import Any, Final

from evenflow.errors import EngineUnreachable
from evenflow.query.draw import to_svg
from evenflow.world.spark.driver.control_client import page_of

NOTEBOOKS: Final = "http://localhost:* http://127.0.0.1:* vscode-webview:"
"""Who may show the page in a frame: notebooks of this machine, and those of an editor."""
CARD: Final = "border:1px solid rgba(128,128,128,.35);border-radius:8px;padding:6px 12px;min-width:90px"
SOFT: Final = "opacity:.75;font-size:11px"


@dataclass(frozen=True, slots=True)
class Frame:
    """The engine's page in a frame. url: with a token behind the #. height: pixels."""

    url: str
    height: int = 720

    def _repr_html_(self) -> str:
        url = escape(self.url, quote=True)
        frame = f'<iframe src="{url}" title="Evenflow" width="100%" height="{int(self.height)}" style="border:0"></iframe>'
        return f'{frame}<p style="{SOFT}">{_link(self.url, "Open the page by itself")}</p>'


class RunDisplay:
    """For a run: its numbers, its dataflow's picture, and the engine's page, if one is open, for somebody who may look."""

    def _repr_html_(self) -> str:
        run: Any = self
        network = run._network
        try:
            page = page_of(run._coordinator.engine)
        except EngineUnreachable:  # Its file lies where others could write.
            page = None
        return run_html(run.progress(), run.exception(), None if network is None else to_svg(network, run._driven.layout), page)


class EngineDisplay:
    """For an engine: it is shown without starting its sites."""

    def _repr_html_(self) -> str:
        engine: Any = self
        facts = f"{engine.sites} sites, {engine.spares} spares, {engine.replicas} replica{'' if engine.replicas == 1 else 's'}"
        there = f"{len(engine.sites_now)} of them are there"
        rows = ((run.id, "active" if run.is_active else "over") for run in engine.runs)
        return f"<p><b>Evenflow engine</b>: {escape(facts)}; {there}</p>{_table(('run', ''), rows)}"

    def ui(self, *, height: int = 720, operate: bool = False, frame: str = NOTEBOOKS) -> Frame:
        """The engine's page in a frame, for a notebook; opened if it is not yet.

        operate: whoever sees the frame may change things, and so may who opens the saved notebook while the engine runs. frame: origins
        that may show it; those of notebooks on this machine. Where a notebook is shown elsewhere, its browser must reach this machine's
        port: see `evenflow ui --host`. Raises EngineUnreachable if there is no page.
        """
        engine: Any = self
        return Frame(engine.open_ui(frame=frame).url(operate=operate), height)


def run_html(progress: Mapping[str, Any], failure: Exception | None, picture: str | None = None, page: str | None = None) -> str:
    """A run in a few lines. progress: as `Run.progress` has it. picture: SVG. page: where more is."""
    how = "active" if progress["active"] else "failed" if failure is not None else "over"
    p99 = "none yet" if progress["p99_ms"] is None else f"{progress['p99_ms']:.1f} ms"
    facts = (
        ("rows in", f"{progress['rows_in']:,} ({progress['rows_in_per_s']:,.0f}/s)"),
        ("rows out", f"{progress['rows_out']:,} ({progress['rows_out_per_s']:,.0f}/s)"),
        ("latency p99", p99),
        ("epoch", f"{progress['epoch']:,}"),
        ("redundancy", f"{progress['redundancy']} of {progress['replicas']}"),
    )
    headings = ("site", "role", "executor", "host", "partitions", "state")
    sites = (
        (site["site"], site["role"], site["executor"], site["host"], f"{site['partitions']:,}", f"{site['state_bytes'] / 2**20:.1f} MiB")
        for site in progress["sites"]
    )
    title = f"<p><b>{escape(str(progress['run']))}</b>: {how}, dataflow {escape(str(progress['dataflow']))}{_more(page)}</p>"
    wrong = "" if failure is None else f"<pre>{escape(str(failure))}</pre>"
    return f"{title}{wrong}{_cards(facts)}{_image(picture, str(progress['dataflow']))}{_table(headings, sites)}"


def _more(page: str | None) -> str:
    return "" if page is None else f" · {_link(page, 'its page')}"


def _link(url: str, text: str) -> str:
    return f'<a href="{escape(url, quote=True)}" target="_blank" rel="noopener noreferrer" style="color:inherit">{escape(text)}</a>'


def _cards(facts: Iterable[tuple[str, str]]) -> str:
    cards = "".join(f'<div style="{CARD}"><div style="{SOFT}">{escape(name)}</div><b>{escape(value)}</b></div>' for name, value in facts)
    return f'<div style="display:flex;flex-wrap:wrap;gap:8px;margin:6px 0">{cards}</div>'


def _image(picture: str | None, name: str) -> str:
    """As an image, so that names within one picture are not those of another, and no notebook takes anything out of it."""
    if picture is None:
        return ""
    data = base64.b64encode(picture.encode()).decode()
    told = escape(f"Boxes and arrows of {name}", quote=True)
    return f'<img src="data:image/svg+xml;base64,{data}" alt="{told}" style="max-width:100%;border-radius:8px">'


def _table(headings: Iterable[Any], rows: Iterable[Iterable[Any]]) -> str:
    head = "".join(f"<th>{escape(str(each))}</th>" for each in headings)
    body = "".join(f"<tr>{''.join(f'<td>{escape(str(cell))}</td>' for cell in row)}</tr>" for row in rows)
    return f"<table>{f'<tr>{head}</tr>' if head else ''}{body}</table>" if body else ""
